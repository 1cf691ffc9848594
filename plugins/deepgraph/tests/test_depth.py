"""The depth experiment without training: its configurations, and its tables and figure from finished runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml
from scripts import load_script

from graphbench import experiments
from graphbench.benchmarks import CLUSTER, ZINC
from graphbench.encodings import Substructures
from graphbench_deepgraph import CoverageSampler, DeepGraph

SCRIPT = Path(__file__).parents[1] / "experiments" / "depth.py"


@pytest.fixture(scope="module")
def depth():
    return load_script(SCRIPT)


@pytest.mark.parametrize(("data", "spec"), [("zinc", ZINC.spec), ("cluster", CLUSTER.spec)])
def test_rivals_share_width_and_depth(depth, data, spec):
    contents = {model: depth.configuration(depth.Run(data, model, 3, 7), 40) for model in depth.MODELS}
    models = {name: content["model"]["architecture"]["init_args"] for name, content in contents.items()}
    assert all(options["num_layers"] == 3 for options in models.values())
    assert len({(options["hidden_dim"], options["num_heads"], options["dropout"]) for options in models.values()}) == 1
    assert len({yaml.safe_dump(content["trainer"]) for content in contents.values()}) == 1
    for name in ("deepgraph", "relative"):
        options = dict(models[name])
        options["substructures"] = Substructures(**options["substructures"]["init_args"])
        options["sampling"] = CoverageSampler(**options["sampling"])
        model = DeepGraph(spec, **options)
        assert (model.substructure_encoder is None) == (name == "relative")


def finished(depth, run, output, test):
    """A folder as `graphbench fit` and `test` leave it."""
    folder = run.folder(output)
    (folder / "diagnostics").mkdir(parents=True)
    scores = {"metric": "MAE", "parameters": 5, "val": {"val/MAE": 1.0}, "test": {"test/MAE": test}}
    (folder / "results.json").write_text(json.dumps(scores))
    with (folder / "diagnostics" / "attention_capacity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "layer", "module", "measure", "value", "graphs"])
        for epoch in (0, 3):
            writer.writerows([epoch, 1, layer, "m", "capacity", 0.9 - 0.1 * layer + epoch, 32] for layer in (0, 1))
            writer.writerow([epoch, 1, 0, "m", "entropy", 1.0, 32])


def test_finished_runs_are_collected_and_never_run_again(depth, tmp_path, monkeypatch):
    runs = [depth.Run("zinc", "deepgraph", 2, seed) for seed in (0, 1)]
    for run, test in zip(runs, (0.2, 0.4), strict=True):
        finished(depth, run, tmp_path, test)
    monkeypatch.setattr(experiments, "graphbench", lambda *arguments: pytest.fail(f"ran {arguments}"))
    for run in runs:
        depth.execute(run, tmp_path, 3, [])
    depth.collect([*runs, depth.Run("zinc", "graphormer", 2, 0)], tmp_path)
    scores = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert [float(row["test"]) for row in scores] == [0.2, 0.4]
    capacities = list(csv.DictReader((tmp_path / "capacity.csv").open()))
    assert [float(row["value"]) for row in capacities] == pytest.approx([3.9, 3.8] * 2), "of the last epoch only"
    assert (tmp_path / "depth.png").stat().st_size > 1000
    rows = [dict(row, layers=2, test=float(row["test"])) for row in scores]
    assert depth.means(rows, "layers", "test", data="zinc", model="deepgraph") == pytest.approx({2: 0.3})


def test_a_new_run_gets_the_assigned_configuration(depth, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(experiments, "graphbench", lambda *arguments: calls.append(arguments))
    run = depth.Run("zinc", "deepgraph", 2, 5)
    depth.execute(run, tmp_path, 3, ["data.init_args.batch_size=7"])
    command, option, path, *_ = calls[0]
    assert (command, option) == ("fit", "--config")
    content = yaml.safe_load(Path(path).read_text())
    assert content["data"]["init_args"]["batch_size"] == 7
    assert (content["seed_everything"], content["trainer"]["max_epochs"]) == (5, 3)
