"""GRIT: its equations against loops over pairs, walks, edges, and the published counts."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench import GraphTable
from graphbench.errors import BadInput
from graphbench.testing import encode
from graphbench_baselines import GRIT
from graphbench_baselines.grit import signed_root

DIM, HEADS, STEPS, P, WEIGHTS = 8, 2, 4, 0.4, 0.3

#: Published counts; those of CLUSTER and Peptides-struct are for options other than the released configurations.
COUNTS = {
    "zinc": 473_473,
    "mnist": 102_138,
    "cifar10": 99_486,
    "pattern": 477_953,
    "cluster": None,
    "peptides-func": 443_338,
    "peptides-struct": None,
}
#: Rows of feature tables that this platform has beyond those of the authors: atom types of ZINC that do not occur in
#: its 12,000 molecules, and OGB's new chirality tag.
MORE_ROWS = {"zinc": 7, "peptides-func": 1}


@pytest.mark.parametrize("name", COUNTS)
def test_published_counts(recipe, name):
    found = recipe(f"grit/{name}")
    assert found.config["expected"]["parameters"] == found.parameters
    if COUNTS[name] is not None:
        assert found.parameters - MORE_ROWS.get(name, 0) * found.options["hidden_dim"] == COUNTS[name]


def batch_norm(x):
    """Apply a batch norm with initial weights and the statistics of the rows."""
    return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()


def walks(graph):
    """(D^-1 A)^k for k = 0 .. STEPS - 1, `[n, n, STEPS]`, and the out-degrees."""
    n = graph["num_nodes"]
    adjacency = torch.zeros(n, n, dtype=torch.float64)
    for source, target in graph["edge_index"].T.tolist():
        adjacency[source, target] += 1
    transition = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    return torch.stack([torch.linalg.matrix_power(transition, k) for k in range(STEPS)], dim=-1), adjacency.sum(1)


def attend(attention, x, e, degree):
    """Nodes `[n, DIM]` that attention gives one graph, and its vectors u of the pairs `[n, n, DIM]`; no dropout."""
    n, width = len(x), DIM // HEADS
    q, k, v = attention.query_map(x), attention.key_map(x), attention.value_map(x)
    steer = attention.pair_map(e)
    mixed, vectors = torch.zeros_like(x), torch.zeros_like(e)
    for head in range(HEADS):
        part = slice(head * width, (head + 1) * width)
        scale = steer[..., 2 * head * width : (2 * head + 1) * width]
        shift = steer[..., (2 * head + 1) * width : (2 * head + 2) * width]
        for i in range(n):
            u = [(q[i, part] + k[j, part]) * scale[i, j] for j in range(n)]
            u = [(a.clamp(min=0).sqrt() - (-a).clamp(min=0).sqrt() + shift[i, j]).relu() for j, a in enumerate(u)]
            logits = torch.stack([(a * attention.score[:, head, 0]).sum().clamp(-5, 5) for a in u])
            weights = logits.exp() / logits.exp().sum()
            for j in range(n):
                vectors[i, j, part] = u[j]
                mixed[i, part] += weights[j] * (v[j, part] + u[j] @ attention.pair_value[:, head])
    plain, scaled = attention.degree[0].T
    return attention.node_out(mixed * plain + (1 + degree).log()[:, None] * mixed * scaled), vectors


@pytest.fixture
def sample(spec, graphs):
    """A model in float64 that trains, with all its norms, and a batch with walks."""
    torch.manual_seed(0)
    options = {"hidden_dim": DIM, "num_layers": 2, "num_heads": HEADS, "num_steps": STEPS}
    model = GRIT(spec, **options, attention_dropout=0.0).double().train()
    table = encode(GraphTable.from_graphs(graphs), model.required_encodings())
    return model, table.batch(range(len(graphs)))


def test_grit_agrees_with_its_equations_pair_by_pair(sample, graphs):
    """Walks, edges into pairs, both updates, degree scalers and batch norms over all pairs of all graphs."""
    model, batch = sample
    nodes, edges = model.node_encoder(batch), model.edge_encoder(batch)
    xs, es, degrees, first = [], [], [], 0
    for number, graph in enumerate(graphs):
        power, degree = walks(graph)
        degrees.append(degree)
        start = int(batch.ptr[number])
        xs.append(nodes[start : start + len(degree)] + power.diagonal().T @ model.node_walks.weight.T)
        e = power @ model.pair_walks.weight.T
        for j, i in graph["edge_index"].T.tolist():
            e = e.index_put((torch.tensor(i), torch.tensor(j)), edges[first], accumulate=True)
            first += 1
        es.append(e)
    for layer in model.layers:
        out = [attend(layer.attention, *part) for part in zip(xs, es, degrees, strict=True)]
        x = batch_norm(torch.cat(xs) + torch.cat([mixed for mixed, _ in out]))
        x = batch_norm(x + layer.feed_forward.contract(layer.feed_forward.expand(x).relu()))
        sizes = [len(part) for part in xs]
        renewed = [(e + layer.attention.pair_out(u)).flatten(0, 1) for e, (_, u) in zip(es, out, strict=True)]
        pair = batch_norm(torch.cat(renewed)).split([n * n for n in sizes])
        xs = list(x.split(sizes))
        es = [part.view(n, n, DIM) for part, n in zip(pair, sizes, strict=True)]
    torch.testing.assert_close(model(batch).node, torch.cat(xs), atol=1e-6, rtol=1e-6)  # walks are kept in float32


def test_dropout_stands_where_the_released_code_has_it(spec, graphs, monkeypatch):
    """On weights; on the output of the heads, before degrees and O; on pairs, before O_e; inside the network."""
    places = []

    def seen(x, p=0.5, training=True, inplace=False):
        if p:
            places.append((tuple(x.shape), p))
        return x

    monkeypatch.setattr(F, "dropout", seen)
    model = GRIT(spec, DIM, 1, HEADS, STEPS, dropout=P, attention_dropout=WEIGHTS)
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch([0, 3])
    model(batch)
    n, pairs = 5 + 4, 25 + 16
    assert places == [((pairs, HEADS), WEIGHTS), ((n, DIM), P), ((pairs, DIM), P), ((n, 2 * DIM), P)]


def test_signed_root_has_a_finite_gradient_at_zero():
    x = torch.tensor([0.0, 0.25, -0.25], requires_grad=True)
    signed_root(x).sum().backward()
    assert torch.equal(x.grad, torch.tensor([0.0, 1.0, 1.0]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 7}, "num_heads=7 and hidden_dim=64"),
        ({"num_steps": 1}, "num_steps"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        GRIT(spec, **options)
