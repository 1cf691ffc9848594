"""Relative information of edges and of all pairs in sampled columns, against matrices of all pairs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.nn import DenseLayout, size_blocks
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft.inputs import relative_features, relative_width
from graphbench_sft.relative import (
    Chunk,
    DenseRelation,
    DistanceRelation,
    PositionRelation,
    RelativeTerms,
    edge_relations,
)
from graphbench_sft.sampler import DifferentiableSampler

HEADS, WIDTH, DIM = 3, 2, 4


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def make_graphs(sizes, edges_per_node=3, seed=0):
    """Return random directed graphs without parallel edges, as batch-wide edges and the layout of their nodes."""
    generator = torch.Generator().manual_seed(seed)
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    edges = []
    for size, first in zip(sizes, ptr[:-1].tolist(), strict=True):
        pairs = torch.randint(size, (2, edges_per_node * size), generator=generator).unique(dim=1)
        edges.append(pairs[:, torch.randperm(pairs.shape[1], generator=generator)] + first)
    graph_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return torch.cat(edges, dim=1), DenseLayout.from_rows(graph_of, ptr, max(sizes))


def as_dense(relation, num_graphs):
    """Return the same relation as a matrix over padded nodes, edge by edge."""
    n = relation.num_slots // num_graphs
    values = torch.zeros(num_graphs, relation.features.shape[1], n, n, dtype=torch.float64)
    for i, j, feature in zip(relation.row.tolist(), relation.column.tolist(), relation.features, strict=True):
        values[i // n, :, i % n, j % n] = feature
    return DenseRelation(values)


def make_terms():
    torch.manual_seed(0)
    return RelativeTerms(WIDTH, HEADS).double()


def whole(batch, rows):
    return [Chunk(slice(0, batch), slice(0, rows))]


@pytest.mark.parametrize("mode", ["without_replacement", "straight_through", "with_replacement"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("on_card", [False, True])
def test_edges_equal_the_dense_matrix_they_stand_for(mode, training, on_card, monkeypatch):
    # Compiled programs keep edges without a slot, as GPUs do: nothing is counted.
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: on_card)
    edge_index, layout = make_graphs([6, 5, 6])
    relations = edge_relations(edge_index, draw(edge_index.shape[1], WIDTH), layout)
    torch.manual_seed(0)
    sampler = DifferentiableSampler(DIM, 4, mode).double().train(training)
    sample = sampler(layout.to_dense(draw(17, DIM)), layout.mask)
    scores = draw(3, HEADS, 6, sample.index.shape[1], seed=1).requires_grad_()
    results = []
    assert len(relations) == 1
    for relation in (relations[0], as_dense(relations[0], 3)):
        terms = make_terms()
        (apply,) = relation.bind(terms, sample, whole(3, 6))
        moved = apply(scores)
        if sample.mask is not None:
            moved = moved * sample.mask[:, None, None]
        (gradient,) = torch.autograd.grad(moved.square().sum(), scores, retain_graph=True)
        moved.square().sum().backward(inputs=list(terms.parameters()), retain_graph=True)
        results.append((moved, gradient, [p.grad for p in terms.parameters()]))
    torch.testing.assert_close(results[0], results[1])


def test_dense_terms_follow_the_equation():
    terms, values = make_terms(), draw(1, WIDTH, 5, 5)
    torch.manual_seed(0)
    sample = DifferentiableSampler(DIM, 2).double()(draw(1, 5, DIM))
    scores = draw(1, HEADS, 5, 2, seed=1)
    (apply,) = DenseRelation(values).bind(terms, sample, whole(1, 5))
    moved = apply(scores)
    w, b = terms.linear.weight, terms.linear.bias
    for head in range(HEADS):
        for i in range(5):
            for slot in range(2):
                p = sample.weight[0, slot]
                top, other = (values[0, :, i, j] for j in (sample.index[0, slot], sample.partner[0, slot]))
                mul = p * F.softplus(w[head] @ top + b[head])
                mul = mul + (1 - p) * F.softplus(w[head] @ other + b[head])
                add = w[HEADS + head] @ (p * top + (1 - p) * other) + b[HEADS + head]
                torch.testing.assert_close(moved[0, head, i, slot], scores[0, head, i, slot] * mul + add)


@pytest.mark.parametrize("on_card", [False, True])
@pytest.mark.parametrize("mode", ["without_replacement", "with_replacement"])
@pytest.mark.parametrize("dense", [False, True])
def test_chunks_give_what_the_whole_gives(dense, mode, on_card, monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: on_card)
    edge_index, layout = make_graphs([6, 6])
    (relation,) = edge_relations(edge_index, draw(edge_index.shape[1], WIDTH), layout)
    relation = as_dense(relation, 2) if dense else relation
    torch.manual_seed(0)
    sample = DifferentiableSampler(DIM, 3, mode).double()(draw(2, 6, DIM))
    terms, scores = make_terms(), draw(2, HEADS, 6, 3, seed=1)
    (apply,) = relation.bind(terms, sample, whole(2, 6))
    expected = apply(scores)
    by_graph = [Chunk(slice(g, g + 1), slice(0, 6)) for g in range(2)]
    for chunk, own in zip(by_graph, relation.bind(terms, sample, by_graph), strict=True):
        torch.testing.assert_close(own(scores[chunk.graphs]), expected[chunk.graphs])
    by_row = [Chunk(slice(g, g + 1), slice(r, r + 4)) for g in range(2) for r in (0, 4)]
    for chunk, own in zip(by_row, relation.bind(terms, sample, by_row), strict=True):
        part = own(scores[chunk.graphs, :, chunk.rows])
        torch.testing.assert_close(part, expected[chunk.graphs, :, chunk.rows])


def test_relations_follow_the_blocks_of_the_layout(monkeypatch):
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 0)
    sizes = [3, 20, 4, 19, 2]
    edge_index, layout = make_graphs(sizes)
    features = torch.arange(edge_index.shape[1], dtype=torch.float64).unsqueeze(1)
    assert len(layout.blocks) > 1
    relations = edge_relations(edge_index, features, layout)
    found = []
    for block, relation in zip(layout.blocks, relations, strict=True):
        n = block.layout.max_nodes
        first = layout.ptr[block.graphs]
        assert (relation.row.diff() >= 0).all()
        source = first[relation.column // n] + relation.column % n
        target = first[relation.row // n] + relation.row % n
        found.append(torch.stack([source, target, relation.features[:, 0].long()]))
    found = torch.cat(found, dim=1)
    assert torch.equal(found[:2, found[2].argsort()], edge_index)


def test_parallel_edges_each_add_their_difference():
    layout = DenseLayout.from_rows(torch.zeros(2, dtype=torch.int64), torch.tensor([0, 2]), 2)
    features = draw(2, WIDTH)
    (relation,) = edge_relations(torch.tensor([[1, 1], [0, 0]]), features, layout)
    torch.manual_seed(0)
    sample = DifferentiableSampler(DIM, 2).double().eval()(draw(1, 2, DIM))
    terms = make_terms()
    (apply,) = relation.bind(terms, sample, whole(1, 2))
    moved = apply(torch.ones(1, HEADS, 2, 2, dtype=torch.float64))
    (mul, add), (mul_zero, add_zero) = terms.map_rows(features), terms.at_zero()
    expected = mul_zero + add_zero + (mul + add - mul_zero - add_zero).sum(0)
    torch.testing.assert_close(moved[0, :, 0, int((sample.index[0] == 1).nonzero())], expected)


def test_a_batch_without_edges_has_constant_terms():
    layout = DenseLayout.from_rows(torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3]), 3)
    (relation,) = edge_relations(torch.zeros(2, 0, dtype=torch.int64), draw(0, WIDTH), layout)
    terms = make_terms()
    torch.manual_seed(0)
    sample = DifferentiableSampler(DIM, 2).double()(draw(1, 3, DIM))
    (apply,) = relation.bind(terms, sample, whole(1, 3))
    mul, add = terms.at_zero()
    torch.testing.assert_close(apply(torch.ones(1, HEADS, 3, 2).double())[0, :, 1, 1], mul + add)


def test_edge_features_are_one_hot_columns_dense_columns_and_a_one():
    spec = BenchmarkSpec("E", "graph-regression", Features((2,)), Features((3, 2), dense=2), "MAE", False, "L1")
    edges = {"edge_attr": torch.tensor([[2, 0], [0, 1]]), "edge_dense": torch.tensor([[0.5, -1.0], [2.0, 3.0]])}
    graph = {"num_nodes": 2, "edge_index": torch.tensor([[0, 1], [1, 0]]), "x": torch.zeros(2, 1).long(), **edges}
    batch = GraphTable.from_graphs([graph | {"y": torch.zeros(1, 1)}]).batch([0])
    features = relative_features(spec, batch)
    assert features.tolist() == [[0, 0, 1, 1, 0, 0.5, -1.0, 1], [1, 0, 0, 0, 1, 2.0, 3.0, 1]]
    assert features.shape[1] == relative_width(spec)
    numbers = relative_features(spec, batch, numbers=True)
    assert numbers.tolist() == [[2, 0, 0.5, -1.0, 1], [0, 1, 2.0, 3.0, 1]]  # as the paper has them on Peptides
    assert numbers.dtype == torch.float32


@pytest.mark.parametrize("kind", ["both", "categorical", "dense", "none", "coordinates"])
def test_relative_width_fits_every_kind_of_features(kind):
    spec = tiny_spec(kind=kind)
    batch = tiny_table(spec).batch(range(6))
    for numbers in (False, True):
        width = relative_width(spec, numbers)
        assert relative_features(spec, batch, numbers).shape == (batch.edge_index.shape[1], width)


GRAPHS, NODES = 2, 7


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
