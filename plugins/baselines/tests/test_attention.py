from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from graphbench import GraphTable
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, size_blocks
from graphbench.testing import encode, tiny_batch, tiny_spec
from graphbench_baselines import GPS, SAT, Graphormer
from graphbench_baselines.attention import GateFusion, ReAttention, StructuredAttention

HEADS, WIDTH = 3, 4
SMALL = {"hidden_dim": 16, "num_layers": 3, "num_heads": 4, "fusion": True, "re_attention": True}


@pytest.fixture
def ragged(monkeypatch):
    """Rows of graphs of 4, 1, 9 and 2 nodes, and the layout that splits them into blocks."""
    monkeypatch.setattr(size_blocks, "BLOCK_COST", 0)
    sizes = torch.tensor([4, 1, 9, 2])
    ptr = torch.cat([torch.zeros(1, dtype=torch.long), sizes.cumsum(0)])
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(16, HEADS * WIDTH, dtype=torch.float64, generator=generator)
    layout = DenseLayout.from_rows(torch.repeat_interleave(torch.arange(4), sizes), ptr, 9)
    assert len(layout.blocks) > 1
    return x, layout


def make_attention(**options):
    torch.manual_seed(0)
    layer = StructuredAttention(HEADS * WIDTH, HEADS, **options).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return layer


def split_heads(x):
    return x.unflatten(-1, (HEADS, WIDTH)).transpose(0, 1)


def loop_attention(layer, x, structure, mix=None):
    """One graph: attention by its definition, `mix` applied to the weights of each pair of nodes."""
    q, k = (split_heads(part) for part in layer.qk_map(structure).chunk(2, dim=-1))
    v = split_heads(layer.v_map(x))
    n = len(x)
    weights = torch.stack([
        torch.stack([torch.stack([q[h, i] @ k[h, j] for j in range(n)]).div(WIDTH**0.5).softmax(0) for i in range(n)])
        for h in range(HEADS)
    ])  # fmt: skip
    weights = weights if mix is None else mix(weights)
    mixed = [torch.cat([sum(weights[h, i, j] * v[h, j] for j in range(n)) for h in range(HEADS)]) for i in range(n)]
    return layer.out_map(torch.stack(mixed))


@pytest.mark.parametrize("given", [True, False])
def test_attention_agrees_with_loops(ragged, given):
    x, layout = ragged
    layer, structure = make_attention(), x.flip(1) if given else None
    out = layer(x, layout, structure=structure)
    for start, stop in zip(layout.ptr[:-1], layout.ptr[1:], strict=True):
        seen = x if structure is None else structure
        expected = loop_attention(layer, x[start:stop], seen[start:stop])
        torch.testing.assert_close(out[start:stop], expected, atol=1e-12, rtol=1e-10)


def test_re_attention_agrees_with_loops(ragged):
    x, layout = ragged
    layer = make_attention(re_attention=True).eval()
    exchange = layer.re_attention
    exchange.norm.running_mean.copy_(torch.tensor([0.1, -0.2, 0.3]))
    exchange.norm.running_var.copy_(torch.tensor([0.5, 2.0, 1.0]))

    def mix(weights):
        norm, mixed = exchange.norm, torch.zeros_like(weights)
        for head in range(HEADS):
            total = exchange.mix.bias[head] + sum(exchange.mix.weight[head, g] * weights[g] for g in range(HEADS))
            unit = (total - norm.running_mean[head]) / (norm.running_var[head] + norm.eps).sqrt()
            mixed[head] = (norm.weight[head] * unit + norm.bias[head]) / WIDTH**0.5
        return mixed

    out = layer(x, layout, layout.block_biases())
    for start, stop in zip(layout.ptr[:-1], layout.ptr[1:], strict=True):
        expected = loop_attention(layer, x[start:stop], x[start:stop], mix)
        torch.testing.assert_close(out[start:stop], expected, atol=1e-12, rtol=1e-10)


def test_re_attention_is_normalised_over_real_pairs():
    torch.manual_seed(0)
    exchange = ReAttention(HEADS, WIDTH).double()
    mask = torch.tensor([[True, True, False], [True, True, True]])
    weights = torch.rand(2, HEADS, 3, 3, dtype=torch.float64)
    pairs = mask[:, :, None] & mask[:, None, :]
    slots = pairs.nonzero(as_tuple=True)
    (new,) = exchange([weights], [slots])
    rows = new.permute(0, 2, 3, 1)[pairs]
    torch.testing.assert_close(rows.mean(0), torch.zeros(HEADS, dtype=torch.float64))
    torch.testing.assert_close(
        rows.std(0, unbiased=False), torch.full((HEADS,), WIDTH**-0.5).double(), rtol=1e-3, atol=0
    )
    assert (new.permute(0, 2, 3, 1)[~pairs] == 0).all()
    other = weights.clone().masked_fill(~pairs[:, None], 7.0)
    assert torch.equal(exchange([other], [slots])[0], new)


