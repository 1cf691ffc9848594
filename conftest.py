"""One thread and one seed for every test, no report after a fit, and what is left to `make test-slow`."""

import os
import subprocess
import sys
from functools import cache
from importlib import import_module

import pytest

# Tests fork commands, and a fork waits forever for threads of OpenMP that this process has used.
os.environ.setdefault("OMP_NUM_THREADS", "1")

#: All other tests of the contract run in float32, and autocast runs the kernels of `bf16-true` and of float32.
REPEATED = {"test_trains_in_32_true", "test_trains_in_bf16_mixed", "test_trains_in_16_mixed"}
#: Tests of the class rather than of its options: `make test` runs them for the first variant of an architecture.
ONCE = {
    "test_every_task_and_feature_kind_works_or_is_refused",
    "test_numbers_out_of_range_are_refused_by_name",
    "test_required_encodings_can_be_computed",
    "test_smallest_graphs_work",
    "test_state_survives_saving",
    "test_trains_in_64_true",
    "test_trains_in_bf16_true",
}


@pytest.hookimpl(tryfirst=True)  # before pytest reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these tests as slow."""
    seen = set()
    for item in items:
        architecture = getattr(getattr(item, "cls", None), "architecture", None)
        again = architecture is not None and item.name in ONCE and (architecture, item.name) in seen
        seen.add((architecture, item.name))
        if item.name in REPEATED or again:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Let a test draw the same numbers alone, after others and in any order."""
    import torch  # after the number of threads is set

    torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _no_report_after_fit_and_test() -> None:
    """Let hundreds of fits and tests end without a drawing; `with_report` in `tests/cli/conftest.py` asks for it."""
    for command in ("fit", "score"):
        import_module(f"graphbench.cli.commands.{command}").write_page = lambda run: None  # type: ignore[attr-defined]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests with the mark `fresh_process` in a process of their file, which has computed no gradient before.

    PyTorch learns of a pretended card once in a process, before its first backward pass.
    """
    if pyfuncitem.get_closest_marker("fresh_process") is None or os.environ.get(_FRESH):
        return None
    slow = pyfuncitem.get_closest_marker("slow") is not None
    passed, output = _run_file(str(pyfuncitem.path), "slow" if slow else "not slow")
    assert pyfuncitem.name in passed, output
    return True


_FRESH = "GRAPHBENCH_FRESH_PROCESS"


@cache
def _run_file(path: str, which: str) -> tuple[set[str], str]:
    """Run the slow or the other tests of a file in a new process; return names that passed, and what was printed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rp", "-m", f"fresh_process and {which}", path]
    done = subprocess.run(command, env=os.environ | {_FRESH: "1"}, capture_output=True, text=True, check=False)
    passed = (line for line in done.stdout.splitlines() if line.startswith("PASSED "))
    return {line.partition("::")[2] for line in passed}, done.stdout[-8000:]
