"""The script of the PATTERN runs, without training: its options for `graphbench fit`, and the tables that it writes."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

from graphbench.cli import main
from graphbench.experiments import read_records

SCRIPT = Path(__file__).parents[2] / "experiments" / "pattern.py"


@pytest.fixture(scope="module")
def pattern():
    spec = importlib.util.spec_from_file_location("sfi_pattern", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sfi_pattern"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sfi_pattern"]


@pytest.mark.parametrize(("model", "name"), [("sfi-former", "SFiFormer"), ("gps", "GPS"), ("gatedgcn", "GPS")])
def test_options_make_a_configuration_of_generated_graphs(pattern, model, name, capsys, tmp_path):
    for published in (False, True):
        words = pattern.training(model, 3, 2, published, ["--trainer.precision", "32"]).arguments(tmp_path)
        with pytest.raises(SystemExit, match="0"):
            main(["fit", *words, "--print_config"])
        config = yaml.safe_load(capsys.readouterr().out)
        assert config["seed_everything"] == 3
        assert config["trainer"]["max_epochs"] == 2
        assert config["data"]["init_args"]["source"] == "generated"
        assert config["data"]["init_args"]["batch_size"] == (32 if published else 16)
        architecture = config["model"]["architecture"]
        assert architecture["class_path"].endswith(name)
        assert (architecture["init_args"].get("attention") == "none") == (model == "gatedgcn")
        names = [callback["class_path"].rpartition(".")[2] for callback in config["trainer"]["callbacks"]]
        assert names.count("GradientNorm") == 1


def test_tables_hold_what_is_finished(pattern, tmp_path):
    for model, seed in (("gps", 1), ("sfi-former", 0)):
        folder = tmp_path / "runs" / f"{model}-{seed}"
        (folder / "diagnostics").mkdir(parents=True)
        stored = {
            "metric": "class_accuracy", "parameters": 7, "epochs": 2, "fit_seconds": 5.0, "data": "generated",
            "val": {"val/class_accuracy": 0.81234}, "test": {"test/class_accuracy": 0.8},
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(stored))
        (folder / "diagnostics" / "gradient_norm.csv").write_text("epoch,step,norm\n0,1,0.5\n0,2,0.1\n1,3,2.0\n")
    (tmp_path / "runs" / "gps-2").mkdir()
    pattern.collect(tmp_path)
    with (tmp_path / "pattern.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["seed"]) for row in rows] == [("sfi-former", "0"), ("gps", "1")]
    assert rows[0]["graphs"] == "generated"
    assert (rows[0]["val"], rows[0]["median_gradient_norm"], rows[0]["max_gradient_norm"]) == ("0.8123", "0.5", "2")
    records = read_records([tmp_path / "records"])
    assert [(one.name, one.seed, one.test, one.full) for one in records] == [
        ("GPS", 1, 0.8, False), ("SFi-Former", 0, 0.8, False),
    ]  # fmt: skip
    assert records[0].recipe == ("gps/pattern", "sfi-former/overlays/pattern-short")
    with (tmp_path / "gradient_norms.csv").open() as file:
        norms = [(row["model"], row["epoch"], row["max_gradient_norm"]) for row in csv.DictReader(file)]
    assert norms == [("sfi-former", "1", "0.5"), ("sfi-former", "2", "2"), ("gps", "1", "0.5"), ("gps", "2", "2")]
