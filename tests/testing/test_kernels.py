import unittest

import pytest
import torch

from graphbench.contracts import kernels as core
from graphbench.contracts.kernels import VARIABLE, kernels_run, runs_numba
from graphbench.errors import BadInput
from graphbench.testing import computed_by, kernels, run_with_triton


@pytest.fixture
def with_triton(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: object())


@pytest.mark.parametrize("interpreted", [True, False])
def test_the_script_runs_in_a_process_that_triton_reads_its_mode_from(interpreted, with_triton):
    script = """
        import os
        print(os.environ["TRITON_INTERPRET"])
    """
    assert run_with_triton(script, interpreted).strip() == str(int(interpreted))


def test_a_script_that_fails_is_an_assertion_with_its_reason(with_triton):
    with pytest.raises(AssertionError, match=r"exit code 1(.|\n)*ZeroDivisionError"):
        run_with_triton("1 / 0")


def test_without_triton_the_test_is_skipped(monkeypatch):
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    with pytest.raises(unittest.SkipTest, match="pip install triton"):
        run_with_triton("")


@pytest.mark.parametrize("said", ["numba", "torch"])
def test_kernels_compute_or_do_not_whatever_the_environment_says(said, monkeypatch):
    core._are_wanted.cache_clear()
    monkeypatch.setenv(VARIABLE, said)
    before = kernels_run()
    core._are_wanted.cache_clear()
    with computed_by("torch"):
        assert not kernels_run()
    if core.register_kernels():
        assert before == (said == "numba")
        with computed_by("numba"):
            assert kernels_run()


def test_without_kernels_only_torch_can_be_asked_for(monkeypatch):
    monkeypatch.setattr(core, "register_kernels", lambda: ())
    with pytest.raises(unittest.SkipTest, match="graphbench-kernels"):
        computed_by("numba").__enter__()
    with computed_by("torch"):
        assert not runs_numba(torch.zeros(1))
    with pytest.raises(BadInput, match="way"):
        computed_by("triton").__enter__()
