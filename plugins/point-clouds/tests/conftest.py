"""Small clouds in float64, and modules with random weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphbench import Architecture, BenchmarkModule, BenchmarkSpec, Features, GraphBatch
from graphbench.benchmarks.points.augmentation import random_rotations
from graphbench.nn import HeadConfig
from graphbench.testing import tiny_spec, tiny_table

#: Points of each cloud; one of them is a single point, two have one size.
SIZES = (7, 1, 12, 7)


@pytest.fixture
def spec() -> BenchmarkSpec:
    """Describe classes of clouds in space, with one feature."""
    return tiny_spec("graph-classification", "coordinates")


@pytest.fixture
def parts_spec() -> BenchmarkSpec:
    """Describe parts of shapes of 16 categories, with normals, as in ShapeNetPart."""
    return BenchmarkSpec(
        "Parts", "node-classification", Features((16,), 3, ("category", "normal_x", "normal_y", "normal_z")),
        Features(), "accuracy", True, "cross_entropy", num_classes=50, coordinates=3, max_nodes=24,
    )  # fmt: skip


def in_float64(batch: GraphBatch) -> GraphBatch:
    return batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)


@pytest.fixture
def cut() -> Callable[..., GraphBatch]:
    """Function: clouds in float64 for a specification, of given sizes, or a subset of them."""

    def make(spec: BenchmarkSpec, sizes=SIZES, rows=None) -> GraphBatch:
        table = tiny_table(spec, sizes=sizes)
        return in_float64(table.batch(range(len(sizes)) if rows is None else rows))

    return make


@pytest.fixture
def made() -> Callable[..., torch.nn.Module]:
    """Function: a module in float64 and evaluation mode, with random parameters and statistics."""

    def make(build: Callable[[], torch.nn.Module], scale: float = 0.3) -> torch.nn.Module:
        torch.manual_seed(0)
        module = build().double().eval()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(scale * torch.randn_like(parameter))
            for name, buffer in module.named_buffers():
                if name.endswith(("running_mean", "running_var")):
                    buffer.copy_(torch.rand_like(buffer) + 0.5)
        return module

    return make


@pytest.fixture
def logits(made) -> Callable[..., BenchmarkModule]:
    """Function: a model with a linear head, which returns logits; all numbers are random, as in `made`."""

    def make(architecture: type[Architecture], spec: BenchmarkSpec, **options) -> BenchmarkModule:
        head = HeadConfig(num_layers=1)
        return made(lambda: BenchmarkModule(spec, lambda seen: architecture(seen, **options), head=head))

    return make


@pytest.fixture
def check_invariance() -> Callable[[BenchmarkModule, GraphBatch], None]:
    """Function: assert that rotations change no logit, to 1e-8, and that clouds have different logits."""

    def check(module: BenchmarkModule, batch: GraphBatch) -> None:
        before = module(batch)
        for rotation in random_rotations(3, torch.Generator().manual_seed(0)):
            q, r = torch.linalg.qr(rotation.double())  # orthogonal to float64, not to float32
            turned = batch.clone()
            turned.pos = batch.pos @ (q * r.diagonal().sign())
            torch.testing.assert_close(module(turned), before, rtol=1e-8, atol=1e-8)
        assert before.std(0).min() > 1e-5

    return check
