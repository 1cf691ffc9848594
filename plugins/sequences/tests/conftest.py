"""Short sequences in float64, one of them a single token, and pairs of documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from graphbench import BenchmarkSpec, Features, GraphBatch
from graphbench.testing import tiny_spec, tiny_table

#: Tokens of each sequence.
SIZES = (5, 1, 9, 4)


@pytest.fixture
def spec() -> BenchmarkSpec:
    return tiny_spec("graph-classification", "sequence")


@pytest.fixture
def pairs() -> BenchmarkSpec:
    features = Features((9, 2), names=("token", "tower"))
    return replace(tiny_spec("graph-classification", "sequence"), node=features)


@pytest.fixture
def batch_of() -> Callable[..., GraphBatch]:
    """Function: sequences of a specification in float64, nodes in random order of their places."""

    def make(spec: BenchmarkSpec, rows=None, sizes=SIZES) -> GraphBatch:
        table = tiny_table(spec, sizes=sizes)
        batch = table.batch(range(len(sizes)) if rows is None else rows)
        return batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    return make


@pytest.fixture
def made() -> Callable[..., torch.nn.Module]:
    """Function: a module in float64 and evaluation mode, with random parameters."""

    def make(build: Callable[[], torch.nn.Module]) -> torch.nn.Module:
        torch.manual_seed(0)
        module = build().double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
        return module

    return make
