"""Raw features of nodes."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from graphbench.nn import RWSEEncoder
from graphbench.testing import FEATURE_KINDS, encode, tiny_spec, tiny_table
from graphbench_large_graphs.inputs import InputFeatures


@pytest.mark.parametrize(("kind", "width"), [("both", 10), ("categorical", 5), ("dense", 3), ("none", 1)])
def test_columns_stand_side_by_side(kind, width):
    spec = tiny_spec("node-classification", kind)
    batch = tiny_table(spec, sizes=[3, 4]).batch([0, 1])
    inputs = InputFeatures(spec)
    found = inputs(batch, torch.float64)
    assert inputs.dim == width
    assert found.shape == (7, width)
    assert found.dtype == torch.float64
    first = 0
    for column, size in enumerate(spec.node.vocabularies):
        assert torch.equal(found[:, first : first + size].argmax(1), batch.x[:, column])
        assert (found[:, first : first + size].sum(1) == 1).all()
        first += size
    if spec.node.dense:
        assert torch.equal(found[:, first:], batch.x_dense.double())
    if kind == "none":
        assert (found == 1).all()


def test_coordinates_stand_in_for_missing_features():
    assert FEATURE_KINDS["coordinates"][2] == 3
    spec = tiny_spec("node-classification", "coordinates")
    assert InputFeatures(spec).dim == spec.node.dense  # these have a feature in addition to their position
    bare = dataclasses.replace(tiny_spec("node-classification", "none"), coordinates=3)
    batch = tiny_table(bare, sizes=[3, 4]).batch([0, 1])
    assert torch.equal(InputFeatures(bare)(batch, torch.float32), batch.pos)


def test_positions_stand_behind_the_features():
    spec = tiny_spec("node-classification", "dense")
    inputs = InputFeatures(spec, [RWSEEncoder(4, 2)])
    batch = encode(tiny_table(spec, sizes=[3, 4]), inputs.positional[0].encodings).batch([0, 1])
    found = inputs(batch, torch.float32)
    assert inputs.dim == spec.node.dense + 2
    assert torch.equal(found[:, :-2], batch.x_dense)
    assert torch.equal(found[:, -2:], inputs.positional[0](batch))
