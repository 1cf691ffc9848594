"""What models of point clouds read, whom they refuse, and what a penalty does to a training."""

from __future__ import annotations

import pytest
import torch

from graphbench import BenchmarkModule
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench_point_clouds import DGCNN, PointNet

SMALL = {"hidden_dim": 6}


@pytest.mark.parametrize("kind", ["both", "categorical", "none"])
def test_nodes_without_a_position_are_refused_in_one_line(kind):
    with pytest.raises(BadInput, match=rf"^DGCNN reads point clouds, and the nodes of tiny-\S+-{kind} have no"):
        DGCNN(tiny_spec(kind=kind))


def test_points_of_a_classified_cloud_share_its_representation(spec, cut, made):
    batch = cut(spec)
    found = made(lambda: PointNet(spec, **SMALL))(batch)
    assert torch.equal(found.node, found.graph[batch.batch])


@pytest.mark.parametrize("used", [False, True])
def test_features_are_read_where_they_are_asked_for(spec, cut, made, used):
    model = made(lambda: DGCNN(spec, **SMALL, use_features=used))
    batch = cut(spec)
    before = model(batch).graph
    batch.x_dense = batch.x_dense + 1
    assert torch.equal(model(batch).graph, before) is not used


def test_categories_enter_the_last_maps_of_points(parts_spec, cut, made):
    model = made(lambda: PointNet(parts_spec, **SMALL))
    batch = cut(parts_spec)
    before = model(batch).node
    batch.x = (batch.x + 1) % 16
    moved = model(batch).node
    assert not torch.isclose(moved, before).all(1).any()
    batch.x_dense = batch.x_dense + 1
    assert torch.equal(model(batch).node, moved)


def test_a_penalty_is_added_to_the_loss_in_training_alone(spec, cut):
    torch.manual_seed(0)
    factor = 0.5
    modules = []
    for orthogonality in (0.0, factor):
        torch.manual_seed(0)
        module = BenchmarkModule(
            spec,
            lambda seen, weight=orthogonality: PointNet(seen, **SMALL, dropout=0.0, orthogonality=weight),
            head=HeadConfig(num_layers=1),
        ).double()
        torch.nn.init.normal_(module.architecture.align_features.out.weight)
        module.log_dict = lambda *_, **__: None
        modules.append(module.train())
    batch, tensors = tiny_table(spec).batch(range(6)), []
    batch = batch.apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    modules[1].architecture.align_features.load_state_dict(modules[0].architecture.align_features.state_dict())
    modules[1].architecture.align_features.register_forward_hook(lambda _, __, out: tensors.append(out))
    losses = [module.training_step(batch, 0) for module in modules]
    (matrices,) = tensors
    excess = torch.eye(6, dtype=torch.float64) - matrices @ matrices.mT
    expected = factor * excess.square().sum((1, 2)).mean()
    torch.testing.assert_close(losses[1] - losses[0], expected, rtol=1e-9, atol=1e-9)
    assert expected > 0.1
    assert modules[1].eval().represent(batch).penalty is None
