"""Parameter counts of the shipped GPS configurations, against those of the authors' released models."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import graphbench_baselines
from graphbench import BenchmarkSpec, Features, registry
from graphbench.errors import BadInput
from graphbench.nn import DotProductHead, ESLapPEEncoder, HeadConfig, LapPEEncoder, SignNetEncoder
from graphbench_baselines import GPS

CONFIGS = Path(__file__).parents[1] / "configs"
ATOM = Features((119, 5, 12, 12, 10, 6, 6, 2, 2))
OLD_ATOM = Features((119, 4, 12, 12, 10, 6, 6, 2, 2))
BOND = Features((5, 6, 2))


def make_spec(name, task, node, edge, num_targets=1, num_classes=None):
    return BenchmarkSpec(name, task, node, edge, "MAE", False, "L1", num_targets=num_targets, num_classes=num_classes)


SPECS = {
    spec.name: spec
    for spec in (
        make_spec("ZINC", "graph-regression", Features((28,)), Features((4,))),
        make_spec("PATTERN", "node-classification", Features((3,)), Features(), num_classes=2),
        make_spec("CLUSTER", "node-classification", Features((7,)), Features(), num_classes=6),
        make_spec("MNISTSuperpixels", "graph-classification", Features(dense=3), Features(dense=1), num_classes=10),
        make_spec("CIFAR10Superpixels", "graph-classification", Features(dense=5), Features(dense=1), num_classes=10),
        make_spec("PeptidesFunc", "graph-multilabel", ATOM, BOND, num_targets=10),
        make_spec("PeptidesStruct", "graph-regression", ATOM, BOND, num_targets=11),
        make_spec("PascalVOCSP", "node-classification", Features(dense=14), Features(dense=2), num_classes=21),
        make_spec("COCOSP", "node-classification", Features(dense=14), Features(dense=2), num_classes=81),
        make_spec("PCQMContact", "link-ranking", ATOM, BOND),
        make_spec("PCQM4Mv2", "graph-regression", ATOM, BOND),
    )
}


def count(module):
    return sum(p.numel() for p in module.parameters())


def instantiate(value):
    """Objects for every `class_path` in a configuration."""
    if isinstance(value, list):
        return [instantiate(item) for item in value]
    if isinstance(value, dict) and "class_path" in value:
        name = value["class_path"]
        found = getattr(graphbench_baselines, name, None) or registry.load("encodings", name)
        return found(**value.get("init_args", {}))
    return value


def load(path):
    return yaml.safe_load((CONFIGS / path).read_text(encoding="utf-8"))


def parameters_of(config, spec, **changes):
    """Parameters of the architecture and the head that a configuration describes."""
    model = config["model"]
    options = {key: instantiate(value) for key, value in model["architecture"]["init_args"].items()} | changes
    architecture = getattr(graphbench_baselines, model["architecture"]["class_path"])(spec, **options)
    head = HeadConfig(**model["head"])
    if spec.task == "link-ranking":
        return count(architecture) + count(DotProductHead(architecture.dim, head.num_layers, head.l2_normalize))
    return count(architecture) + count(head.mlp(architecture.dim, spec.output_dim))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("zinc", 423_717),
        ("pattern", 337_201),
        ("cluster", 502_054),
        ("mnist", 115_394),
        ("cifar10", 112_726),
        ("pascalvoc-sp", 510_453),
        ("coco-sp", 516_273),
        ("peptides-func", 504_442),
        ("peptides-struct", 504_539),
        ("pcqm-contact", 512_784),
        ("pcqm4mv2-small", 6_152_285),
        ("pcqm4mv2-medium", 19_415_005),
    ],
)
def test_configured_parameter_counts(name, published):
    config = load(f"gps/{name}.yaml")
    assert parameters_of(config, SPECS[config["data"]["class_path"]]) == published
    assert config["expected"]["parameters"] == published


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("peptides-func", 504_362),
        ("peptides-struct", 504_459),
        ("pcqm-contact", 512_704),
        ("pcqm4mv2-small", 6_152_001),
        ("pcqm4mv2-medium", 19_414_641),
    ],
)
def test_published_counts_with_the_atom_table_of_their_time(name, published):
    """OGB had four chirality tags, 173 atom rows in all; today it has five."""
    config = load(f"gps/{name}.yaml")
    spec = replace(SPECS[config["data"]["class_path"]], node=OLD_ATOM)
    assert parameters_of(config, spec) == published


@pytest.mark.parametrize(
    ("name", "num_eigenvectors", "published"),
    [("mnist", 8, 116_181), ("cifar10", 8, 113_529), ("pattern", 10, 338_503), ("cluster", 10, 504_406)],
)
def test_es_lappe_parameter_counts(name, num_eigenvectors, published):
    config = load(f"gps/{name}.yaml")
    width = config["model"]["architecture"]["init_args"]["hidden_dim"]
    gate = ESLapPEEncoder(num_eigenvectors, width)
    spec = SPECS[config["data"]["class_path"]]
    assert parameters_of(config, spec, positional_encoders=None, gate_encoder=gate) == published


def test_signnet_parameter_count():
    config = load("gps/zinc.yaml")
    encoder = SignNetEncoder(num_eigenvectors=37, dim=28)
    assert parameters_of(config, SPECS["ZINC"], positional_encoders=[encoder]) == 497_933


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gcn", 103_077),
        ("graphsage", 106_290),
        ("gat", 102_385),
        ("gin", 110_169),
        ("gine", 110_609),
        ("gatedgcn", 105_875),
        ("gps", 423_717),
    ],
)
def test_pieces_have_the_parameters_they_name(name, parameters):
    assert parameters_of(load(f"model/{name}.yaml"), SPECS["ZINC"]) == parameters


def test_required_encodings_are_those_of_the_encoders(spec):
    lap, gate = LapPEEncoder(4, 8), ESLapPEEncoder(4, 8)
    assert GPS(spec, positional_encoders=[lap]).required_encodings() == lap.encodings
    gated = GPS(spec, local_layer="GatedGCN", gate_encoder=gate)
    assert gated.required_encodings() == gate.encodings
    assert GPS(spec).required_encodings() == ()


def test_unknown_attention_is_an_error(spec):
    with pytest.raises(BadInput, match="Transformer, Performer, BigBird, none, but got 'Linformer'"):
        GPS(spec, attention="Linformer")


def test_gps_heads_must_divide_the_width(spec):
    with pytest.raises(BadInput, match="num_heads=5 and width 64"):
        GPS(spec, num_heads=5)


def test_neither_branch_is_an_error(spec):
    with pytest.raises(BadInput, match="a local layer, global attention or both"):
        GPS(spec, local_layer="none", attention="none")
