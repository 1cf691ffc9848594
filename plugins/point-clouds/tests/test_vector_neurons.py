"""Layers of vectors rotate with their inputs and follow the paper's equations, as do models of small clouds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.benchmarks.points.augmentation import random_rotations
from graphbench.benchmarks.points.shapenet import ShapeNetPart
from graphbench.benchmarks.points.solids import Solids
from graphbench.errors import BadInput
from graphbench.testing import tiny_spec
from graphbench_point_clouds import CNDGCNN, VNDGCNN, CNPointNet, VNPointNet
from graphbench_point_clouds.vector_neurons import (
    Frames,
    VectorMap,
    VectorNorm,
    VectorPool,
    VectorReLU,
    add_mean,
    check_space,
    edge_vectors,
    project,
    rectify,
)

CLOUD_OF = torch.tensor([0, 0, 0, 1, 1, 1, 1])


@pytest.fixture
def x():
    return torch.randn(7, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def rotation():
    q, r = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    q = q * r.diagonal().sign()
    return q * q.det()


@pytest.mark.parametrize(
    "build",
    [
        lambda: VectorMap(4, 5),
        lambda: VectorNorm(4),
        lambda: VectorReLU(4, 5, 0.2),
        lambda: VectorReLU(4, 5, 0.0, shared=True),
        lambda: Frames(4, 0.2),
    ],
)
def test_layers_turn_with_their_input(made, x, rotation, build):
    layer = made(build)
    torch.testing.assert_close(layer(x @ rotation), layer(x) @ rotation, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["mean", "max"])
def test_pools_turn_with_their_input_and_agree_with_a_loop(made, x, rotation, name):
    pool = made(lambda: VectorPool(4, name))
    clouds = pool.of_clouds(x, CLOUD_OF, 2)
    torch.testing.assert_close(pool.of_clouds(x @ rotation, CLOUD_OF, 2), clouds @ rotation, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(clouds[0], pool(x[None, :3])[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(clouds[1], pool(x[None, 3:])[0], rtol=1e-12, atol=1e-12)
    if name == "max":
        for channel in range(4):
            ahead = pool.direction(x)[3:, channel]
            reach = (x[3:, channel] * ahead).sum(1)
            assert torch.equal(clouds[1, channel], x[3 + int(reach.argmax()), channel])


def test_what_points_against_a_direction_loses_that_part(x):
    direction = torch.randn_like(x)
    found = rectify(x, direction, slope=0.2)
    for row in range(7):
        for channel in range(4):
            v, d = x[row, channel], direction[row, channel]
            unit = d / d.norm()
            expected = v if v @ d >= 0 else 0.2 * v + 0.8 * (v - (v @ unit) * unit)
            torch.testing.assert_close(found[row, channel], expected, rtol=1e-4, atol=1e-5)


def test_the_norm_changes_lengths_alone(made, x):
    norm = made(lambda: VectorNorm(4))
    found, bn = norm(x), norm.norm
    length = x.norm(dim=-1)
    expected = (length - bn.running_mean) / (bn.running_var + bn.eps).sqrt() * bn.weight + bn.bias
    torch.testing.assert_close(found, x / length[..., None] * expected[..., None], rtol=1e-4, atol=1e-4)


def test_edges_have_differences_places_and_cross_products(x):
    near = torch.tensor([[0, 1], [1, 0], [2, 0], [3, 4], [4, 3], [5, 3], [6, 3]])
    found = edge_vectors(x, near, cross=True)
    torch.testing.assert_close(found[2, 1, :4], x[0] - x[2])
    torch.testing.assert_close(found[2, 1, 4:8], x[2])
    torch.testing.assert_close(found[2, 1, 8:], torch.linalg.cross(x[0], x[2]))
    assert edge_vectors(x, near).shape == (7, 2, 8, 3)


def test_what_frames_see_does_not_turn(made, x, rotation):
    frames = made(lambda: Frames(8, 0.2))
    both, turned = add_mean(x, CLOUD_OF, 2), add_mean(x @ rotation, CLOUD_OF, 2)
    torch.testing.assert_close(both[0, 4:], x[:3].mean(0))
    seen = project(both, frames(both))
    torch.testing.assert_close(project(turned, frames(turned)), seen, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(seen[1, 3], both[1, 1] @ frames(both)[1, 0])


def test_clouds_that_are_not_in_space_are_refused():
    spec = tiny_spec(kind="coordinates")
    check_space("VN", spec)
    object.__setattr__(spec, "coordinates", 2)
    with pytest.raises(BadInput, match=r"VN rotates with clouds in space: it needs 3 coordinates, but .* has 2"):
        check_space("VN", spec)


def test_vectors_of_no_length_have_gradients(made):
    layer = made(lambda: VectorReLU(4, 5, 0.0)).float()
    x = torch.zeros(3, 4, 3, requires_grad=True)
    out = layer(x)
    out.square().sum().backward()
    assert (out == 0).all()
    assert x.grad.isfinite().all()


MODELS = (VNPointNet, VNDGCNN, CNPointNet, CNDGCNN)


def shapes():
    """Three of 12, 30 and 9 points."""
    generator = np.random.RandomState(0)
    for count in (12, 30, 9):
        normals = generator.standard_normal((count, 3))
        yield np.concatenate(
            [generator.standard_normal((count, 3)), normals / np.linalg.norm(normals, axis=1)[:, None]], 1
        )


def turned(batch):
    """The batch in three positions; clouds stay centred."""
    for rotation in random_rotations(3, torch.Generator().manual_seed(0)):
        q, r = torch.linalg.qr(rotation.double())
        other = batch.clone()
        other.pos = (batch.pos.double() @ (q * r.diagonal().sign())).to(batch.pos.dtype)
        yield other


@pytest.mark.parametrize("architecture", MODELS)
def test_shapes_in_tasks_of_clouds_keep_their_points_and_their_logits(logits, architecture):
    benchmark = Solids(num_points=264, sizes=(36, 36, 36))
    (part,) = benchmark.read_objects(list(shapes()))
    batch = benchmark.transform(part.table.batch([0, 1, 2]))
    assert batch.ptr.diff().tolist() == [12, 30, 9]
    model = logits(architecture, benchmark.spec, hidden_dim=12, num_neighbors=20)
    batch = batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    before = model(batch)
    for other in turned(batch):
        torch.testing.assert_close(model(other), before, rtol=1e-8, atol=1e-8)
    model = model.float()
    batch = batch.apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)
    found, spread = model(batch), before.std(0).max().item()
    assert spread > 1e-5
    for other in turned(batch):
        assert (model(other) - found).abs().max() < 1e-2 * spread


def test_shapes_of_an_evaluation_split_keep_their_points():
    """As in `ShapeNetPart`: of 9, 12 and 30 points, with 12 neighbours."""
    benchmark = ShapeNetPart(num_points=12)
    batch = next(Solids(num_points=264, sizes=(36, 36, 36)).read_objects(list(shapes()))).table.batch([0, 1, 2])
    batch.x, batch.y = (torch.zeros(51, 1, dtype=torch.int64) for _ in range(2))
    places = batch.pos.split([12, 30, 9])
    seen = benchmark.transform(batch)
    assert torch.equal(seen.pos, torch.cat([places[0], places[1][:12], places[2]]))
    assert len(seen.x) == len(seen.y) == len(seen.x_dense) == 33
