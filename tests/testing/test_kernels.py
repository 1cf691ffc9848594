import unittest

import pytest

from graphbench.testing import kernels, run_with_triton


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
