"""The depth experiment without training: its configurations, and its tables and figure from finished runs."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import yaml

from graphbench.benchmarks import CLUSTER, ZINC
from graphbench.encodings import Substructures
from graphbench_deepgraph import CoverageSampler, DeepGraph

SCRIPT = Path(__file__).parents[1] / "experiments" / "depth.py"


@pytest.fixture(scope="module")
def depth():
    specification = importlib.util.spec_from_file_location("depth_experiment", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    yield module
    del sys.modules[specification.name]


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


def test_assignments_reach_nested_options(depth):
    content = {"data": {"init_args": {"batch_size": 4}}}
    depth.assign(content, "data.init_args.sizes=[4, 2]")
    depth.assign(content, "trainer.accelerator=gpu")
    assert content["data"]["init_args"] == {"batch_size": 4, "sizes": [4, 2]}
    assert content["trainer"] == {"accelerator": "gpu"}
    with pytest.raises(SystemExit, match="NAME=VALUE"):
        depth.assign(content, "trainer.accelerator")


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
    monkeypatch.setattr(depth, "graphbench", lambda *arguments: pytest.fail(f"ran {arguments}"))
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


def test_interrupted_runs_go_on_and_stopped_ones_start_anew(depth, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(depth, "graphbench", lambda *arguments: calls.append(arguments[:2]))
    going, stopped = (depth.Run("zinc", "deepgraph", 2, seed) for seed in (0, 1))
    (going.folder(tmp_path) / "checkpoints").mkdir(parents=True)
    (going.folder(tmp_path) / "checkpoints" / "last.ckpt").touch()
    stopped.folder(tmp_path).mkdir()
    for run in (going, stopped):
        depth.execute(run, tmp_path, 3, [])
    assert [call for call in calls if call[0] == "fit"] == [("fit", "--resume"), ("fit", "--config")]
    assert (tmp_path / "runs" / "zinc-deepgraph-2-1.stopped-1").is_dir()
