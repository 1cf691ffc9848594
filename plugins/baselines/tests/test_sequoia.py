"""Sequoia: its parts against loops over nodes and dense products, where gradients go, and shipped configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch_geometric.data import Data

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench.testing import encode
from graphbench_baselines import RandomWalkPE, Sequoia
from graphbench_baselines.sequoia import assign, cluster_edges, clusters_of, link_loss

DIM, HEADS, CLUSTERS = 8, 2, 3
CONFIGS = Path(__file__).parents[1] / "configs" / "sequoia"
RECIPES = [f"sequoia/{path.stem}" for path in sorted(CONFIGS.glob("*.yaml"))]
LAPLACIAN = {
    name: "sequoia/overlays/pascalvoc-sp-lappe" if "pascalvoc" in name else "sequoia/overlays/lappe" for name in RECIPES
}


@pytest.fixture
def dense_spec():
    """Edges with only dense features, as in superpixels."""
    return BenchmarkSpec("Dense", "graph-regression", Features(dense=2), Features(dense=2), "MAE", False, "L1")


@pytest.fixture
def dense_batch(graphs):
    """The same graphs with numbers on their edges."""
    generator = torch.Generator().manual_seed(2)
    for graph in graphs:
        graph["edge_dense"] = torch.randn(len(graph.pop("edge_attr")), 2, generator=generator)
        del graph["x"]
    return GraphTable.from_graphs(graphs).batch(range(len(graphs)))


def gated(layer, x, edges, vectors):
    """GatedGCN by loops over edges (source, target), without norm."""
    own, sent, at_target, at_source = (
        F.linear(x, w, b) for w, b in zip(layer.node_maps.weight.chunk(4), layer.node_maps.bias.chunk(4), strict=True)
    )
    total, weight = torch.zeros_like(x), torch.full_like(x, 1e-6)
    for (j, i), vector in zip(edges, vectors, strict=True):
        gate = torch.sigmoid(at_target[i] + at_source[j] + layer.edge_map(vector))
        total[i] += gate * sent[j]
        weight[i] += gate
    return x + (own + total / weight).clamp(min=0)


def attended(layer, x, cluster):
    """Attention of each node to the nodes of its cluster, by loops."""
    q, k, v = (part.unflatten(-1, (HEADS, -1)) for part in layer.in_proj(x).chunk(3, dim=-1))
    mixed = torch.zeros_like(q)
    for i in range(len(x)):
        near = [j for j in range(len(x)) if cluster[j] == cluster[i]]
        for head in range(HEADS):
            weights = torch.stack([q[i, head] @ k[j, head] / (DIM // HEADS) ** 0.5 for j in near]).softmax(0)
            mixed[i, head] = sum(w * v[j, head] for w, j in zip(weights, near, strict=True))
    return layer.out_proj(mixed.flatten(1))


def gps(layer, x, edges, vectors, cluster=None):
    """A GPS layer without norms, of one graph."""
    joined = gated(layer.local, x, edges, vectors)
    if cluster is not None:
        joined = joined + x + attended(layer.attention, x, cluster)
    return joined + layer.feed_forward(joined)


def test_sequoia_agrees_with_its_equations_graph_by_graph(spec, graphs):
    """Everything except the norms, in float64 and evaluation, also for graphs of one node and without edges."""
    torch.manual_seed(0)
    options = {"hidden_dim": DIM, "num_heads": HEADS, "num_clusters": CLUSTERS, "norm": "none"}
    model = Sequoia(spec, **options, positional_encoders=[RandomWalkPE(4)]).double().eval()
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    for name in ("rwse", "x_dense"):
        batch[name] = batch[name].double()
    x = model.node_encoder(batch) + (batch.rwse @ model.position_map.weight.T).clamp(min=0)
    edge, found = model.edge_encoder(batch), model(batch)
    assert found.penalty is None
    several = 0
    for graph in range(batch.num_graphs):
        start, stop = batch.ptr[graph].item(), batch.ptr[graph + 1].item()
        own = [(e, (j - start, i - start)) for e, (j, i) in enumerate(batch.edge_index.T.tolist()) if start <= i < stop]
        edges, vectors, nodes = [pair for _, pair in own], [edge[e] for e, _ in own], x[start:stop]
        cluster = model.logits(gps(model.before, nodes, edges, vectors)).argmax(-1).tolist()
        several += len(set(cluster)) > 1
        mixed = gps(model.within, nodes, edges, vectors, cluster)
        between = {}
        for (j, i), vector in zip(edges, vectors, strict=True):
            if cluster[j] != cluster[i]:
                between.setdefault((cluster[j], cluster[i]), []).append(vector)
        sums = torch.zeros(CLUSTERS, DIM, dtype=torch.float64)
        for c, row in zip(cluster, mixed, strict=True):
            sums[c] += row
        means = [sum(vectors) / len(vectors) for vectors in between.values()]
        top = gps(model.among, sums, list(between), means)
        torch.testing.assert_close(found.node[start:stop], mixed + top[cluster], atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(found.graph[graph], top.sum(0), atol=1e-9, rtol=1e-9)
    assert several > 1, "the graphs of this test must have several clusters"


def test_draws_follow_the_softmax_and_its_gradient():
    torch.manual_seed(0)
    logits = torch.tensor([0.5, -1.0, 1.5, 0.0])
    drawn = assign(logits.expand(40_000, -1), training=True)
    assert set(drawn.flatten().tolist()) == {0.0, 1.0}
    assert torch.equal(drawn.sum(1), torch.ones(40_000))
    torch.testing.assert_close(drawn.mean(0), logits.softmax(0), atol=0.01, rtol=0)

    logits, away = torch.randn(6, 4, dtype=torch.float64, requires_grad=True), torch.randn(6, 4, dtype=torch.float64)
    chosen = assign(logits, training=False)
    assert torch.equal(chosen, F.one_hot(logits.argmax(1), 4).double())
    (found,) = torch.autograd.grad((chosen * away).sum(), logits)
    (expected,) = torch.autograd.grad((logits.softmax(1) * away).sum(), logits)
    torch.testing.assert_close(found, expected)


def test_clusters_hold_the_nodes_of_one_graph_together(batch):
    torch.manual_seed(0)
    choice = torch.randint(CLUSTERS, (len(batch.batch),))
    found = clusters_of(F.one_hot(choice, CLUSTERS).double(), batch, DenseLayout.from_batch(batch))
    pairs = zip(batch.batch.tolist(), choice.tolist(), strict=True)
    assert found.number.tolist() == [CLUSTERS * graph + cluster for graph, cluster in pairs]
    assert torch.equal(found.order[found.place], torch.arange(len(choice)))
    groups = [group.unique().numel() for group in found.number[found.order].split(found.layout.ptr.diff().tolist())]
    assert groups == [1] * len(found.number.unique())
    assert torch.equal(found.weight, torch.ones(len(choice)).double())


def test_edges_between_clusters_are_means_of_dense_products(graphs):
    """Against `S^T A S` and `S^T E S` of one graph; gradients pass through the weights of the ends."""
    torch.manual_seed(0)
    index, count = graphs[4]["edge_index"], graphs[4]["num_nodes"]
    vectors = torch.randn(index.shape[1], 2, dtype=torch.float64)
    number = torch.arange(count) % CLUSTERS
    weight = torch.rand(count, dtype=torch.float64, requires_grad=True)
    graph = Data(edge_index=index, batch=torch.zeros_like(number))
    clusters = clusters_of(F.one_hot(number, CLUSTERS), graph, DenseLayout.from_batch(graph))
    pairs, (found, present) = clusters.edge_index, cluster_edges(index, vectors, weight, clusters)

    dense = F.one_hot(number, CLUSTERS).double() * weight[:, None]
    adjacency, tensor = torch.zeros(count, count).double(), torch.zeros(count, count, 2).double()
    for (j, i), vector in zip(index.T.tolist(), vectors, strict=True):
        adjacency[j, i] += 1
        tensor[j, i] += vector
    totals = (dense.T @ adjacency @ dense) * (1 - torch.eye(CLUSTERS).double())
    expected = torch.einsum("mc,mnk,nd->cdk", dense, tensor, dense)[tuple(pairs)] / totals[tuple(pairs)][:, None]
    assert pairs.T.tolist() == totals.nonzero().tolist()
    assert torch.equal(present, torch.ones(len(found), 1).double())
    torch.testing.assert_close(found, expected)
    away = torch.randn_like(found)
    gradients = [torch.autograd.grad((part * away).sum(), weight, retain_graph=True)[0] for part in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_sizes_that_follow_from_weights_need_not_be_read(monkeypatch, spec, batch, dense_spec, dense_batch):
    """As on a GPU and in a compiled program: the same outputs and gradients in float64, through all batch norms."""
    torch.manual_seed(0)
    for specification, graphs in ((spec, batch), (dense_spec, dense_batch)):
        options = {"hidden_dim": DIM, "num_heads": HEADS, "num_clusters": CLUSTERS, "attention_dropout": 0.0}
        model, graphs = Sequoia(specification, **options).double(), graphs.clone()
        for name in ("x_dense", "edge_dense"):
            if name in graphs:
                graphs[name] = graphs[name].double()
        results = []
        for reads in (True, False):
            monkeypatch.setattr(torch.compiler, "is_compiling", lambda reads=reads: not reads)
            torch.manual_seed(1)  # of the draws
            found = model(graphs)
            parts = (found.node, found.edge, found.graph, found.penalty)
            loss = sum(part.square().sum() for part in parts)
            gradients = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True, materialize_grads=True)
            results.append((*parts, *gradients))
        torch.testing.assert_close(*results, atol=1e-9, rtol=1e-9)


def test_link_loss_is_the_norm_of_dense_matrices(batch):
    """With self-loops and parallel edges; value and gradient in float64."""
    torch.manual_seed(0)
    choice = torch.randint(CLUSTERS, (len(batch.batch),))
    assignment = F.one_hot(choice, CLUSTERS).double().requires_grad_()
    found = link_loss(assignment, batch, DenseLayout.from_batch(batch))
    losses = []
    for start, stop in zip(batch.ptr[:-1].tolist(), batch.ptr[1:].tolist(), strict=True):
        adjacency, own = torch.zeros(stop - start, stop - start).double(), assignment[start:stop]
        for j, i in batch.edge_index.T.tolist():
            if start <= i < stop:
                adjacency[j - start, i - start] += 1
        gap = adjacency - (own @ own.T - torch.eye(stop - start).double())
        losses.append(torch.linalg.norm(gap) / (stop - start) ** 2)
    expected = torch.stack(losses).mean()
    torch.testing.assert_close(found, expected)
    assert found > 0.1
    gradients = [torch.autograd.grad(part, assignment)[0] for part in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_link_loss_of_perfect_clusters_is_zero_without_gradient():
    """Two pairs of neighbours, each in a cluster; a single node has no other choice."""
    graph = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]]), batch=torch.tensor([0, 0, 0, 0, 1]))
    assignment = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    loss = link_loss(assignment, graph, DenseLayout.from_batch(graph))
    loss.backward()
    assert loss == 0
    assert torch.equal(assignment.grad, torch.zeros(5, 2))


def test_training_on_the_link_loss_alone_puts_neighbours_together(spec):
    """Four triangles without an edge between them; after training, clusters are these, for most initial weights."""
    corners = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    kind = torch.arange(12) // 3
    graph = {
        "num_nodes": 12,
        "edge_index": torch.cat([corners + 3 * part for part in range(4)], dim=1),
        "x": torch.stack([kind, kind % 3], dim=1),
        "x_dense": torch.zeros(12, 2),
        "edge_attr": torch.zeros(24, 1, dtype=torch.int64),
        "y": torch.zeros(1),
    }
    batch = GraphTable.from_graphs([graph] * 4).batch(range(4))

    def trained(seed):
        torch.manual_seed(seed)
        model = Sequoia(spec, hidden_dim=16, num_clusters=4)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(150):
            optimizer.zero_grad()
            model(batch).penalty.backward()
            optimizer.step()
        model.eval()
        x, edge = model.node_encoder(batch), model.edge_encoder(batch)
        logits = model.logits(model.before(x, edge, batch)[0])
        return float(link_loss(assign(logits, training=False), batch, DenseLayout.from_batch(batch)).detach())

    # Rounding decides for which: one in seven joins two triangles in one cluster for good.
    assert sorted(trained(seed) for seed in range(3))[1] == 0


def test_clusters_learn_from_dense_edges_and_from_the_link_loss(spec, batch, dense_spec, dense_batch):
    """Categorical edge features are averaged without gradient, as the released code has none."""
    for specification, graphs, link_weight, learns in (
        (spec, batch, 0.0, False),
        (spec, batch, 1.0, True),
        (dense_spec, dense_batch, 0.0, True),
    ):
        torch.manual_seed(0)
        model = Sequoia(specification, hidden_dim=DIM, num_clusters=CLUSTERS, link_weight=link_weight)
        found = model(graphs)
        assert (found.penalty is None) == (link_weight == 0)
        loss = found.graph.square().sum()
        (loss if found.penalty is None else loss + found.penalty).backward()
        gradient = model.before.local.node_maps.weight.grad
        assert (gradient is not None and gradient.abs().max().item() > 0) == learns


def test_traces_show_attention_within_clusters(spec, batch):
    """`sum_h A_h V_h` and the biases are the output of the layer, and no node attends to a different cluster."""
    torch.manual_seed(0)
    model = Sequoia(spec, hidden_dim=DIM, num_heads=HEADS, num_clusters=CLUSTERS).eval()
    with record(model) as traces:
        model(batch)
    (trace,) = traces
    layer = model.within.attention
    bias = layer.in_proj.bias.chunk(3)[2] @ layer.out_proj.weight.T + layer.out_proj.bias
    x, _ = model.before(model.node_encoder(batch), model.edge_encoder(batch), batch)
    assignment = assign(model.logits(x), training=False)
    for graph, matrix in enumerate(trace.attention):
        rows = slice(batch.ptr[graph], batch.ptr[graph + 1])
        mixed = torch.einsum("hij,jhd->id", matrix, trace.values[rows]) + bias
        torch.testing.assert_close(mixed, trace.tokens[rows], atol=1e-5, rtol=1e-4)
        own = assignment[rows]
        assert torch.equal(matrix > 0, (own @ own.T > 0).expand(HEADS, -1, -1))


def test_training_draws_clusters_and_evaluation_does_not(spec, batch):
    torch.manual_seed(0)
    model = Sequoia(spec, hidden_dim=DIM, num_clusters=CLUSTERS, attention_dropout=0.0)
    assert not torch.equal(model(batch).graph, model(batch).graph)
    model.eval()
    assert torch.equal(model(batch).graph, model(batch).graph)


@pytest.mark.parametrize("name", RECIPES)
def test_configurations_have_the_parameters_they_expect(recipe, name):
    found, other = recipe(name), recipe(name, LAPLACIAN[name])
    assert found.config["expected"]["parameters"] == found.parameters
    (variant,) = found.config["expected"]["variants"].values()
    assert variant["parameters"] == other.parameters


def test_peptides_has_the_parameters_that_the_authors_log(recipe):
    """The authors have 346,206: two unused batch norms, one of the outputs, and one in the head instead of a bias."""
    unused, head = 2 * 2 * 96 + 2 * 10, 2 * 96 - 96
    assert recipe("sequoia/peptides-func").parameters + unused + head == 346_206


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 7}, "num_heads=7 and hidden_dim=96"),
        ({"num_clusters": 0}, "num_clusters"),
        ({"link_weight": -1.0}, "link_weight"),
        ({"norm": "instance"}, "norm must be one of"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        Sequoia(spec, **options)