def test_gate_fusion_agrees_with_numpy():
    """Softmax over depths of one logit per token, by NumPy, from only the saved weights."""
    torch.manual_seed(0)
    fusion = GateFusion(5).double()
    states = torch.randn(3, 4, 5, dtype=torch.float64)
    saved = {name: value.numpy() for name, value in fusion.state_dict().items()}
    assert {name: value.shape for name, value in saved.items()} == {"gate.weight": (1, 5)}
    exponentials = np.exp(np.einsum("d,ltd->lt", saved["gate.weight"][0], states.numpy()))
    expected = np.einsum("lt,ltd->td", exponentials / exponentials.sum(0), states.numpy())
    np.testing.assert_allclose(fusion(list(states)).detach().numpy(), expected, atol=1e-14)


@pytest.mark.parametrize("architecture", [Graphormer, SAT])
def test_every_parameter_of_fusion_learns(architecture, spec, graphs):
    torch.manual_seed(0)
    model = architecture(spec, **SMALL | {"re_attention": False})
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    model(batch).node.square().mean().backward()
    assert all(parameter.grad.abs().max() > 1e-9 for parameter in model.fusion.parameters())


@pytest.mark.parametrize("architecture", [Graphormer, SAT])
def test_weights_with_the_bias_of_older_gates_still_load(architecture, spec, graphs):
    """The bias that they contain has no effect: it is dropped, and every other name is still required."""
    torch.manual_seed(0)
    saved, fresh = architecture(spec, **SMALL).eval(), architecture(spec, **SMALL).eval()
    older = saved.state_dict() | {"fusion.gate.bias": torch.tensor([0.7])}
    assert fresh.load_state_dict(older).missing_keys == []
    assert "fusion.gate.bias" in older, "the caller's dictionary stays as it was"
    batch = encode(GraphTable.from_graphs(graphs), saved.required_encodings()).batch(range(len(graphs)))
    assert torch.equal(fresh(batch).node, saved(batch).node)
    with pytest.raises(RuntimeError, match=r"fusion\.gate\.scale"):
        fresh.load_state_dict(older | {"fusion.gate.scale": torch.ones(1)})


def test_traced_attention_explains_the_output(ragged):
    x, layout = ragged
    layer, records = make_attention(bias=False), []
    layer._recorder = records.append
    out = layer(x, layout, structure=x.flip(1))
    (trace,) = records
    for graph, weights in enumerate(trace.attention):
        rows = slice(layout.ptr[graph], layout.ptr[graph + 1])
        mixed = torch.einsum("hij,jho->io", weights, trace.values[rows]) + layer.out_map.bias
        torch.testing.assert_close(mixed, out[rows], atol=1e-12, rtol=1e-10)
    assert torch.equal(trace.input, x)
    assert trace.residual_weight == 1.0
    assert trace.substructure is None


@pytest.mark.parametrize("architecture", [Graphormer, SAT])
def test_every_layer_is_traced(architecture, spec, graphs):
    model = architecture(spec, **SMALL | {"re_attention": False}).eval()
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    with record(model) as traces:
        model(batch)
    assert [trace.layer for trace in traces] == [0, 1, 2]
    extra = architecture is Graphormer
    assert traces[0].tokens.shape == (batch.num_nodes + extra * batch.num_graphs, 16)
    assert traces[0].num_nodes.tolist() == batch.ptr.diff().tolist()


@pytest.mark.parametrize("architecture", [Graphormer, SAT])
def test_checkpointing_changes_neither_gradients_nor_statistics(architecture, spec, graphs):
    torch.manual_seed(0)
    kept = architecture(spec, **SMALL).double()
    again = copy.deepcopy(kept)
    again.checkpointing = True
    batch = encode(GraphTable.from_graphs(graphs), kept.required_encodings()).batch(range(len(graphs)))
    for model in (kept, again):
        torch.manual_seed(1)
        model(batch).node.square().mean().backward()
    for (name, expected), actual in zip(kept.named_parameters(), again.parameters(), strict=True):
        if expected.grad is not None:
            torch.testing.assert_close(actual.grad, expected.grad, atol=1e-12, rtol=1e-9, msg=name)
    buffers = dict(again.named_buffers())
    assert any("running_mean" in name for name in buffers)
    for name, expected in kept.named_buffers():
        torch.testing.assert_close(buffers[name], expected, msg=name)


def test_checkpointing_recomputes_layers(spec, graphs):
    model = Graphormer(spec, **SMALL, checkpointing=True)
    batch = encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(len(graphs)))
    calls = []
    model.layers[0].attention.register_forward_hook(lambda *_: calls.append(0))
    model(batch).node.mean().backward()
    assert len(calls) == 2


@pytest.mark.parametrize(("model", "padded"), [(GPS, "Transformer"), (Graphormer, "padded")])
def test_packed_attention_changes_no_weights_and_nothing_on_a_processor(model, padded):
    spec, states, outs = tiny_spec(kind="categorical"), [], []
    for attention in (padded, "packed"):
        torch.manual_seed(0)
        made = model(spec, hidden_dim=16, num_layers=2, num_heads=4, attention=attention).eval()
        states.append(made.state_dict())
        outs.append(made(tiny_batch(made)).node)
        assert {m.packed for m in made.modules() if hasattr(m, "packed")} == {attention == "packed"}
    assert states[0].keys() == states[1].keys()
    assert torch.equal(*outs)


def test_re_attention_needs_the_weights_that_packed_attention_never_holds():
    with pytest.raises(BadInput, match="re_attention"):
        Graphormer(tiny_spec(kind="categorical"), re_attention=True, attention="packed")
