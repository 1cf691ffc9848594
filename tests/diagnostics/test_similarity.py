"""Cosine similarity and Dirichlet energy compared with pair-by-pair sums and Laplacian matrices."""

from __future__ import annotations

import networkx as nx
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphbench import diagnostics as D
from graphbench.diagnostics import similarity
from graphbench.errors import BadInput


def pairwise_similarity(tokens: Tensor) -> float:
    pairs = [
        F.cosine_similarity(tokens[i].double(), tokens[j].double(), dim=0)
        for i in range(len(tokens))
        for j in range(len(tokens))
        if i != j
    ]
    return float(torch.stack(pairs).mean())


def test_similarity_is_the_mean_over_pairs(tokens: Tensor, batch: Tensor) -> None:
    found = D.token_similarity_per_graph(tokens, batch)
    assert found.dtype == torch.float32
    assert found[2].isnan()  # a single node has no pair
    for graph in (0, 1, 3, 4, 5):
        own = tokens[batch == graph]
        assert found[graph].item() == pytest.approx(pairwise_similarity(own), abs=1e-6)
        torch.testing.assert_close(D.token_similarity(own), found[graph])


def test_similarity_of_special_tokens() -> None:
    assert D.token_similarity(torch.ones(5, 3)).item() == pytest.approx(1)
    assert D.token_similarity(torch.eye(4)).item() == pytest.approx(0)
    assert D.token_similarity(torch.tensor([[1.0], [-1.0]])).item() == pytest.approx(-1)
    assert D.token_similarity(torch.tensor([[1.0, 0], [0, 0]])).item() == 0  # a zero token is similar to none
    assert D.token_similarity(torch.full((3, 2), 1e-30)).item() == pytest.approx(1)


def graph_and_edges(n: int, seed: int) -> tuple[nx.Graph, Tensor]:
    graph = nx.gnp_random_graph(n, 0.3, seed=seed)
    edges = torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).t()
    return graph, torch.cat((edges, edges.flip(0)), 1)


@pytest.mark.parametrize("laplacian", ["combinatorial", "symmetric"])
@pytest.mark.parametrize("relative", [False, True])
def test_energy_is_the_trace_with_the_laplacian(
    tokens: Tensor, batch: Tensor, sizes: list[int], laplacian: str, relative: bool
) -> None:
    edges, expected, first = [], [], 0
    for seed, n in enumerate(sizes):
        graph, edge_index = graph_and_edges(n, seed)
        build = nx.laplacian_matrix if laplacian == "combinatorial" else nx.normalized_laplacian_matrix
        matrix = torch.from_numpy(build(graph).toarray()).double() if n > 1 else torch.zeros(1, 1).double()
        x = tokens[first : first + n].double()
        energy = torch.trace(x.T @ matrix @ x) / (x.square().sum() if relative else 1)
        alone = D.dirichlet_energy(tokens[first : first + n], edge_index, laplacian, relative)
        assert alone.item() == pytest.approx(float(energy), rel=1e-5, abs=1e-6)
        edges.append(edge_index + first)
        expected.append(alone)
        first += n
    together = D.dirichlet_energy_per_graph(tokens, torch.cat(edges, 1), batch, laplacian, relative)
    torch.testing.assert_close(together, torch.stack(expected))


def test_energy_holds_the_tokens_of_some_edges_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    _, edge_index = graph_and_edges(40, 0)
    tokens, norms = torch.randn(40, 3), []
    expected = D.dirichlet_energy(tokens, edge_index)
    monkeypatch.setattr(similarity, "_EDGES", 7)
    square = Tensor.square
    monkeypatch.setattr(Tensor, "square", lambda x: norms.append(len(x)) or square(x))
    torch.testing.assert_close(D.dirichlet_energy(tokens, edge_index), expected)
    assert max(norms) == 7
    assert sum(norms) == edge_index.shape[1] > 7


def test_bad_edges_are_refused(tokens: Tensor) -> None:
    with pytest.raises(BadInput, match="edge_index must be"):
        D.dirichlet_energy(tokens, torch.zeros(3, 2, dtype=torch.int64))
    with pytest.raises(BadInput, match="must name rows"):
        D.dirichlet_energy(tokens, torch.tensor([[0], [len(tokens)]]))
    with pytest.raises(BadInput, match="got -1 to 0"):
        D.dirichlet_energy(tokens, torch.tensor([[0], [-1]]))
    with pytest.raises(BadInput, match="laplacian must be"):
        D.dirichlet_energy(tokens, torch.tensor([[0], [1]]), "random-walk")  # type: ignore[arg-type]
