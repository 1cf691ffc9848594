"""Parameters of the shipped configurations for the published sizes, and the settings of the tables."""

from __future__ import annotations

import math
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
    """Count the parameters of model and head without allocating them."""
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


MOMENTUM = {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}
SLOW = MOMENTUM | {"lr": 0.001}
COSINE = {"name": "cosine", "interval": "epoch", "floor": 0.01}


#: torch's smoothing e' that gives 1 - e to the label's class and e / (C - 1) to the others: e' = e C / (C - 1).
SMOOTHED = {"ModelNet40": 0.2 * 40 / 39, "ShapeNetPart": 0.2 * 50 / 49}
#: Largest share of dropped points, largest shift and deviation of the tilt, as in PointNet++.
DROPPED, MOVED, TILT = {"point_dropout": 0.875}, {"max_shift": 0.1}, {"tilt": math.degrees(0.06)}


def steps(size, gamma, interval="epoch", floor=None):
    found = {"name": "step", "interval": interval, "step_size": size, "gamma": gamma}
    return found if floor is None else found | {"floor": floor}


#: Batch, epochs, optimizer with its options, schedule and augmentation, as in the authors' scripts.
RELEASED = {
    "cn-dgcnn-modelnet40": (32, 200, "SGD", MOMENTUM, steps(20, 0.7), {"scaling": [1, 1]}),
    "cn-pointnet-modelnet40": (32, 200, "SGD", MOMENTUM, steps(20, 0.7), {"scaling": [1, 1]}),
    "cn-dgcnn-shapenetpart": (32, 200, "SGD", MOMENTUM, steps(20, 0.5), {"scaling": [1, 1]}),
    "cn-pointnet-shapenetpart": (32, 200, "SGD", MOMENTUM, steps(20, 0.5), {"scaling": [1, 1]}),
    "vn-dgcnn-modelnet40": (
        32, 250, "SGD", MOMENTUM, COSINE, {"scaling": [0.6667, 1.5], "scale_axes": True, "max_shift": 0.2},
    ),
    "vn-pointnet-modelnet40": (
        24, 200, "Adam", {"lr": 0.001, "weight_decay": 1e-4}, steps(20, 0.7),
        {"scaling": [0.8, 1.25]} | MOVED | DROPPED,
    ),
    "vn-dgcnn-shapenetpart": (16, 250, "SGD", SLOW, steps(20, 0.5, floor=0.01), {"scaling": [0.8, 1.25]} | MOVED),
    "vn-pointnet-shapenetpart": (16, 250, "SGD", SLOW, steps(20, 0.5, floor=0.01), {"scaling": [0.8, 1.25]} | MOVED),
    "pointconv-modelnet40": (
        32, 400, "SGD", {"lr": 0.01, "momentum": 0.9}, steps(30, 0.7),
        {"scaling": [0.6667, 1.5], "max_shift": 0.2} | DROPPED,
    ),
    "set-transformer-modelnet40": (
        256, 2000, "Adam", {"lr": 0.001}, None,
        {"scaling": [0.8, 1.25], "scale_axes": True, "max_turn": 18, "unit": "deviation"},
    ),
    "dgcnn-modelnet40": (
        32, 250, "SGD", MOMENTUM, COSINE, {"scaling": [0.6667, 1.5], "scale_axes": True, "max_shift": 0.2},
    ),
    "dgcnn-shapenetpart": (32, 200, "SGD", MOMENTUM, COSINE, {"scaling": [1, 1]}),
    "pointnet-plus-plus-modelnet40": (
        16, 251, "Adam", {"lr": 0.001}, steps(200_000 // 16, 0.7, "step", 0.01),
        {"scaling": [0.8, 1.25], "jitter": 0.01} | MOVED | TILT,
    ),
    "pointnet-plus-plus-shapenetpart": (
        32, 201, "Adam", {"lr": 0.001}, steps(200_000 // 32, 0.7, "step", 0.01), {"scaling": [1, 1], "jitter": 0.01},
    ),
    "pointnet-modelnet40": (
        32, 250, "Adam", {"lr": 0.001}, steps(200_000 // 32, 0.7, "step", 0.01), {"scaling": [1, 1], "jitter": 0.01},
    ),
    "pointnet-shapenetpart": (
        32, 200, "Adam", {"lr": 0.001}, steps(20 * 16_881 // 32, 0.5, "step", 0.01), {"scaling": [1, 1]},
    ),
    "pointcnn-shapenetpart": (
        24, 1024, "Adam", {"lr": 0.01, "eps": 0.001}, steps(20_000, 0.5, "step", 0.001), {"scaling": [0.7, 1.3]},
    ),
    "sequoia-modelnet40": (
        24, 200, "Adam", {"lr": 0.001, "weight_decay": 1e-4}, steps(20, 0.7),
        {"scaling": [0.8, 1.25]} | MOVED | DROPPED,
    ),
    "sequoia-shapenetpart": (
        16, 200, "Adam", {"lr": 0.001, "weight_decay": 1e-4}, steps(20, 0.5, floor=0.01),
        {"scaling": [0.8, 1.25]} | MOVED,
    ),
}  # fmt: skip
#: Configurations whose loss has smoothed labels.
SMOOTH = {
    "cn-dgcnn-modelnet40", "cn-pointnet-modelnet40", "cn-dgcnn-shapenetpart", "cn-pointnet-shapenetpart",
    "dgcnn-modelnet40", "dgcnn-shapenetpart", "vn-dgcnn-modelnet40", "sequoia-modelnet40",
}  # fmt: skip
HALVED = {"momentum": 0.1, "gamma": 0.5, "step_size": 20, "floor": 0.01}
FALLING = {"momentum": 0.5, "gamma": 0.5, "interval": "step", "floor": 0.01}
#: Momentum of batch norms, if it is not PyTorch's 0.1 throughout; TensorFlow's decay is 1 minus it.
MOMENTA = {
    **{f"{name}-shapenetpart": HALVED for name in ("cn-dgcnn", "cn-pointnet", "vn-dgcnn", "vn-pointnet", "sequoia")},
    "pointnet-modelnet40": FALLING | {"step_size": 200_000 // 32},
    "pointnet-shapenetpart": FALLING | {"step_size": 2 * 20 * 16_881 // 32},
    "pointnet-plus-plus-modelnet40": FALLING | {"step_size": 200_000 // 16},
    "pointnet-plus-plus-shapenetpart": FALLING | {"step_size": 200_000 // 32},
    "pointcnn-modelnet40": {"momentum": 0.01},
    "pointcnn-shapenetpart": {"momentum": 0.01},
}
#: Options of the networks that differ between the authors' scripts and are not defaults here.
NETWORKS = {
    "cn-pointnet-modelnet40": {"dropout": 0.4, "num_neighbors": 20, "orthogonality": 0.0},
    "cn-pointnet-shapenetpart": {"dropout": 0.0, "num_neighbors": 40, "input_transform": False},
    "cn-dgcnn-shapenetpart": {"dropout": 0.5, "num_neighbors": 40},
    "vn-pointnet-modelnet40": {"dropout": 0.4, "num_neighbors": 20},
    "vn-pointnet-shapenetpart": {"dropout": 0.0, "num_neighbors": 40},
    "vn-dgcnn-shapenetpart": {"dropout": 0.5, "num_neighbors": 40},
    "pointconv-modelnet40": {"dropout": 0.7, "num_neighbors": 32, "num_points": 512},
    "pointnet-plus-plus-modelnet40": {"num_neighbors": 128, "num_far_neighbors": 128, "use_features": True},
    "pointnet-plus-plus-shapenetpart": {"num_neighbors": 64, "num_far_neighbors": 64, "use_features": True},
    "sequoia-modelnet40": {"num_neighbors": 16, "num_siblings": 8, "residual": False, "use_features": True},
    "sequoia-shapenetpart": {"num_siblings": 16, "residual": False, "use_features": False},
}


#: Options of training clouds.
AUGMENTATIONS = (
    "scaling", "scale_axes", "max_turn", "unit", "max_shift", "jitter", "point_dropout", "tilt",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_labels_are_smoothed_and_batch_norms_follow_as_in_the_released_scripts(name):
    config = load(name)
    smoothing = SMOOTHED[config["data"]["class_path"]] if name in SMOOTH else None
    assert config["model"].get("label_smoothing") == (smoothing and pytest.approx(smoothing, rel=1e-5))
    callbacks = config["trainer"].get("callbacks", [])
    expected = [{"class_path": "BatchNormMomentum", "init_args": MOMENTA[name]}] if name in MOMENTA else []
    assert callbacks == expected


@pytest.mark.parametrize("name", RELEASED)
def test_configurations_train_as_the_released_scripts_do(name):
    config = load(name)
    batch, epochs, optimizer, options, schedule, augmentation = RELEASED[name]
    data, model = config["data"]["init_args"], config["model"]
    assert (data["batch_size"], config["trainer"]["max_epochs"]) == (batch, epochs)
    assert model["optimizer"] == {"class_path": f"torch.optim.{optimizer}", "init_args": options}
    assert model.get("schedule") == schedule
    drawn = {key: value for key, value in data.items() if key in AUGMENTATIONS}
    tilt = drawn.pop("tilt", 0.0)
    assert drawn == {key: value for key, value in augmentation.items() if key != "tilt"}
    assert tilt == pytest.approx(augmentation.get("tilt", 0.0), rel=1e-4)
    if name[:3] in ("vn-", "cn-"):
        assert data["rotations"] == "z/SO(3)"
    registry.load("benchmarks", config["data"]["class_path"])(**data)


@pytest.mark.parametrize("name", NETWORKS)
def test_configurations_have_the_networks_of_the_released_scripts(name):
    options = load(name)["model"]["architecture"]["init_args"]
    assert {key: options[key] for key in NETWORKS[name]} == NETWORKS[name]


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
