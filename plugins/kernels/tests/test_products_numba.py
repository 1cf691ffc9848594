"""Small products, against NumPy's in float64."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("numba")

from graphbench_kernels import cpu_kernel
from graphbench_kernels.products_numba import LANES, multiply


@cpu_kernel
def call(a, places_a, b, places_b, out, places_out, sizes):
    rows, columns, count = sizes
    multiply(a, *places_a, b, *places_b, out, *places_out, rows, columns, count)


def draw(*shape, dtype, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [0, 1, 3, 4, 5, 23])
@pytest.mark.parametrize("columns", [0, LANES, 2 * LANES, 5 * LANES])
@pytest.mark.parametrize("count", [0, 1, 7, 64])
def test_products_are_those_of_matrices(dtype, rows, columns, count):
    a, b = draw(rows, count, dtype=dtype, seed=0), draw(count, columns, dtype=dtype, seed=1)
    out = np.full((rows + 1, columns), 7, dtype)
    call(a.ravel(), (0, count, 1), b.ravel(), (0, columns), out.ravel(), (0, columns), (rows, columns, count))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    error = 8 * np.finfo(dtype).eps * np.sqrt(max(count, 1))
    np.testing.assert_allclose(out[:rows], expected, atol=error, rtol=error)
    assert (out[rows:] == 7).all(), "what lies behind is left alone"


def test_operands_and_results_are_parts_of_arrays():
    """The left one is transposed; all have offsets and strides."""
    left, right = draw(9, 13, dtype=np.float32, seed=2), draw(9, 40, dtype=np.float32, seed=3)
    out = np.zeros((8, 50), np.float32)
    call(left.ravel(), (13 + 2, 1, 13), right.ravel(), (40 + 5, 40), out.ravel(), (50 + 3, 50), (6, 2 * LANES, 7))
    expected = np.zeros((8, 50))
    expected[1:7, 3 : 3 + 2 * LANES] = left[1:8, 2:8].T.astype(np.float64) @ right[1:8, 5 : 5 + 2 * LANES]
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_what_is_no_number_spoils_its_row_or_column_alone():
    a, b = np.ones((6, 5), np.float32), np.ones((5, LANES), np.float32)
    a[2, 1], b[3, 4] = np.nan, np.inf
    out = np.empty((6, LANES), np.float32)
    call(a.ravel(), (0, 5, 1), b.ravel(), (0, LANES), out.ravel(), (0, LANES), (6, LANES, 5))
    np.testing.assert_array_equal(out, a @ b)


_USER = """
from pathlib import Path
import numpy as np
from graphbench_kernels import cpu_kernel
from part_numba import part

@cpu_kernel
def whole(first, last, x):
    for i in range(first, last):
        x[i] = part(x[i])

x = np.ones(1)
whole(0, 1, x)
print(x[0], end="")
"""
_PART = "from graphbench_kernels import cpu_kernel\n\n@cpu_kernel\ndef part(x):\n    return x + {}\n"


@pytest.mark.slow
def test_a_kernel_is_compiled_anew_when_a_function_beside_it_changes(tmp_path):
    """Numba's own cache depends only on the file of the kernel."""
    (tmp_path / "user_numba.py").write_text(_USER)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for added in (1, 1, 20):
        (tmp_path / "part_numba.py").write_text(_PART.format(added))
        command = [sys.executable, str(tmp_path / "user_numba.py")]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        assert done.stdout == f"{1.0 + added}"


def test_functions_that_make_instructions_stay_few():
    """Everything at the top of a module that names a builder or a part of llvmlite: 600 lines, as the README says."""
    made_with, lines = {"builder", "_builder", "intrinsic", "ir", "cgutils"}, 0
    for file in (Path(__file__).parents[1] / "src").rglob("*.py"):
        for node in ast.parse(file.read_bytes()).body:
            inner = list(ast.walk(node)) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else []
            names = {getattr(x, "id", None) or getattr(x, "attr", None) or getattr(x, "arg", None) for x in inner}
            if names & made_with:
                lines += (node.end_lineno or 0) - node.lineno + 1
    assert 300 < lines <= 600
