"""Relative information computed for the sampled columns alone, against matrices of all pairs."""

import pytest
import torch

from graphbench_sft.pairs import DenseRelation, DistanceRelation, PositionRelation
from graphbench_sft.relative import Chunk, RelativeTerms
from graphbench_sft.sampler import DifferentiableSampler

GRAPHS, NODES, HEADS, DIM = 2, 7, 3, 4


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def distances(with_normals):
    position, normal = draw(GRAPHS, NODES, 3, seed=1), draw(GRAPHS, NODES, 3, seed=2)
    matrix = (position[:, :, None] - position[:, None]).square().sum(-1).unsqueeze(1)
    if with_normals:
        matrix = torch.cat([matrix, torch.einsum("bid,bjd->bij", normal, normal).unsqueeze(1)], dim=1)
    return DistanceRelation(position, normal if with_normals else None), matrix


def positions():
    waves, weight, bias = draw(GRAPHS, NODES, 6, seed=1), draw(HEADS, 6, seed=2), draw(HEADS, seed=3)
    products = waves[:, :, None] * waves[:, None]
    return PositionRelation(waves, weight, bias), (products @ weight.T + bias).permute(0, 3, 1, 2)


RELATIONS = {
    "distances": lambda: distances(False),
    "distances and normals": lambda: distances(True),
    "positions": positions,
}


def bind(relation, width, chunks, training=True):
    torch.manual_seed(0)
    terms = RelativeTerms(width, HEADS).double()
    sampler = DifferentiableSampler(DIM, 3).double().train(training)
    return relation.bind(terms, sampler(draw(GRAPHS, NODES, DIM)), chunks), terms


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", RELATIONS)
def test_sampled_columns_equal_those_of_the_whole_matrix(kind, training):
    relation, matrix = RELATIONS[kind]()
    chunks = [Chunk(slice(0, GRAPHS), slice(0, NODES))]
    scores = draw(GRAPHS, HEADS, NODES, 3, seed=5)
    results = []
    for own in (relation, DenseRelation(matrix)):
        (apply,), terms = bind(own, matrix.shape[1], chunks, training)
        moved = apply(scores)
        moved.square().sum().backward()
        results.append((moved, terms.linear.weight.grad, terms.linear.bias.grad))
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("kind", RELATIONS)
def test_chunks_of_pairs_give_what_the_whole_gives(kind):
    relation, matrix = RELATIONS[kind]()
    scores = draw(GRAPHS, HEADS, NODES, 3, seed=5)
    whole, _ = bind(relation, matrix.shape[1], [Chunk(slice(0, GRAPHS), slice(0, NODES))])
    expected = whole[0](scores)
    chunks = [Chunk(slice(g, g + 1), slice(r, r + 4)) for g in range(GRAPHS) for r in (0, 4)]
    maps, _ = bind(relation, matrix.shape[1], chunks)
    for chunk, apply in zip(chunks, maps, strict=True):
        part = apply(scores[chunk.graphs][:, :, chunk.rows])
        torch.testing.assert_close(part, expected[chunk.graphs][:, :, chunk.rows])
