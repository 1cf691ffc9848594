import pytest
import torch

from graphbench import BenchmarkSpec, Features, GraphTable, PositionalEncoder
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench_baselines import GT
from graphbench_baselines.gt import EdgeAttention

DIM, HEADS = 8, 2


class Raw(PositionalEncoder):
    """A constant position without parameters."""

    def __init__(self, dim, value=0.0):
        super().__init__()
        self.dim, self.value = dim, value

    def forward(self, batch):
        return torch.full((batch.num_nodes, self.dim), self.value)


def molecules(node_types):
    return BenchmarkSpec("M", "graph-regression", Features((node_types,)), Features((4,)), "MAE", False, "L1")


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("node_types", "position_dim", "published"), [(20, 6, 800_771), (15, 3, 799_747)], ids=["ZINC", "QM9"]
)
def test_published_parameter_counts(node_types, position_dim, published):
    model = GT(molecules(node_types), positional_encoders=[Raw(position_dim)], released=True)
    assert count(model) + count(HeadConfig(2, "output").mlp(128, 1)) == published


def test_released_layers_carry_two_maps_more():
    released, lean = GT(molecules(20), released=True), GT(molecules(20))
    assert count(released.layers[0]) == 199_168
    assert count(released.layers[0]) - count(lean.layers[0]) == 2 * (128**2 + 128)


def test_unused_maps_do_not_change_the_output(spec, batch):
    torch.manual_seed(0)
    released = GT(spec, hidden_dim=DIM, num_heads=HEADS, released=True).eval()
    lean = GT(spec, hidden_dim=DIM, num_heads=HEADS).eval()
    lean.load_state_dict(released.state_dict(), strict=False)
    assert torch.equal(released(batch).node, lean(batch).node)


def inputs(batch):
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=generator)
    return x, 3 * torch.randn(batch.edge_index.shape[1], DIM, dtype=torch.float64, generator=generator)


def make_attention():
    torch.manual_seed(0)
    return EdgeAttention(DIM, HEADS).double()


