"""One thread for every test, and what `make test` leaves to `make test-slow` of the contract of architectures."""

import os

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
