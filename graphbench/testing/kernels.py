"""Switch between kernels and the plain forms of operations, and run Triton kernels without a GPU."""

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
    """Use installed kernels, or the plain forms of operations, whatever the environment variable says.

    Args:
        way: `numba` for kernels, `torch` for plain forms.
        operations: with `torch`, use plain forms only for these, such as `graphbench::sum_rows`; by default for all.

    Raises:
        BadInput: `way` is neither.
        unittest.SkipTest: no package with kernels is installed, or Numba is not installed.

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
    """Run a script in a separate process, in which Triton interprets or compiles kernels; return its output.

    If interpreted, kernels accept CPU tensors, so that results can be compared on any machine. Otherwise they run on a
    GPU, or are compiled for a GPU that is not present, by `triton.compile` with a `GPUTarget`. The process is separate
    because Triton chooses the mode when it is imported.

    Raises:
        unittest.SkipTest: Triton is not installed.
        AssertionError: the script failed; the message contains its stderr.
    """
    if find_spec("triton") is None:
        raise unittest.SkipTest("Triton is not installed: it comes with torch for CUDA, or by `pip install triton`")
    environment = {**os.environ, "TRITON_INTERPRET": str(int(interpreted))}
    words = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise AssertionError(f"the script ended with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout
