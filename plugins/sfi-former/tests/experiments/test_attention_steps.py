"""The script of figure 4: its options for `graphbench fit`, its table and figures, and a whole run on a few graphs."""

from __future__ import annotations

import csv
import importlib.util
import sys
from pathlib import Path

import matplotlib.image
import pytest
import torch
import yaml

from graphbench.cli import main
from graphbench_sfi_former import FlowSteps

SCRIPT = Path(__file__).parents[2] / "experiments" / "attention_steps.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("sfi_attention_steps", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["sfi_attention_steps"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["sfi_attention_steps"]


@pytest.fixture
def layers():
    """Of SFi-Former, whose exact flow is half of the unit matrix, and of DFi-Former, one head and two nodes each."""
    half = torch.eye(2)[None] / 2
    flows = torch.stack([torch.full((1, 2, 2), -0.5), half])
    sfi = FlowSteps(3, (0, 5), flows, half, half + 0.1)
    dfi = FlowSteps(3, (), torch.zeros(0, 1, 2, 2), torch.full((1, 2, 2), 0.5), half)
    return sfi, dfi


@pytest.mark.parametrize(("model", "name"), [("sfi-former", "SFiFormer"), ("dfi-former", "DFiFormer")])
def test_options_make_a_configuration_of_generated_graphs(script, model, name, capsys, tmp_path):
    words = script.training(model, 3, 2, extra=["--trainer.precision", "32"]).arguments(tmp_path)
    with pytest.raises(SystemExit, match="0"):
        main(["fit", *words, "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["model"]["architecture"]["class_path"].endswith(name)
    assert (config["seed_everything"], config["trainer"]["max_epochs"]) == (3, 2)
    assert config["data"]["init_args"]["source"] == "generated"


def test_table_has_zeros_sums_and_distances(script, layers, tmp_path):
    script.write(tmp_path, [7], [[layers[0]]], [[layers[1]]])
    with (tmp_path / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["graph"], row["layer"], row["head"]) for row in rows] == [("7", "3", "0")] * 4
    values = [(row["step"], float(row["zeros"]), float(row["row_sum"]), row["error"]) for row in rows]
    # the start is (-1, -1/2; -1/2, -1) away from a flow of norm sqrt(1/2): sqrt(2.5) / sqrt(0.5)
    assert values == [
        ("0", 0.0, -1.0, "2.24"),
        ("5", 0.5, 0.5, "0"),
        ("exact", 0.5, 0.5, ""),
        ("softmax", 0.0, 1.0, ""),
    ]


def test_pictures_show_every_step_and_both_models(script, layers, tmp_path):
    shown = script.panels(*layers)
    assert [name for name, _ in shown] == [
        "start", "step 5", "SFi-Former, exact", "SFi-Former, with A", "DFi-Former", "DFi-Former, with A",
    ]  # fmt: skip
    figure = script.draw(shown, "title")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 6
    assert images[0].get_array().tolist() == [[0.5, 0.5], [0.5, 0.5]]  # the absolute value
    white = images[1].cmap(images[1].norm(images[1].get_array()))[0, 1]
    assert white.tolist() == [1, 1, 1, 1]
    script.write(tmp_path, [7], [[layers[0]]], [[layers[1]]])
    assert matplotlib.image.imread(tmp_path / "attention_steps" / "val-7_layer-3.png").std() > 0


@pytest.mark.slow
def test_two_small_trainings_are_draw(script, tmp_path, monkeypatch):
    """Both models on a few generated graphs; a second call trains nothing and analyses again."""
    monkeypatch.setenv("GRAPHBENCH_STORE", str(tmp_path / "store"))
    words = ["--output", str(tmp_path), "--epochs", "1", "--graphs", "0", "--steps", "0", "5", "400",
             "--data.init_args.sizes=[16,4,4]", "--model.architecture.init_args.num_layers=2",
             "--trainer.callbacks=null"]  # fmt: skip
    script.main(words)
    with (tmp_path / "steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["step"] for row in rows} == {"0", "5", "400", "exact", "softmax"}
    assert {row["layer"] for row in rows} == {"0", "1"}
    by_step = {step: [float(row["error"]) for row in rows if row["step"] == step] for step in ("0", "5", "400")}
    assert all(late < early for early, late in zip(by_step["0"], by_step["400"], strict=True))
    exact = [float(row["row_sum"]) for row in rows if row["step"] in ("exact", "softmax")]
    assert all(0.9 < value < 1.001 for value in exact)
    assert len(list((tmp_path / "attention_steps").glob("val-0_layer-*.png"))) == 2
    runs = [(tmp_path / "runs" / f"{model}-0") for model in ("sfi-former", "dfi-former")]
    script.main(["--output", str(tmp_path / "again"), "--sfi", str(runs[0]), "--dfi", str(runs[1]), "--graphs", "0",
                 "--steps", "0", "5", "400"])  # fmt: skip
    assert (tmp_path / "again" / "steps.csv").read_text() == (tmp_path / "steps.csv").read_text()
