"""Graphs that the loops leave to the plain forms; the tests of each encoding run with and without loops."""

import pytest
import torch

pytest.importorskip("numba")

from graphbench.contracts import GraphTable
from graphbench.encodings import RWSE, LapPE, ShortestPaths
from graphbench.encodings import _dense as _eigenvectors
from graphbench.testing import computed_by
from graphbench_kernels.encodings import lap_pe_numba, loops

SIZES = (5, 60, 1, 12, 80, 0, 7)


@pytest.fixture
def table():
    """Sparse and dense graphs, directed and not, one without nodes."""
    generator, graphs = torch.Generator().manual_seed(0), []
    for number, nodes in enumerate(SIZES):
        edges = torch.randint(max(nodes, 1), (2, (1 + 40 * (number % 2)) * nodes), generator=generator)
        graphs.append({"num_nodes": nodes, "edge_index": torch.cat([edges, edges.flip(0)], 1) if number % 3 else edges})
    return GraphTable.from_graphs(graphs)


@pytest.mark.parametrize("largest", [0, 50, 2048])
@pytest.mark.parametrize(
    "encoding", [RWSE(7), LapPE(4), LapPE(3, "random_walk", skip_trivial=True), ShortestPaths(with_edges=True)]
)
def test_every_graph_is_encoded_whoever_computes_it(table, encoding, largest, monkeypatch):
    with computed_by("torch"):
        expected = encoding.compute(table)
    monkeypatch.setattr(loops, "_LARGE", largest)
    monkeypatch.setattr(loops, "_SEARCHED", 1000)  # several graphs at a time
    with computed_by("numba"):
        found = encoding.compute(table)
    assert found.columns.keys() == expected.columns.keys()
    for name, column in expected.columns.items():
        torch.testing.assert_close(found.columns[name], column, rtol=1e-4, atol=1e-5)
    assert found.ptr.keys() == expected.ptr.keys()
    assert all(torch.equal(found.ptr[axis], ptr) for axis, ptr in expected.ptr.items())


def test_constants_are_those_of_the_plain_form():
    assert (lap_pe_numba.SAME_VALUE, lap_pe_numba.TIE) == (_eigenvectors.SAME_VALUE, _eigenvectors.TIE)
