"""Parameter counts of Graphormer and SAT, against those that DeepGraph prints (ICLR 2023, appendix H)."""

from pathlib import Path

import pytest
import yaml
from quick import slow

import graphbench_baselines
from graphbench import BenchmarkSpec, Features, registry
from graphbench.benchmarks import PCQM4M, PCQM4Mv2
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench_baselines import SAT, Graphormer, RandomWalkPE

CONFIGS = Path(__file__).parents[1] / "configs"
RECIPES = {
    f"{path.parent.name}/{path.stem}": [path]
    for name in ("graphormer", "sat")
    for path in (CONFIGS / name).glob("*.yaml")
}
DEEPER = {
    f"{name}-x{times}": [path, path.parent / "overlays" / f"{path.stem}-x{times}.yaml"]
    for name, (path,) in RECIPES.items()
    for times in (2, 4)
    if not name.endswith("-fairseq")  # DeepGraph deepened only the first code's model
}


def make_spec(name, node, edge=(), num_classes=None):
    task = "graph-regression" if num_classes is None else "node-classification"
    return BenchmarkSpec(name, task, Features(node), Features(edge), "MAE", False, "L1", num_classes=num_classes)


SPECS = {
    "ZINC": make_spec("ZINC", (28,), (4,)),
    "PATTERN": make_spec("PATTERN", (3,), num_classes=2),
    "CLUSTER": make_spec("CLUSTER", (7,), num_classes=6),
    "PCQM4M": PCQM4M.spec,
    "PCQM4Mv2": PCQM4Mv2.spec,
}
SLIM = {"hidden_dim": 80, "ffn_dim": 80, "num_heads": 8}
BASE = {"hidden_dim": 768, "ffn_dim": 768, "num_heads": 32}


def count(module):
    return sum(p.numel() for p in module.parameters())


def count_with_head(model, num_layers, outputs):
    return count(model) + count(HeadConfig(num_layers).mlp(model.dim, outputs))


def instantiate(value):
    """Create the object of every `class_path` in a configuration."""
    if isinstance(value, list):
        return [instantiate(item) for item in value]
    if isinstance(value, dict) and "class_path" in value:
        name = value["class_path"]
        found = getattr(graphbench_baselines, name, None) or registry.load("encodings", name)
        return found(**value.get("init_args", {}))
    return value


@pytest.mark.parametrize(
    ("data", "size", "num_layers", "published"),
    [
        ("PCQM4M", BASE, 12, 44_750_081),
        slow("PCQM4M", BASE, 24, 87_309_569),
        ("ZINC", SLIM, 24, 1_055_985),
        slow("ZINC", SLIM, 48, 1_996_785),
    ],
)
def test_released_graphormer_counts(data, size, num_layers, published):
    model = Graphormer(SPECS[data], num_layers=num_layers, version="fairseq", released=True, **size)
    assert count_with_head(model, 1, 1) == published


def test_deepest_graphormer_is_the_base_and_thirty_six_layers():
    """Drawing 48 layers of width 768 would take a while."""
    model = Graphormer(SPECS["PCQM4M"], num_layers=1, version="fairseq", released=True, **BASE)
    assert count_with_head(model, 1, 1) + 47 * count(model.layers[0]) == 172_428_545


def test_slim_graphormer_count_is_that_without_the_final_norm():
    model = Graphormer(SPECS["ZINC"], released=True)
    assert count_with_head(model, 1, 1) - count(model.final) == 489_321


@pytest.mark.parametrize(("times", "published"), [(1, 499_681), slow(2, 991_873), slow(4, 1_976_257)])
def test_released_sat_counts_on_zinc(times, published):
    encoders = [RandomWalkPE(20)]
    model = SAT(SPECS["ZINC"], num_layers=6 * times, extractor="subgraph", positional_encoders=encoders, released=True)
    assert count_with_head(model, 2, 1) == published


@pytest.mark.parametrize(("times", "published"), [(1, 741_990), slow(2, 1_480_806), slow(4, 2_958_438)])
def test_sat_counts_on_cluster(times, published):
    model = SAT(SPECS["CLUSTER"], hidden_dim=48, num_layers=16 * times, positional_encoders=[RandomWalkPE(3)])
    assert count_with_head(model, 2, 6) == published


@pytest.mark.parametrize(("times", "published"), [(1, 825_986), (2, 1_646_978), (4, 3_288_962)])
def test_sat_counts_on_pattern(times, published):
    """The counts are with two logits; the platform's head has one for two classes."""
    encoders = [RandomWalkPE(7)]
    model = SAT(SPECS["PATTERN"], num_layers=6 * times, num_towers=1, positional_encoders=encoders)
    assert count_with_head(model, 2, 2) == published


def merged(base, over):
    """Merge one configuration over another."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {name: merged(base.get(name), value) for name, value in over.items()}
    return over


@pytest.mark.parametrize("name", RECIPES | DEEPER)
def test_configurations_have_the_parameters_they_expect(name):
    config = {}
    for path in (RECIPES | DEEPER)[name]:
        config = merged(config, yaml.safe_load(path.read_text(encoding="utf-8")))
    spec, part = SPECS[config["data"]["class_path"]], config["model"]["architecture"]
    options = {name: instantiate(value) for name, value in part["init_args"].items()}
    missing = 0
    if options["hidden_dim"] == 768:  # one layer represents all, since drawing them would take a while
        missing, options["num_layers"] = options["num_layers"] - 1, 1
    model = getattr(graphbench_baselines, part["class_path"])(spec, **options)
    head = HeadConfig(**config["model"]["head"]).mlp(model.dim, spec.output_dim)
    total = count(model) + count(head) + missing * count(model.layers[0])
    assert config["expected"]["parameters"] == total
    assert (config["expected"]["value"] is None) == (name in DEEPER), "no number is published for deeper models"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/overlays/re-attention.yaml")), ids=str)
def test_overlays_name_options_that_exist(path):
    for overlay in (path, path.with_name("fusion.yaml")):
        part = yaml.safe_load(overlay.read_text(encoding="utf-8"))["model"]["architecture"]
        model = getattr(graphbench_baselines, part["class_path"])(SPECS["ZINC"], num_layers=1, **part["init_args"])
        plain = getattr(graphbench_baselines, part["class_path"])(SPECS["ZINC"], num_layers=1)
        assert count(model) - count(plain) in (model.dim, 8 * 8 + 3 * 8)


@pytest.mark.parametrize("model", [SAT, Graphormer])
def test_the_base_configuration_of_a_model_loads(model):
    config = yaml.safe_load((CONFIGS / "model" / f"{model.__name__.lower()}.yaml").read_text(encoding="utf-8"))
    options = {k: instantiate(v) for k, v in config["model"]["architecture"]["init_args"].items()}
    assert (
        count_with_head(model(SPECS["ZINC"], **options), config["model"]["head"]["num_layers"], 1)
        == {
            SAT: 524_641,
            Graphormer: 475_097,
        }[model]
    )


@pytest.mark.parametrize("version", ["paper", "fairseq"])
def test_released_tables_refuse_dense_features(version):
    dense = BenchmarkSpec("Dense", "graph-regression", Features(dense=3), Features(), "MAE", False, "L1")
    with pytest.raises(BadInput, match="categorical features only"):
        Graphormer(dense, version=version, released=True)


def test_first_tables_take_one_column():
    with pytest.raises(BadInput, match="one column of each"):
        Graphormer(SPECS["PCQM4M"], released=True)
