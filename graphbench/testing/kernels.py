"""Kernels beside the plain forms of operations, and kernels in Triton where there is no graphics card."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Literal
from unittest import mock

from graphbench.contracts import kernels
from graphbench.errors import check_choice


@contextmanager
def computed_by(way: Literal["numba", "torch"], *operations: str) -> Iterator[None]:
    """Let installed kernels compute, or the plain forms of operations, whatever the environment says.

    Args:
        way: `numba` for kernels.
        operations: with `torch`, those that alone are computed by their plain forms, as `graphbench::sum_rows`; none:
            all.

    Raises:
        BadInput: `way` is neither.
        unittest.SkipTest: no package with kernels is installed, or Numba is not.

    Examples:
        >>> with computed_by("torch"):
        ...     kernels.kernels_run()
        False
    """
    check_choice("way", way, ("numba", "torch"))
    if way == "numba" and (find_spec("numba") is None or not kernels.register_kernels()):
        raise unittest.SkipTest("graphbench-kernels is not installed")
    run_kernels = way == "numba" or bool(operations)
    with mock.patch.multiple(kernels, _are_wanted=lambda: run_kernels, _LEFT_OUT=set(operations)):
        yield


def run_with_triton(script: str, interpreted: bool = True) -> str:
    """Run a script in a process of its own, where Triton interprets kernels or compiles them; returns what it prints.

    Interpreted, kernels take tensors of the CPU, so that results can be compared anywhere. Not interpreted, they run on
    a graphics card, or are compiled for one that is not there, by `triton.compile` with a `GPUTarget`. It is a process
    of its own because Triton decides at its import.

    Raises:
        unittest.SkipTest: Triton is not installed.
        AssertionError: the script failed; with what it printed as errors.
    """
    if find_spec("triton") is None:
        raise unittest.SkipTest("Triton is not installed: it comes with torch for CUDA, or by `pip install triton`")
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpreted))}
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise AssertionError(f"the script ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout
