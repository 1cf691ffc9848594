"""DIFFormer against matrices of all pairs, and the memory of its sigmoid form."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_large_graphs import DIFFormer
from graphbench_large_graphs.difformer import sigmoid_attention

DIM, HEADS = 8, 2


def diffusion(layer, x, same_graph):
    """Return the weights of all pairs, and the values, per head."""
    q, k = (p.unflatten(-1, (HEADS, -1)) for p in (x @ layer.qk_map.weight.T + layer.qk_map.bias).chunk(2, dim=-1))
    if layer.form == "simple":
        q, k = (p / (same_graph.double() @ p.square().sum((1, 2))).sqrt()[:, None, None] for p in (q, k))
        weights = 1 + torch.einsum("ihm,jhm->hij", q, k)
    else:
        weights = 1 / (1 + (-torch.einsum("ihm,jhm->hij", q, k)).exp())
    weights = weights * same_graph
    v = x[:, None].expand(-1, HEADS, -1)
    if layer.value_map is not None:
        v = (x @ layer.value_map.weight.T + layer.value_map.bias).unflatten(-1, (HEADS, -1))
    return weights / weights.sum(-1, keepdim=True), v


@pytest.mark.parametrize("form", ["simple", "sigmoid"])
@pytest.mark.parametrize(
    ("value_map", "graph_weight", "use_graph"), [(True, None, True), (False, 0.8, True), (True, None, False)]
)
def test_model_agrees_with_its_equations(
    made, spec, batch, symmetric, same_graph, form, value_map, graph_weight, use_graph
):
    options = {"form": form, "value_map": value_map, "graph_weight": graph_weight, "use_graph": use_graph}
    model = made(lambda: DIFFormer(spec, hidden_dim=DIM, num_layers=2, num_heads=HEADS, alpha=0.3, **options))
    encoder = model.node_encoder.features.linear
    x = F.layer_norm(batch.x_dense @ encoder.weight.T + encoder.bias, (DIM,), *model.norms[0].parameters()).clamp(min=0)
    for layer, norm in zip(model.layers, model.norms[1:], strict=True):
        weights, v = diffusion(layer, x, same_graph)
        mixed = torch.einsum("hij,jhd->ihd", weights, v)
        along = torch.einsum("ij,jhd->ihd", symmetric, v)
        if use_graph:
            mixed = mixed + along if graph_weight is None else (1 - graph_weight) * mixed + graph_weight * along
        x = F.layer_norm(0.3 * mixed.mean(1) + 0.7 * x, (DIM,), *norm.parameters())
    torch.testing.assert_close(model(batch).node, x, rtol=1e-11, atol=1e-11)


def test_pieces_of_queries_give_the_same_answer_and_gradients(batch):
    layout = DenseLayout.from_batch(batch)
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(batch.num_nodes, 2, 3, dtype=torch.float64, generator=generator) for _ in range(4)]
    results = []
    for chunk_weights in (None, 1, 20):
        q, k, v = (part.clone().requires_grad_() for part in parts[:3])
        out = sigmoid_attention(q, k, v, layout, chunk_weights)
        (out * parts[3]).sum().backward()
        results.append((out.detach(), q.grad, k.grad, v.grad))
    for other in results[1:]:
        torch.testing.assert_close(other, results[0], rtol=1e-12, atol=1e-12)


def test_graphs_without_nodes_change_nothing():
    """Beside a large graph they are in a block of their own, of width 0."""
    for size in (5, 100):
        q, k, v = torch.randn(3, size, 2, 3, dtype=torch.float64).unbind()
        alone = DenseLayout.from_batch(torch.zeros(size, dtype=torch.int64))
        layout = DenseLayout.from_rows(torch.ones(size, dtype=torch.int64), torch.tensor([0, 0, size, size]), size)
        torch.testing.assert_close(sigmoid_attention(q, k, v, layout), sigmoid_attention(q, k, v, alone))


@pytest.mark.parametrize("chunk_weights", [None, 1])
@pytest.mark.parametrize("far", [0.0, -60.0, -95.0, -110.0, -300.0])
def test_weights_below_the_smallest_number_of_float32_are_those_of_float64(batch, same_graph, far, chunk_weights):
    """All logits of a row are far below 0: float64 has `s(-300)` and its square, float32 ends at `s(-103)`."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, weight = (torch.randn(batch.num_nodes, 2, 3, generator=generator) for _ in range(4))
    q[..., 0], k[..., 0] = 1.0, far
    results = []
    for dtype in (torch.float32, torch.float64):
        parts = [part.clone().to(dtype).requires_grad_() for part in (q, k, v)]
        if dtype == torch.float32:
            out = sigmoid_attention(*parts, DenseLayout.from_batch(batch), chunk_weights)
        else:
            weights = 1 / (1 + (-torch.einsum("ihm,jhm->hij", *parts[:2])).exp()) * same_graph
            out = torch.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdim=True), parts[2])
        (out * weight.to(dtype)).sum().backward()
        results.append([out.detach().double(), *(part.grad.double() for part in parts)])
    for found, expected in zip(*results, strict=True):
        scale = expected.abs().max().clamp(min=1).item()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * scale)


def test_the_sigmoid_form_trains_on_where_all_pairs_are_far_apart(spec, batch):
    """Weights of queries and keys whose logistic values are all 0 in float32."""
    torch.manual_seed(0)
    model = DIFFormer(spec, hidden_dim=DIM, num_layers=2, form="sigmoid")
    with torch.no_grad():
        for layer in model.layers:
            layer.qk_map.weight.zero_()
            layer.qk_map.bias.copy_(torch.cat([torch.full((DIM,), 10.0), torch.full((DIM,), -10.0)]))
    node = model(batch.apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)).node
    node.square().sum().backward()
    assert node.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "advanced"}, "form must be one of simple, sigmoid, but got 'advanced'"),
        ({"graph_weight": 0.0}, "graph_weight must be above 0 and below 1"),
        ({"hidden_dim": 1}, "hidden_dim must be an integer of at least 2, but got 1"),
        ({"alpha": 1.5}, "alpha must be above 0 and at most 1"),
        ({"norm": "instance"}, "norm must be one of batch, layer, none"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        DIFFormer(spec, **options)
