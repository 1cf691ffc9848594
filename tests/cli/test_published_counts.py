"""`graphbench params` on every published GraphGPS configuration.

Benchmarks that are not installed yet are stood in for by a package that registers their specifications alone: the
command needs no data.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml

from graphbench import registry
from graphbench.cli import main

CONFIGS = Path(__file__).parents[2] / "plugins" / "baselines" / "configs" / "gps"
PUBLISHED = {
    "zinc": 423_717,
    "pattern": 337_201,
    "cluster": 502_054,
    "mnist": 115_394,
    "cifar10": 112_726,
    "pascalvoc-sp": 510_453,
    "coco-sp": 516_273,
    "peptides-func": 504_442,
    "peptides-struct": 504_539,
    "pcqm-contact": 512_784,
    "pcqm4mv2-small": 6_152_285,
    "pcqm4mv2-medium": 19_415_005,
}
MOLECULE = "Features((119, 5, 12, 12, 10, 6, 6, 2, 2)), Features((5, 6, 2))"
SUPERPIXEL = "Features(dense=14), Features(dense=2), 'macro_F1', True, 'weighted_cross_entropy'"
CLASSES = "'class_accuracy', True, 'weighted_cross_entropy'"
SPECS = {
    "PATTERN": f"'node-classification', Features((3,)), Features(), {CLASSES}, num_classes=2",
    "CLUSTER": f"'node-classification', Features((7,)), Features(), {CLASSES}, num_classes=6",
    "MNISTSuperpixels": "'graph-classification', Features(dense=3), Features(dense=1), 'accuracy', True, "
    "'cross_entropy', num_classes=10",
    "CIFAR10Superpixels": "'graph-classification', Features(dense=5), Features(dense=1), 'accuracy', True, "
    "'cross_entropy', num_classes=10",
    "PascalVOCSP": f"'node-classification', {SUPERPIXEL}, num_classes=21",
    "COCOSP": f"'node-classification', {SUPERPIXEL}, num_classes=81",
    "PeptidesFunc": f"'graph-multilabel', {MOLECULE}, 'AP', True, 'BCE', num_targets=10",
    "PeptidesStruct": f"'graph-regression', {MOLECULE}, 'MAE', False, 'L1', num_targets=11",
    "PCQMContact": f"'link-ranking', {MOLECULE}, 'MRR', True, 'contrastive_BCE'",
    "PCQM4Mv2": f"'graph-regression', {MOLECULE}, 'MAE', False, 'L1'",
}


@pytest.fixture(scope="module", autouse=True)
def specifications(tmp_path_factory):
    folder = tmp_path_factory.mktemp("specifications")
    missing = SPECS.keys() - registry.benchmarks().keys()
    lines = ["from graphbench import BenchmarkSpec, Features", "from graphbench.benchmarks import GraphBenchmark"]
    lines += [f"class {name}(GraphBenchmark):\n    spec = BenchmarkSpec('{name}', {SPECS[name]})" for name in missing]
    (folder / "published_specifications.py").write_text("\n".join(lines))
    metadata = folder / "published_specifications-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: published-specifications\nVersion: 1.0\n")
    entries = [f"{name} = published_specifications:{name}" for name in missing]
    (metadata / "entry_points.txt").write_text("\n".join(["[graphbench.benchmarks]", *entries]))
    sys.path.insert(0, str(folder))
    registry.refresh()
    yield
    sys.path.remove(str(folder))
    registry.refresh()


def test_no_configuration_is_left_out():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == PUBLISHED.keys()


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name, capsys):
    assert main(["params", "--config", str(CONFIGS / f"{name}.yaml"), "--json"]) == 0
    expected = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["expected"]
    assert (
        json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == PUBLISHED[name] == expected["parameters"]
    )
