"""`graphbench params` on every published GraphGPS configuration; the command needs no data."""

import json
from pathlib import Path

import pytest
import yaml
from quick import one_of_each

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


def test_no_configuration_is_left_out():
    assert {path.stem for path in CONFIGS.glob("*.yaml")} - {"tsp"} == PUBLISHED.keys(), "GPS was not published on TSP"


@pytest.mark.parametrize("name", one_of_each(PUBLISHED, number=4))
def test_parameters_are_the_published_ones(name, capsys):
    assert main(["params", "--config", str(CONFIGS / f"{name}.yaml"), "--json"]) == 0
    expected = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["expected"]
    assert (
        json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == PUBLISHED[name] == expected["parameters"]
    )
