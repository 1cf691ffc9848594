"""The inputs of gradients: encoded features, or the columns that a model reads itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from graphbench import GraphBatch
from graphbench.diagnostics import differentiable
from graphbench.nn import EdgeEncoder, LapPEEncoder, NodeEncoder
from graphbench.testing import encode, tiny_spec, tiny_table


class Reads(nn.Module):
    """Computes `W node + sum of edges`, with encoders of both and positions after the node features."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.spec = tiny_spec("graph-regression", kind)
        self.position = LapPEEncoder(dim=3)
        self.node, self.edge = NodeEncoder(self.spec, 8, [self.position]), EdgeEncoder(self.spec, 8)
        self.linear = nn.Linear(8, 4)

    def forward(self, batch: GraphBatch) -> Tensor:
        return self.linear(self.node(batch)) + self.edge(batch).sum()


@pytest.mark.parametrize("kind", ["categorical", "dense", "both"])
def test_encoded_features_of_nodes_are_leaves_and_positions_are_not(kind: str) -> None:
    model = Reads(kind).eval()
    table = encode(tiny_table(model.spec, sizes=[4, 3]), model.position.encodings)
    with torch.no_grad():
        silent = model(table.batch([0, 1]))
    batch = table.batch([0, 1])
    with differentiable(model, batch) as inputs:
        output = model(batch)
    assert torch.equal(output, silent)
    assert [tuple(leaf.shape) for leaf in inputs] == [(7, 5)]
    (gradient,) = torch.autograd.grad(output[2, 1], inputs)
    expected = torch.zeros(7, 5)
    expected[2] = model.linear.weight[1, :5]
    assert torch.allclose(gradient, expected)
    model(batch)
    assert len(inputs) == 1, "an encoder was still recorded"


def test_without_an_encoder_the_columns_themselves_are_leaves() -> None:
    table, model = tiny_table(tiny_spec("graph-regression", "dense"), sizes=[4, 3]), nn.Identity()
    batch, untouched = table.batch([0, 1]), table.batch([0, 1])
    with differentiable(model, batch) as inputs:
        output = 3.0 * model(batch.x_dense)
    (leaf,) = inputs
    assert torch.equal(torch.autograd.grad(output.sum(), leaf)[0], torch.full_like(leaf, 3.0))
    assert torch.equal(batch.x_dense, untouched.x_dense)
    assert not untouched.x_dense.requires_grad


def test_a_model_without_features_has_no_leaves() -> None:
    table = tiny_table(tiny_spec("graph-regression", "categorical"), sizes=[4, 3])
    with differentiable(nn.Identity(), table.batch([0])) as inputs:
        pass
    assert inputs == []
