"""Equation (13) against a float64 reference written node by node, and the options of the layers."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import softmax

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, TransformerAttention, size_blocks
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sfi_former import (
    DenseFlowAttention,
    ProximalOptions,
    SparseFlowAttention,
    sparse_flow,
    sparse_flow_edges,
)

DIM, HEADS = 6, 2


@pytest.fixture
def graphs():
    """A batch, its layout and nodes in float64; sizes differ, so that the batch is padded (and cut on a CPU)."""
    table = tiny_table(tiny_spec(), sizes=[5, 2, 9, 1])
    batch = table.batch(range(4))
    x = torch.randn(batch.num_nodes, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x, batch, DenseLayout.from_batch(batch)


def make(kind=SparseFlowAttention, **options):
    """A layer in float64 whose gamma, scale and shift are not their initial values."""
    torch.manual_seed(0)
    layer = kind(DIM, HEADS, **options).double().eval()
    with torch.no_grad():
        for name in ("log_gamma", "adjacency_weight", "scale", "shift"):
            parameter = getattr(layer, name)
            if parameter is not None:
                parameter.add_(torch.randn_like(parameter) * 0.5)
    return layer


def normalised_adjacency(batch, graph):
    start, end = batch.ptr[graph : graph + 2].tolist()
    n = end - start
    dense = torch.eye(n, dtype=torch.float64)
    for source, target in batch.edge_index.T.tolist():
        if start <= source < end:
            dense[target - start, source - start] = 1
    degree = dense.sum(1)
    return dense / (degree[:, None] * degree[None]).sqrt()


def maps(layer, rows):
    """Q, K, V, Q~, K~ `[H, n, d]` of one graph."""
    parts = []
    for heads in layer.projections:
        projected = rows @ heads.linear.weight.T + heads.linear.bias
        parts += projected.view(len(rows), heads.num_maps, HEADS, DIM).permute(1, 2, 0, 3)
    return parts


def reference(layer, x, batch, flow_of):
    """Equation (13) graph by graph and head by head; `flow_of(n, Q, K, Q~, K~)` gives one flow."""
    outputs = []
    for graph in range(batch.num_graphs):
        rows = x[batch.ptr[graph] : batch.ptr[graph + 1]]
        near, gamma = normalised_adjacency(batch, graph), layer.gamma
        q, k, v, *friction = maps(layer, rows)
        total = 0
        for head in range(HEADS):
            flow = flow_of(len(rows), q[head], k[head], *(part[head] for part in friction))
            mixing = (layer.adjacency_weight * near + gamma * flow) / (1 + gamma)
            w_out = layer.out_proj.weight[:, head * DIM : (head + 1) * DIM]
            total = total + mixing @ v[head] @ w_out.T
        outputs.append((total + layer.out_proj.bias) * layer.scale + layer.shift)
    return torch.cat(outputs)


@pytest.mark.parametrize("alpha", [0.1, None])
def test_sparse_layer_is_equation_13(graphs, alpha):
    x, batch, layout = graphs
    layer = make(penalty=2.0, alpha=alpha)

    def flow(n, q, k, friction_q, friction_k):
        resistance, friction = (-q @ k.T / DIM**0.5).softmax(-1), (friction_q @ friction_k.T / DIM**0.5).softmax(-1)
        return sparse_flow(resistance, friction, 2.0 / n, alpha)

    torch.testing.assert_close(layer(x, batch, layout), reference(layer, x, batch, flow))


def test_dense_layer_is_equation_13_with_softmax_attention(graphs):
    x, batch, layout = graphs
    layer = make(DenseFlowAttention)
    expected = reference(layer, x, batch, lambda n, q, k: (q @ k.T / DIM**0.5).softmax(-1))
    torch.testing.assert_close(layer(x, batch, layout), expected)


def test_without_friction_the_sparse_layer_is_the_dense_one(graphs):
    x, batch, layout = graphs
    dense, sparse = make(DenseFlowAttention), make(penalty=0.0, alpha=None)
    sparse.load_state_dict(dense.state_dict(), strict=False)
    torch.testing.assert_close(sparse(x, batch, layout), dense(x, batch, layout))


@pytest.mark.parametrize("kind", [DenseFlowAttention, SparseFlowAttention])
def test_an_untrained_layer_is_the_equation_without_guessed_parameters(graphs, kind):
    x, batch, layout = graphs
    torch.manual_seed(0)
    layer = kind(DIM, HEADS).double().eval()
    torch.manual_seed(0)
    bare = kind(DIM, HEADS, extra_parameters=False).double().eval()
    torch.testing.assert_close(layer(x, batch, layout), bare(x, batch, layout))
    assert bare.gamma == 1


def test_terms_alone(graphs):
    x, batch, layout = graphs
    both = make(penalty=2.0, extra_parameters=False)
    flow, near = (SparseFlowAttention(DIM, HEADS, 2.0, terms=t, extra_parameters=False) for t in ("flow", "adjacency"))
    flow.double().load_state_dict({k: v for k, v in both.state_dict().items() if k != "log_gamma"})
    near.double().out_proj.load_state_dict(both.out_proj.state_dict())
    rows = HEADS * DIM
    near.in_proj.linear.weight.data = both.in_proj.linear.weight.data[-rows:]
    near.in_proj.linear.bias.data = both.in_proj.linear.bias.data[-rows:]
    bias, gamma = both.out_proj.bias, both.gamma
    parts = [layer(x, batch, layout) - bias for layer in (near, flow)]
    torch.testing.assert_close(both(x, batch, layout) - bias, (parts[0] + gamma * parts[1]) / (1 + gamma))


def count(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("dim", "heads"), [(6, 2), (235, 4)])
def test_parameter_counts(dim, heads):
    sparse, dense = SparseFlowAttention(dim, heads), DenseFlowAttention(dim, heads)
    assert count(sparse) == 6 * heads * dim**2 + (5 * heads + 1) * dim + 2 * dim + 2
    assert count(dense) == 4 * heads * dim**2 + (3 * heads + 1) * dim + 2 * dim + 2
    assert count(sparse) - count(SparseFlowAttention(dim, heads, extra_parameters=False)) == 2 * dim + 1


def test_the_batch_maximum_is_an_option_that_couples_graphs(graphs, monkeypatch):
    x, batch, layout = graphs
    own, shared = make(penalty=3.0), make(penalty=3.0, penalty_size="batch")
    smaller, largest = slice(*batch.ptr[:2].tolist()), slice(*batch.ptr[2:4].tolist())
    with_own, with_shared = own(x, batch, layout), shared(x, batch, layout)
    torch.testing.assert_close(with_own[largest], with_shared[largest])
    torch.testing.assert_close(with_shared[smaller], make(penalty=3.0 * 5 / 9)(x, batch, layout)[smaller])
    assert not torch.allclose(with_own[smaller], with_shared[smaller])
    monkeypatch.setattr(size_blocks, "EXACT_ON", set())  # padded to a rounded size, as on a GPU
    torch.testing.assert_close(shared(x, batch), with_shared)


def test_a_number_of_nodes_for_all_graphs_keeps_flows_in_the_smallest(graphs):
    """With its own N a graph of one node has no flow, as its friction 1 exceeds alpha; the option sets N for all."""
    x, batch, layout = graphs
    traces = []
    for size in ("graph", 20):
        layer = make(penalty_size=size, terms="flow")
        layer._recorder = traces.append
        layer(x, batch, layout)
    own, fixed = (trace.attention for trace in traces)
    assert not own[3].any()
    torch.testing.assert_close(fixed[3], torch.full((HEADS, 1, 1), (0.1 - 1 / 20) / (1 + 0.1), dtype=torch.float64))
    layer = make(penalty=9 / 20, terms="flow")  # the graph of nine nodes has the same weight of friction by its own N
    layer._recorder = traces.append
    layer(x, batch, layout)
    torch.testing.assert_close(traces[2].attention[2], fixed[2])


def test_a_batch_of_pyg_without_a_layout_will_do(graphs):
    x, batch, layout = graphs
    sizes = batch.ptr.diff().tolist()
    parts = [
        Data(x=own, edge_index=batch.edge_index[:, (batch.batch == g)[batch.edge_index[0]]] - batch.ptr[g])
        for g, own in enumerate(x.split(sizes))
    ]
    for layer in (make(penalty=2.0), make(flow_graph="edges"), make(DenseFlowAttention)):
        plain = Batch.from_data_list(parts)
        torch.testing.assert_close(layer(plain.x, plain), layer(x, batch, layout))
        torch.testing.assert_close(layer(parts[0].x, parts[0]), layer(x, batch, layout)[: sizes[0]])


@pytest.mark.parametrize("friction", ["learned", "uniform"])
def test_friction_over_the_size_of_the_graph_is_in_double_precision(friction):
    x = torch.randn(3, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    graph = Data(x=x, edge_index=torch.tensor([[0, 1], [1, 0]]))
    by_size, by_number = (make(friction=friction, penalty_size=size)(x, graph) for size in ("graph", 3))
    torch.testing.assert_close(by_size, by_number, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"friction": "uniform"}, {"penalty_size": "batch"}, {"penalty_size": 4}])
def test_graphs_without_nodes_change_nothing(graphs, options):
    x, batch, _ = graphs
    edges = batch.edge_index[:, batch.batch[batch.edge_index[0]] == 0]
    one, none = Data(x=x[:5], edge_index=edges), Data(x=x[:0], edge_index=edges[:, :0])
    layer, rows = make(**options), x[:5].repeat(2, 1)
    expected = layer(rows, Batch.from_data_list([one, one]))
    torch.testing.assert_close(layer(rows, Batch.from_data_list([one, none, one, none])), expected)


def test_a_backward_pass_within_autocast_is_in_full_precision(graphs):
    x, batch, layout = graphs
    for kind in (SparseFlowAttention, DenseFlowAttention):
        layer = make(kind).float()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            layer(x.float(), batch, layout).float().square().sum().backward()
        inside = [p.grad.clone() for p in layer.parameters()]
        layer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = layer(x.float(), batch, layout).float().square().sum()
        loss.backward()
        for a, p in zip(inside, layer.parameters(), strict=True):
            assert torch.isfinite(a).all()
            torch.testing.assert_close(a, p.grad, rtol=0.1, atol=0.02 * float(p.grad.abs().max()) + 1e-3)


def test_traces_show_the_flow_and_what_it_mixes(graphs):
    x, batch, layout = graphs
    layer, traces = make(penalty=5.0, terms="flow"), []
    layer._recorder = traces.append
    out = layer(x, batch, layout)
    (trace,) = traces
    mixed = [
        torch.einsum("hnk,khd->nd", *pair)
        for pair in zip(trace.attention, trace.values.split([5, 2, 9, 1]), strict=True)
    ]
    constant = torch.cat(mixed) - out  # the rows of Z do not quite sum to one, so the bias of V is not quite constant
    sums = torch.cat([a.sum(-1).T for a in trace.attention])
    bias = layer.in_proj.linear.bias[-HEADS * DIM :].view(HEADS, DIM)
    w_out = layer.out_proj.weight.view(DIM, HEADS, DIM)
    of_bias = torch.einsum("nh,hd,ohd->no", sums, bias, w_out) + layer.out_proj.bias
    torch.testing.assert_close(-constant, of_bias * layer.scale + layer.shift)
    assert any((matrix == 0).any() for matrix in trace.attention)
    torch.testing.assert_close(trace.input, x, rtol=0, atol=0)
    assert trace.mixing_weight is None


def test_given_frictions_and_a_given_graph(graphs):
    x, batch, layout = graphs
    layer = make(penalty=2.0, alpha=None, friction="given", terms="flow")
    generator = torch.Generator().manual_seed(3)
    friction = torch.rand(4, HEADS, 9, 9, generator=generator, dtype=torch.float64)
    allowed = torch.rand(4, 1, 9, 9, generator=generator) < 0.6
    traces = []
    layer._recorder = traces.append
    layer(x, batch, layout, allowed, friction)
    for graph, (matrix, n) in enumerate(zip(traces[0].attention, (5, 2, 9, 1), strict=True)):
        q, k, _ = maps(layer, x[batch.ptr[graph] : batch.ptr[graph + 1]])
        mask = allowed[graph, :, :n, :n]
        resistance = (-q @ k.mT / DIM**0.5).masked_fill(~mask, -1e30).softmax(-1)
        torch.testing.assert_close(matrix, sparse_flow(resistance, friction[graph, :, :n, :n], 2.0 / n, None, mask))
        assert not matrix[~mask.expand_as(matrix)].any()
    for wrong, given in ((layer, None), (make(), friction)):
        with pytest.raises(BadInput, match="needs friction"):
            wrong(x, batch, layout, allowed, given)


def test_a_given_graph_goes_through_the_fused_solver_and_the_dense_layer(graphs):
    x, batch, layout = graphs
    allowed = torch.eye(9, dtype=torch.bool).expand(4, 1, 9, 9)  # every node draws on itself alone
    for layer in (make(penalty=0.0, alpha=None, terms="flow"), make(DenseFlowAttention, terms="flow")):
        value = layer.in_proj(x)[:, -HEADS * DIM :]
        expected = layer.out_proj(value) * layer.scale + layer.shift
        torch.testing.assert_close(layer(x, batch, layout, allowed), expected)


def test_a_flow_over_edges_is_the_solver_for_edges(graphs):
    x, batch, layout = graphs
    layer, traces = make(penalty=2.0, flow_graph="edges"), []
    layer._recorder = traces.append
    layer(x, batch, layout)
    loops = torch.arange(len(x)).expand(2, -1)
    source, target = torch.cat((batch.edge_index, loops), 1).unique(dim=1)
    nodes = [torch.cat([maps(layer, x[a:b])[i] for a, b in pairwise(batch.ptr.tolist())], 1) for i in range(5)]
    scores, tolls = ((nodes[i][:, target] * nodes[j][:, source]).sum(-1).T / DIM**0.5 for i, j in ((0, 1), (3, 4)))
    resistance, friction = softmax(-scores, target), softmax(tolls, target)
    sizes = batch.ptr.diff()[batch.batch]
    expected = sparse_flow_edges(resistance, friction, target, len(x), 2.0 / sizes, 0.1)
    for graph, matrix in enumerate(traces[0].attention):
        own = batch.batch[target] == graph
        dense = torch.zeros_like(matrix)
        dense[:, target[own] - batch.ptr[graph], source[own] - batch.ptr[graph]] = expected[own].T
        torch.testing.assert_close(matrix, dense)


@pytest.mark.parametrize("kind", [DenseFlowAttention, SparseFlowAttention])
def test_dropout_keeps_the_mean(kind):
    batch = tiny_table(tiny_spec(), sizes=[9]).batch([0] * 2000)
    x = torch.randn(9, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).repeat(2000, 1)
    layer, layout = make(kind, dropout=0.5), DenseLayout.from_batch(batch)
    expected = layer(x, batch, layout).view(2000, 9, DIM)
    torch.manual_seed(0)
    dropped = layer.train()(x, batch, layout).view(2000, 9, DIM)
    torch.testing.assert_close(dropped.mean(0), expected[0], rtol=0, atol=0.01)
    assert (dropped.std(0) > 1e-3).all()


def test_iteration_to_convergence_is_the_exact_layer(graphs):
    x, batch, layout = graphs
    exact = make(penalty=1.0)
    options = ProximalOptions(num_steps=400, start="uniform")
    iterated = make(penalty=1.0, solver="proximal", proximal=options)
    torch.testing.assert_close(iterated(x, batch, layout), exact(x, batch, layout), rtol=1e-5, atol=1e-6)


def test_a_random_start_does_not_depend_on_batch_mates(graphs):
    x, batch, layout = graphs
    layer = make(solver="proximal", proximal=ProximalOptions(num_steps=2))
    alone = tiny_table(tiny_spec(), sizes=[5, 2, 9, 1]).batch([0])
    rows = slice(*batch.ptr[:2].tolist())
    torch.testing.assert_close(layer(x[rows], alone, DenseLayout.from_batch(alone)), layer(x, batch, layout)[rows])
    other = make(solver="proximal", proximal=ProximalOptions(num_steps=2, seed=1))
    assert not torch.allclose(other(x, batch, layout), layer(x, batch, layout))


def test_an_iteration_with_negative_flows_shows_no_matrix(graphs):
    x, batch, layout = graphs
    traces = []
    for steps in (2, 400):
        layer = make(solver="proximal", proximal=ProximalOptions(num_steps=steps))
        layer._recorder = traces.append
        layer(x, batch, layout)
    early, late = traces
    assert early.attention is None
    assert len(late.attention) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_heads": 0}, "num_heads"),
        ({"penalty": -1.0}, "penalty"),
        ({"alpha": 0.0}, "alpha .* must be above 0"),
        ({"num_heads": 2.5}, "num_heads must be an integer"),
        ({"dropout": 1.5}, "dropout .* below 1, but got 1.5"),
        ({"penalty_size": 0}, "penalty_size must be an integer of at least 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"terms": "none"}, "terms must be"),
        ({"solver": "sort"}, "solver must be one of exact"),
        ({"penalty_size": "mean"}, "penalty_size"),
        ({"friction": "none"}, "friction must be"),
        ({"flow_graph": "tree"}, "flow_graph must be"),
        ({"solver": "proximal", "alpha": None}, "needs alpha"),
        ({"proximal": ProximalOptions()}, "proximal need solver: proximal"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(BadInput, match=message):
        SparseFlowAttention(DIM, **options)


def test_without_friction_in_heads_of_gps_it_is_the_attention_of_gps(graphs):
    """Set heads to a share of the width, no A~, no further parameters, lambda* = 0 and rows that sum to one."""
    x, batch, layout = graphs
    torch.manual_seed(0)
    ours = SparseFlowAttention(
        DIM, HEADS, penalty=0.0, alpha=None, terms="flow", extra_parameters=False, head_dim=DIM // HEADS
    ).double()
    gps = TransformerAttention(DIM, HEADS).double()
    gps.attention.in_proj.load_state_dict(ours.in_proj.linear.state_dict())
    gps.attention.out_proj.load_state_dict(ours.out_proj.state_dict())
    torch.testing.assert_close(ours(x, batch, layout), gps(x, batch, layout), atol=1e-12, rtol=1e-10)
    extra = sum(p.numel() for p in ours.parameters()) - sum(p.numel() for p in gps.parameters())
    assert extra == 2 * (DIM**2 + DIM)  # the maps of the friction


def test_a_width_of_heads_decides_the_parameters():
    """Five maps to heads and one back; the paper's heads are as wide as the nodes."""
    layer, width = SparseFlowAttention(DIM, HEADS, terms="flow", extra_parameters=False, head_dim=9), HEADS * 9
    assert sum(p.numel() for p in layer.parameters()) == 6 * DIM * width + 5 * width + DIM


