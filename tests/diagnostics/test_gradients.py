"""Gradients by layer compared with the closed form of linear layers, condition numbers with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from graphbench.contracts import LayerTrace, Traced
from graphbench.diagnostics import gradient_norms_per_graph, record, summarise_gradients, weight_condition

DIM, DEPTH = 5, 4


class Linear(Traced, nn.Module):
    """Computes X W^T and traces it as an attention layer."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(DIM, DIM, generator=generator, dtype=torch.float64) / 2)

    def forward(self, x, batch):
        out = x @ self.weight.t()
        self.trace(lambda: LayerTrace(tokens=out, batch=batch, input=x))
        return out


class Chain(nn.Module):
    """Linear layers, each with a residual connection if `residual`."""

    def __init__(self, residual: bool) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.layers = nn.ModuleList(Linear(generator) for _ in range(DEPTH))
        self.residual = residual

    def forward(self, x, batch):
        for layer in self.layers:
            x = layer(x, batch) + (x if self.residual else 0)
        return x


@pytest.mark.parametrize("residual", [False, True])
def test_norms_are_those_of_the_closed_form(residual):
    """With L = 1/2 |X - Y|^2 the gradient at layer l is (X - Y) W_L ... W_l; residuals replace W by W + 1."""
    batch = torch.tensor([0, 0, 0, 1, 1])
    x, y = torch.randn(2, 5, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.clone().requires_grad_()
    model = Chain(residual)
    with record(model) as recording:
        out = model(x, batch)
    loss = (out - y).square().sum() / 2
    summary = summarise_gradients(recording, loss, batch, model)
    assert [layer.name for layer in summary.values()] == [f"layers.{n}" for n in range(DEPTH)] + ["output"]
    gradient = (out - y).detach()
    norms = [gradient]
    for layer in reversed(list(model.layers)):
        gradient = gradient @ (layer.weight.detach() + residual * torch.eye(DIM, dtype=torch.float64))
        norms.append(gradient)
    for layer, expected in zip(summary.values(), reversed(norms), strict=True):
        of_graphs = [float(expected[batch == graph].norm()) for graph in (0, 1)]
        assert layer.values["gradient_norm"] == pytest.approx(of_graphs, rel=1e-12)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_graph_alone_has_the_norm_that_it_has_beside_others():
    x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    x.requires_grad_()
    model = Chain(residual=True)

    def norms(rows, batch):
        with record(model) as recording:
            loss = model(x[rows], batch).pow(4).sum()
        return summarise_gradients(recording, loss, batch, model)

    together, alone = norms([0, 1, 2, 3, 4], torch.tensor([0, 0, 0, 1, 1])), norms([3, 4], torch.tensor([0, 0]))
    for number, layer in together.items():
        assert layer.values["gradient_norm"][1] == pytest.approx(alone[number].values["gradient_norm"][0], rel=1e-12)


def test_condition_is_that_of_numpy():
    module = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 7), nn.LayerNorm(7), nn.Linear(7, 3))
    expected = max(float(np.linalg.cond(module[n].weight.detach().double().numpy())) for n in (1, 3))
    assert weight_condition(module) == pytest.approx(expected, rel=1e-9)
    module[1].weight.data.zero_()
    module[1].weight.data[0, 0] = 1.0
    assert math.isinf(weight_condition(module))
    module[1].weight.data.zero_()
    assert math.isinf(weight_condition(module))
    module[1].weight.data[0, 0] = math.nan
    assert math.isnan(weight_condition(module))
    assert math.isnan(weight_condition(nn.LayerNorm(3)))


def test_what_the_loss_does_not_depend_on_has_no_norm():
    x = torch.ones(2, 3, requires_grad=True)
    used, unused = 2 * x, 3 * x
    batch = torch.tensor([0, 1])
    norms = gradient_norms_per_graph(used.sum(), [used, unused, torch.ones(2, 3)], [batch] * 3)
    torch.testing.assert_close(norms[0], torch.full((2,), 3**0.5, dtype=torch.float64))
    assert norms[1:] == [None, None]
    assert gradient_norms_per_graph(torch.tensor(1.0), [used], [batch]) == [None]
