"""AdvDIFFormer against powers of its matrices."""

from __future__ import annotations

import math

import pytest
import torch

from graphbench.errors import BadInput
from graphbench_large_graphs import AdvDIFFormer

DIM, HEADS, ORDER, BETA = 8, 2, 3, 0.7


def test_model_agrees_with_powers_of_its_matrices(made, spec, batch, adjacency, same_graph):
    model = made(lambda: AdvDIFFormer(spec, DIM, num_layers=2, num_heads=HEADS, order=ORDER, beta=BETA, norm="none"))
    mean = adjacency / adjacency.sum(1, keepdim=True).clamp(min=1)
    encoder = model.node_encoder.features.linear
    x = (batch.x_dense @ encoder.weight.T + encoder.bias).clamp(min=0)
    for layer in model.layers:
        maps = (x @ layer.qk_map.weight.T + layer.qk_map.bias).unflatten(-1, (2, HEADS, DIM))
        total = torch.zeros_like(x)
        weights = layer.out.weight.unflatten(-1, (HEADS, ORDER + 1, DIM))
        for head in range(HEADS):
            q, k = (maps[:, part, head] / maps[:, part, head].norm(dim=1, keepdim=True) for part in range(2))
            pairs = (1 + q @ k.T) * same_graph
            matrix = pairs / pairs.sum(1, keepdim=True) + BETA * mean
            for power in range(ORDER + 1):
                total = total + torch.linalg.matrix_power(matrix, power) @ x @ weights[:, head, power].T
        x = (x + (total + layer.out.bias) / HEADS).clamp(min=0)
    torch.testing.assert_close(model(batch).node, x, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 0}, "order must be an integer of at least 1, but got 0"),
        ({"beta": -0.1}, "beta must be at least 0 and below inf, but got -0.1"),
        ({"beta": math.inf}, "beta must be at least 0 and below inf, but got inf"),
        ({"hidden_dim": 1}, "hidden_dim must be an integer of at least 2, but got 1"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec, options, message):
    with pytest.raises(BadInput, match=message):
        AdvDIFFormer(spec, **options)