@pytest.mark.parametrize("alpha", [0.1, 2.0])
def test_one_friction_for_all_links_shrinks_rows_and_makes_no_zeros(graphs, alpha):
    """Rows are softmax times `W (alpha - g) / (1 + alpha W)`, with W the sum of conductances and g = lambda* / N^2."""
    x, batch, layout = graphs
    layer = make(friction="uniform", alpha=alpha, terms="flow", extra_parameters=False)
    assert layer.friction_proj is None

    def flow_of(n, query, key):
        logits = query @ key.T / DIM**0.5
        conductance = 1 / torch.softmax(-logits, -1)
        total, friction = conductance.sum(-1, keepdim=True), 1 / n**2
        share = (total * (alpha - friction) / (1 + alpha * total)).clamp(min=0)
        return torch.softmax(logits, -1) * share

    outputs = []
    for graph in range(batch.num_graphs):
        rows = x[batch.ptr[graph] : batch.ptr[graph + 1]]
        query, key, value = maps(layer, rows)
        flows = torch.stack([flow_of(len(rows), query[head], key[head]) for head in range(HEADS)])
        outputs.append(layer.out_proj((flows @ value).transpose(0, 1).flatten(1)))
    # lambda* / N is a number in single precision
    torch.testing.assert_close(layer(x, batch, layout), torch.cat(outputs), atol=1e-8, rtol=1e-6)
