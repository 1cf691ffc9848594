"""Pickles of arrays are read, and such that could run code are not."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from graphbench.benchmarks.graphs.plain_pickles import load_plain, plain_pickles


class _Runs:
    def __reduce__(self):
        return eval, ("1 / 0",)


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_arrays_matrices_and_containers_are_read(protocol):
    dense, sparse = np.arange(6.0).reshape(2, 3), csr_matrix(np.eye(3, dtype=np.float32))
    graph = defaultdict(list, {0: [1, 2]})
    loaded = load_plain(io.BytesIO(pickle.dumps((dense, sparse, graph, np.float32(2)), protocol)), encoding="latin1")
    assert np.array_equal(loaded[0], dense)
    assert (loaded[1] != sparse).nnz == 0
    assert loaded[2] == graph
    assert loaded[3] == 2


def test_older_names_are_known():
    text = pickle.dumps(csr_matrix(np.eye(2)), 2).replace(b"scipy.sparse._csr", b"scipy.sparse.csr")
    text = text.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert load_plain(io.BytesIO(text), encoding="latin1").sum() == 2


def test_what_runs_code_is_refused_while_others_read():
    before = pickle.load
    with plain_pickles(), pytest.raises(pickle.UnpicklingError, match=r"names builtins\.eval, which might run code"):
        pickle.load(io.BytesIO(pickle.dumps([_Runs()])))
    assert pickle.load is before
