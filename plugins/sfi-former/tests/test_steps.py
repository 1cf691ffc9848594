"""Flows after single steps against equation (12) in plain matrices, and against what the library records."""

from __future__ import annotations

import pytest
import torch

from graphbench import GraphBatch
from graphbench.diagnostics import record
from graphbench.errors import BadInput
from graphbench.nn import ESLapPEEncoder
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench_sfi_former import DFiFormer, ProximalOptions, SFiFormer, flow_steps

SPEC = tiny_spec("node-classification", "dense")
HEADS, DIM, ALPHA = 2, 8, 0.1


def made(architecture=SFiFormer, **options):
    torch.manual_seed(0)
    encoder = ESLapPEEncoder(3, DIM)
    return architecture(SPEC, hidden_dim=DIM, num_layers=2, num_heads=HEADS, gate_encoder=encoder, **options).eval()


def graphs(model, sizes) -> GraphBatch:
    return encode(tiny_table(SPEC, sizes=sizes), model.required_encodings()).batch(range(len(sizes)))


def projected(model, batch):
    """Per layer R and F `[H, n, n]`, from what its maps put out."""
    heard = []
    layers = [module for module in model.modules() if hasattr(module, "friction_proj")]
    hooks = [
        part.register_forward_hook(lambda module, inputs, output: heard.append(output.detach().double()))
        for layer in layers
        for part in (layer.in_proj, layer.friction_proj)
    ]
    model(batch)
    for hook in hooks:
        hook.remove()
    for own, friction in zip(heard[::2], heard[1::2], strict=True):
        q, k, _ = own.unflatten(1, (3, HEADS, DIM)).permute(1, 2, 0, 3)
        fq, fk = friction.unflatten(1, (2, HEADS, DIM)).permute(1, 2, 0, 3)
        yield (-q @ k.mT / DIM**0.5).softmax(-1), (fq @ fk.mT / DIM**0.5).softmax(-1)


def test_flows_are_those_of_equation_12():
    """With the constant step 1 / (max r + alpha n), from zeros."""
    model, n = made(alpha=ALPHA), 7
    batch = graphs(model, [n])
    found = flow_steps(model, batch, [3, 0, 1], ProximalOptions(start="zeros", step="constant"))
    for layer, (r, f) in zip(found, projected(model, batch), strict=True):
        assert layer.steps == (0, 1, 3)
        t = 1 / (r.amax((1, 2), keepdim=True) + ALPHA * n)
        z, expected = torch.zeros_like(r), []
        for _ in range(4):
            expected.append(z)
            y = z - t * (r * z + ALPHA * (z.sum(-1, keepdim=True) - 1))
            z = y.sign() * (y.abs() - t * f / n).clamp(min=0)
        wanted = torch.stack([expected[0], expected[1], expected[3]])
        torch.testing.assert_close(layer.flows.double(), wanted, rtol=1e-4, atol=1e-6)


def test_the_last_picture_is_the_limit_of_the_steps_and_that_of_the_model():
    model = made(alpha=ALPHA)
    batch = graphs(model, [6])
    with torch.no_grad(), record(model) as recording:
        model(batch)
    found = flow_steps(model, batch, [0, 20, 300])
    for layer, trace in zip(found, recording, strict=True):
        assert layer.layer == trace.layer
        torch.testing.assert_close(layer.weights, trace.attention[0])
        assert (layer.errors[0] > 1).all()
        assert (layer.errors[2] < 1e-3).all()


def test_the_start_is_that_of_the_layers_with_the_iteration():
    """Uniform, a function of seed, head and nodes."""
    model = made(alpha=ALPHA)
    first, again, other = (
        flow_steps(model, graphs(model, [6]), [0], ProximalOptions(seed=seed))[0].flows[0] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert ((first >= 0) & (first < 1)).all()


def test_a_dense_layer_has_softmax_attention_beside_the_adjacency_matrix():
    model = made(DFiFormer)
    batch = graphs(model, [6])
    with torch.no_grad(), record(model) as recording:
        model(batch)
    near = torch.eye(6)
    near[batch.edge_index[1], batch.edge_index[0]] = 1
    near = near.sum(1).rsqrt()[:, None] * near * near.sum(1).rsqrt()
    for layer, trace in zip(flow_steps(model, batch, [0, 1]), recording, strict=True):
        assert (layer.steps, tuple(layer.flows.shape)) == ((), (0, HEADS, 6, 6))
        torch.testing.assert_close(layer.weights, trace.attention[0])
        torch.testing.assert_close(layer.enhanced, (near + trace.attention[0]) / 2)  # gamma is 1 at first


def test_the_model_is_left_as_it_was():
    model = made(alpha=ALPHA)
    batch = graphs(model, [6])
    before = model(batch).node
    flow_steps(model, batch, [1])
    assert torch.equal(model(batch).node, before)
    assert all("mix" not in vars(module) for module in model.modules())


@pytest.mark.parametrize(
    ("options", "sizes", "steps", "message"),
    [
        ({}, [4, 5], [1], "takes one graph, but the batch has 2"),
        ({}, [4], [], "there are none"),
        ({}, [4], [-1], "at least 0"),
        ({"alpha": None}, [4], [1], "alpha: null"),
        ({"terms": "adjacency"}, [4], [1], "no attention"),
    ],
)
def test_what_cannot_be_looked_at_is_refused(options, sizes, steps, message):
    model = made(**options)
    with pytest.raises(BadInput, match=message):
        flow_steps(model, graphs(model, sizes), steps)


def test_dropout_and_batch_statistics_are_not_looked_at():
    model = made().train()
    with pytest.raises(BadInput, match=r"call model.eval\(\) first"):
        flow_steps(model, graphs(model, [4]), [1])
