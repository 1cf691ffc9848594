from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphbench import BenchmarkModule, Features
from graphbench.errors import BadInput
from graphbench.testing import ArchitectureContract, tiny_spec, tiny_table
from graphbench_linear_transformer import LinearTransformerPE, Positions


def eigenvector_spec(num_targets):
    spec = tiny_spec("map-recovery")
    return replace(spec, node=Features(), edge=Features(), num_targets=num_targets, loss="eigenvector")


class TestPositions(ArchitectureContract):
    architecture = Positions
    spec = replace(tiny_spec("node-classification"), node=Features(dense=3), num_targets=3)


def test_the_answer_is_what_the_encoding_returns():
    spec = eigenvector_spec(3)
    module = BenchmarkModule(spec, Positions, positional_encoding=LinearTransformerPE(3))
    batch = tiny_table(spec).batch([0, 1, 2])
    torch.testing.assert_close(module(batch), module.positional_encoding(batch))
    assert {name.partition(".")[0] for name, _ in module.named_parameters()} == {"positional_encoding"}


def test_another_width_is_refused():
    with pytest.raises(BadInput, match="positional_encoding with dim 4"):
        BenchmarkModule(eigenvector_spec(4), Positions, positional_encoding=LinearTransformerPE(3))
