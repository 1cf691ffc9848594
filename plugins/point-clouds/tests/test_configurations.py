"""Parameters of the shipped configurations on the published sizes, and what the tables ask of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml

import graphbench_point_clouds
from graphbench import registry
from graphbench.nn import HeadConfig

ROOT = Path(__file__).parents[1]
NAMES = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))


def load(name):
    return yaml.safe_load((ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8"))


def count(config):
    """Parameters of model and head, without memory for them."""
    spec = registry.load("benchmarks", config["data"]["class_path"]).spec
    part, head = config["model"]["architecture"], HeadConfig(**config["model"]["head"])
    with torch.device("meta"):
        model = getattr(graphbench_point_clouds, part["class_path"])(spec, **part["init_args"])
        made = head.mlp(model.dim, spec.output_dim)
    return sum(p.numel() for module in (model, made) for p in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_configurations_have_the_parameters_they_expect(name):
    config = load(name)
    expected = config["expected"]
    assert count(config) == expected["parameters"]
    assert expected["epochs"] == config["trainer"]["max_epochs"]


@pytest.mark.parametrize("name", NAMES)
def test_the_readme_has_a_row_for_every_configuration(name):
    expected = load(name)["expected"]
    (row,) = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| `{name}` |")]
    assert f"{expected['parameters']:,}" in row
    assert f"{expected['value']:.3f}" in row


def linear(inputs, outputs, norm=2):
    """A map with bias and a batch norm."""
    return inputs * outputs + outputs + norm * outputs


def test_pointnet_on_modelnet40_has_the_parameters_of_the_released_model():
    """Both T-nets, the maps of points, those of clouds, and the head."""

    def t_net(d):
        return linear(d, 64) + linear(64, 128) + linear(128, 1024) + linear(1024, 512) + linear(512, 256) + 257 * d * d

    points = linear(3, 64) + 2 * linear(64, 64) + linear(64, 128) + linear(128, 1024)
    expected = t_net(3) + t_net(64) + points + linear(1024, 512) + linear(512, 256) + 257 * 40
    assert load("pointnet-modelnet40")["expected"]["parameters"] == expected


def test_dgcnn_on_modelnet40_has_the_parameters_of_the_released_model():
    edges = 6 * 64 + 128 * 64 + 128 * 128 + 256 * 256 + 2 * (64 + 64 + 128 + 256)
    last = 512 * 1024 + 2 * 1024 + 2048 * 512 + 2 * 512 + linear(512, 256) + 257 * 40
    assert load("dgcnn-modelnet40")["expected"]["parameters"] == edges + last


def test_vector_neurons_for_parts_have_the_widths_of_the_released_models():
    spec = registry.load("benchmarks", "ShapeNetPart").spec
    with torch.device("meta"):
        vn_pointnet, vn_dgcnn = (getattr(graphbench_point_clouds, name)(spec) for name in ("VNPointNet", "VNDGCNN"))
    assert vn_pointnet.last.maps[0].linear.in_features == 9025
    assert vn_dgcnn.last.maps[0].linear.in_features == 2299