def test_attention_agrees_with_the_equations(batch):
    layer = make_attention()
    x, edge = inputs(batch)
    width = DIM // HEADS
    q, k, v = (part.view(-1, HEADS, width) for part in layer.qkv_map(x).chunk(3, dim=1))
    e = layer.edge_map(edge).view(-1, HEADS, width)
    scores = [q[i] * k[j] * e[n] / width**0.5 for n, (j, i) in enumerate(batch.edge_index.t().tolist())]
    mixed = torch.zeros(batch.num_nodes, HEADS, width, dtype=torch.float64)
    for node in range(batch.num_nodes):
        incoming = [n for n, i in enumerate(batch.edge_index[1].tolist()) if i == node]
        if incoming:
            logits = torch.stack([scores[n].sum(-1).clamp(-5, 5) for n in incoming])
            weights = logits.softmax(0)
            sources = batch.edge_index[0][incoming]
            mixed[node] = (weights[..., None] * v[sources]).sum(0)
    out, new_edge = layer(x, edge, batch)
    torch.testing.assert_close(out, layer.node_out(mixed.flatten(1)), atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(new_edge, layer.edge_out(torch.stack(scores).flatten(1)), atol=1e-12, rtol=1e-10)


def test_dropout_stands_where_the_authors_have_it(spec, batch, fixed_dropout):
    """Before the output map of attention and between the maps of the feed-forward network, and nowhere else."""
    torch.manual_seed(0)
    p, norm = 0.4, lambda x: (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    model = GT(spec, hidden_dim=DIM, num_heads=HEADS, num_layers=2, dropout=p).double().train()
    x, edge = model.node_encoder(batch), model.edge_encoder(batch)
    source, target = batch.edge_index
    for layer in model.layers:
        attention = layer.attention
        q, k, v = (part.view(-1, HEADS, DIM // HEADS) for part in attention.qkv_map(x).chunk(3, dim=1))
        e = attention.edge_map(edge).view(-1, HEADS, DIM // HEADS)
        scores = q[target] * k[source] * e / (DIM // HEADS) ** 0.5
        share = scores.sum(-1).clamp(-5, 5).exp()[..., None]
        total, mixed = torch.zeros(len(x), HEADS, 1).double(), torch.zeros_like(v)
        for number, (j, i) in enumerate(batch.edge_index.T.tolist()):
            total[i] += share[number]
            mixed[i] += share[number] * v[j]
        mixed = torch.where(total > 0, mixed / total, 0.0)
        x = norm(x + attention.node_out(fixed_dropout(mixed.flatten(1), p)))
        edge = norm(edge + attention.edge_out(fixed_dropout(scores.flatten(1), p)))
        x = norm(x + layer.node_ffn.contract(fixed_dropout(layer.node_ffn.expand(x).relu(), p)))
        edge = norm(edge + layer.edge_ffn.contract(fixed_dropout(layer.edge_ffn.expand(edge).relu(), p)))
    found = model(batch)
    torch.testing.assert_close(found.node, x, atol=1e-10, rtol=1e-10)
    torch.testing.assert_close(found.edge, edge, atol=1e-10, rtol=1e-10)


def test_large_logits_are_clamped(batch):
    layer = make_attention()
    x, edge = inputs(batch)
    records = []
    layer._recorder = records.append
    layer(100 * x, 100 * edge, batch)
    weights = torch.cat([matrix.flatten() for matrix in records[0].attention])
    degree = torch.bincount(batch.edge_index[1]).max()
    assert weights[weights > 0].min() >= 1 / (1 + (degree - 1) * torch.e**10) - 1e-12


def test_trace_of_edge_attention_explains_the_output(batch):
    layer = make_attention()
    records = []
    layer._recorder = records.append
    x, edge = inputs(batch)
    out, _ = layer(x, edge, batch)
    (trace,) = records
    has_neighbours = torch.bincount(batch.edge_index[1], minlength=batch.num_nodes) > 0
    value_bias = layer.qkv_map.bias[2 * DIM :]
    constant = layer.node_out(torch.zeros(DIM).double())
    through = layer.node_out(value_bias) - constant
    for graph, weights in enumerate(trace.attention):
        rows = slice(batch.ptr[graph], batch.ptr[graph + 1])
        some = has_neighbours[rows].double()
        torch.testing.assert_close(weights.sum(-1), some.expand(HEADS, -1))
        mixed = torch.einsum("hij,jho->io", weights, trace.values[rows])
        torch.testing.assert_close(mixed + some[:, None] * through + constant, out[rows], atol=1e-12, rtol=1e-10)
    assert trace.num_nodes.tolist() == batch.ptr.diff().tolist()


def test_listening_changes_no_output(batch):
    layer = make_attention()
    x, edge = inputs(batch)
    quiet, _ = layer(x, edge, batch)
    layer._recorder = lambda trace: None
    assert torch.equal(layer(x, edge, batch)[0], quiet)


def test_positions_are_mapped_and_added(spec, batch):
    torch.manual_seed(0)
    model = GT(spec, hidden_dim=DIM, num_heads=HEADS, num_layers=1, positional_encoders=[Raw(2, 1.0), Raw(1, 1.0)])
    assert model.position_map.in_features == 3
    model.eval()
    before = model(batch).node
    torch.nn.init.zeros_(model.position_map.weight)
    torch.nn.init.zeros_(model.position_map.bias)
    bare = GT(spec, hidden_dim=DIM, num_heads=HEADS, num_layers=1).eval()
    bare.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model(batch).node, bare(batch).node)
    assert not torch.allclose(before, bare(batch).node)


def test_feed_forward_width_is_an_option(spec):
    wide, narrow = (GT(spec, hidden_dim=DIM, num_heads=HEADS, num_layers=1, ffn_dim=f) for f in (16, None))
    assert count(wide) - count(narrow) == 2 * (2 * DIM + 1) * (16 - DIM)


def test_gt_heads_must_divide_the_width(spec):
    with pytest.raises(BadInput, match="num_heads=3 and hidden_dim=8"):
        GT(spec, hidden_dim=DIM, num_heads=3)


def test_full_attention_is_that_of_complete_graphs(graphs):
    """Edges and their features have no effect; every other node of the graph has one."""
    torch.manual_seed(0)
    spec = BenchmarkSpec("Tiny", "graph-regression", Features((7, 3), dense=2), Features(), "MAE", False, "L1")
    sparse = GT(spec, hidden_dim=8, num_layers=2, num_heads=2).double().eval()
    full = GT(spec, hidden_dim=8, num_layers=2, num_heads=2, full=True).double().eval()
    full.load_state_dict(sparse.state_dict())
    complete = []
    for graph in graphs:
        pairs = [(j, i) for i in range(graph["num_nodes"]) for j in range(graph["num_nodes"]) if i != j]
        edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
        complete.append(graph | {"edge_index": edges, "edge_attr": torch.zeros(len(pairs), 1, dtype=torch.int64)})
    given, dense = (GraphTable.from_graphs(part).batch(range(len(graphs))) for part in (graphs, complete))
    found = full(given)
    assert found.edge is None
    torch.testing.assert_close(found.node, sparse(dense).node, atol=1e-10, rtol=1e-10)


def test_attention_without_edge_vectors_agrees_with_its_equation(batch):
    torch.manual_seed(0)
    attention = EdgeAttention(8, 2, bias=False, edges=False).double()
    x = torch.randn(batch.num_nodes, 8, dtype=torch.float64)
    q, k, v = (x @ weight.T for weight in attention.qkv_map.weight.chunk(3))
    expected = torch.zeros_like(x)
    for head in (slice(0, 4), slice(4, 8)):
        for i in range(len(x)):
            near = batch.edge_index[0, batch.edge_index[1] == i]
            weights = (k[near, head] @ q[i, head] / 2.0).clamp(-5, 5).softmax(0)
            expected[i, head] = weights @ v[near, head]
    found, edge = attention(x, None, batch)
    assert edge is None
    torch.testing.assert_close(found, attention.node_out(expected), atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "published", "differs"),
    [("zinc", 588_929, 0), ("cluster", 524_026, 0), ("pattern", 522_982, 20 + 1)],
)
def test_counts_of_the_first_paper(recipe, name, published, differs):
    """For edges and for all pairs; PATTERN has two logits there, this platform one for two classes."""
    found = recipe(f"gt/{name}")
    expected = found.config["expected"]
    assert expected["parameters"] == found.parameters
    assert found.parameters + differs == published
    full = GT(found.spec, **{k: v for k, v in found.options.items() if k != "positional_encoders"}, full=True)
    over_edges = GT(found.spec, **{k: v for k, v in found.options.items() if k != "positional_encoders"})
    rows = sum(p.numel() for p in over_edges.parameters()) - sum(p.numel() for p in full.parameters())
    assert expected["variants"]["full"]["parameters"] == found.parameters - rows
