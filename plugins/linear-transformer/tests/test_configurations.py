"""`graphbench params` on the configurations of QM9 against the counts of table 2; the command needs no data."""

import json
from pathlib import Path

import pytest
import yaml

from graphbench.cli import main

CONFIGS = Path(__file__).parents[1] / "configs"
#: GT + LapPE has 799,747; GT without it lacks the map of 3 positions to 128 numbers; the linear transformer adds 240.
PUBLISHED = {"qm9-gt": 799_747 - 512, "qm9-gt-lappe": 799_747, "qm9-gt-linear-transformer": 799_747 + 240}


@pytest.mark.parametrize("name", PUBLISHED)
def test_qm9_models_have_the_published_parameters(name, capsys):
    path = CONFIGS / f"{name}.yaml"
    assert main(["params", "--config", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == PUBLISHED[name]
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["expected"]["parameters"] == PUBLISHED[name]


def test_all_configurations_of_qm9_read_the_same_molecules():
    found = [
        yaml.safe_load(path.read_text(encoding="utf-8"))["data"]["init_args"] for path in CONFIGS.glob("qm9-*.yaml")
    ]
    options = [one["graphs"]["init_args"] if "graphs" in one else one for one in found]
    assert len(options) == 4
    for one in options:
        assert {key: one[key] for key in sorted(one.keys() - {"batch_size"})} == {
            "features": "types",
            "hydrogens": False,
            "source": "qm9pack",
            "split": "electric-flow",
            "target": "constrained_solubility",
        }
