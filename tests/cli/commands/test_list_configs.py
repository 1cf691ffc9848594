"""`graphbench list configs` shows what is installed and what each expects, without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from graphbench.cli import main


@pytest.fixture(scope="module")
def listed():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "graphbench", "list", "configs", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {entry["name"]: entry for entry in json.loads(done.stdout)["configs"]}, done.stderr


def test_torch_is_not_imported(listed):
    imported = {line.rpartition("|")[2].strip() for line in listed[1].splitlines() if line.startswith("import time:")}
    assert "yaml" in imported
    assert not imported & {"torch", "numpy", "pytorch_lightning", "jsonargparse", "graphbench_baselines"}


def test_json_has_what_a_configuration_expects(listed):
    zinc = listed[0]["gps/zinc"]
    assert (zinc["kind"], zinc["benchmark"], zinc["model"]) == ("recipe", "ZINC", "GPS")
    expected = {name: zinc["expected"][name] for name in ("metric", "value", "sd", "parameters", "epochs", "data")}
    assert expected == {
        "metric": "test/MAE", "value": 0.07, "sd": 0.004, "parameters": 423_717, "epochs": 2000, "data": "published",
    }  # fmt: skip
    deeper = listed[0]["sat/overlays/zinc-x2"]
    assert (deeper["kind"], deeper["over"], deeper["expected"]["parameters"]) == ("overlay", "sat/zinc", 940_417)
    assert listed[0]["model/gcn"]["kind"] == "part"
    assert listed[0]["quickstart"]["expected"]["cost"]


def test_the_table_has_a_line_per_configuration(capsys, listed):
    assert main(["list", "configs"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[2:] if line.strip()}
    assert lines.keys() >= listed[0].keys()
    assert "ZINC" in lines["gps/zinc"]
    assert "test/MAE 0.07 ± 0.004" in lines["gps/zinc"]
    assert "over sat/zinc" in lines["sat/overlays/zinc-x2"]


def test_check_finds_nothing_wrong():
    assert main(["list", "configs", "--check"]) == 0


def test_other_groups_are_named_where_one_is_unknown(capsys):
    assert main(["list", "config"]) == 1
    assert "Did you mean configs" in capsys.readouterr().err
