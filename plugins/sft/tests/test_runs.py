"""The reduced runs without training: recipes, models, and tables and figures from finished runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from scripts import load_script

from graphbench import Features, experiments
from graphbench.experiments import read_csv
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft import SFT
from graphbench_sft.inputs import NORMALS

SCRIPT = Path(__file__).parents[1] / "experiments" / "runs.py"


@pytest.fixture(scope="module")
def runs():
    return load_script(SCRIPT)


def merged(training):
    """Return the options of the architecture that `graphbench fit` would get: files, then options."""
    options = {}
    for file in training.configs:
        options |= yaml.safe_load(file.read_text())["model"]["architecture"]["init_args"]
    for option in training.options:
        name, _, value = option.partition("=")
        options[name.rpartition(".")[2]] = yaml.safe_load(value)
    return options


def test_every_recipe_says_that_it_is_reduced(runs):
    assert runs.RECIPES.name == "reduced"
    for benchmark in runs.MODELS:
        assert (runs.RECIPES / f"{benchmark}.yaml").read_text().startswith("# REDUCED: no published recipe")


@pytest.mark.parametrize("benchmark", ["solids", "listops", "pathfinder", "amppeptides"])
def test_baselines_share_everything_but_attention_and_places(runs, benchmark):
    models = {model: merged(runs.training(benchmark, model, 0)) for model in runs.MODELS[benchmark]}
    free = {"attention", "relative", "sampler", "num_samples", "positional_encoders", "places_in_tokens"}
    kept = [{name: value for name, value in options.items() if name not in free} for options in models.values()]
    assert all(options == kept[0] for options in kept)
    sft, softmax, dense = (models[name] for name in ("sft", "softmax", "dense"))
    assert softmax == sft | {"attention": "softmax_dot"}
    walks = models["sft-walks"]["positional_encoders"] if benchmark == "amppeptides" else None
    assert (dense["attention"], dense["relative"], dense["sampler"]) == ("softmax_dot", "none", "none")
    assert dense.get("positional_encoders") == walks
    if benchmark == "solids":
        assert models["sft-distances"] == sft | {"relative": "distances", "places_in_tokens": True}
        assert models["softmax-distances"] == models["sft-distances"] | {"attention": "softmax_dot"}
    assert all("evaluation" not in options for options in models.values()), "all tables but one are as trained"


def test_sampling_rates_are_shares_of_the_points(runs):
    points = yaml.safe_load((runs.RECIPES / "solids.yaml").read_text())["data"]["init_args"]["num_points"]
    assert points == runs.POINTS
    for model, rate in runs.RATES.items():
        assert merged(runs.training("solids", model, 0))["num_samples"] == rate * points


def test_commands_reach_the_command_line(runs, monkeypatch, tmp_path):
    """`graphbench fit` builds the overlaid model; stopping there keeps the test free of data."""
    from graphbench.cli.lightning import GraphbenchCLI
    from graphbench.cli.options import import_named

    extra = ["--data.root", str(tmp_path), "--trainer.accelerator", "cpu"]
    arguments = runs.training("solids", "sft-6", 3, extra).arguments(tmp_path)
    arguments += ["--trainer.logger", "false", "--trainer.enable_checkpointing", "false"]
    monkeypatch.setattr("sys.argv", ["graphbench"])
    import_named(arguments)
    cli = GraphbenchCLI(arguments)
    assert cli.config["seed_everything"] == 3
    assert [layer.attention.sampler.num_samples for layer in cli.model.architecture.layers] == [8] * 3


def finish(runs, output, benchmark, model, seed, val, test):
    """Create a folder like one from `graphbench fit` and `test`; the second epoch was resumed, so it is there twice."""
    folder = runs.training(benchmark, model, seed).folder(output)
    folder.mkdir(parents=True)
    scores = {"metric": "accuracy", "val": {"val/accuracy": max(val)}, "test": {"test/accuracy": test}}
    facts = {"parameters": 7, "epochs": len(val), "steps": 9, "fit_seconds": 1.5}
    (folder / "results.json").write_text(json.dumps(scores | facts))
    lines = ["epoch,step,train/accuracy,val/accuracy", ",9,,", "1.0,9,0.9,"]
    for epoch, score in enumerate(val):
        lines += [f"{float(epoch)},9,,{score}", f"{epoch},9,{score + 0.1},"]
    (folder / "metrics.csv").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_finished_runs_are_collected_whatever_call_made_them(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "graphbench.experiments.trainings.graphbench", lambda *arguments: pytest.fail(f"ran {arguments}")
    )
    monkeypatch.setattr(runs, "score_by_topk", lambda folder: None)
    finish(runs, tmp_path, "solids", "sft", 0, [0.2, 0.1, 0.4], 0.35)
    finish(runs, tmp_path, "solids", "sft", 1, [0.2, 0.3, 0.2], 0.25)
    finish(runs, tmp_path, "solids", "sft-6", 0, [0.1, 0.1, 0.1], 0.1)
    finish(runs, tmp_path, "listops", "dense", 0, [0.2, 0.5], 0.5)
    (tmp_path / "runs" / "solids-sft-0.stopped-1").mkdir()
    (tmp_path / "runs" / "listops-sft-0").mkdir()
    runs.main(["--output", str(tmp_path), "--benchmarks", "solids", "--models", "sft", "--seeds", "0", "1"])
    table = read_csv(tmp_path / "runs.csv")
    named = [(row["benchmark"], row["model"], row["seed"]) for row in table]
    assert named == [
        ("solids", "sft", "0"),
        ("solids", "sft", "1"),
        ("solids", "sft-6", "0"),
        ("listops", "dense", "0"),
    ]
    assert [float(row["test"]) for row in table] == [0.35, 0.25, 0.1, 0.5]
    curves = read_csv(tmp_path / "convergence.csv")
    assert {(row["benchmark"], row["model"]) for row in curves} == {("solids", "sft"), ("listops", "dense")}
    curve = [row for row in curves if (row["model"], row["seed"]) == ("sft", "0")]
    assert [float(row["val"]) for row in curve] == [0.2, 0.1, 0.4]
    assert [float(row["best_val"]) for row in curve] == [0.2, 0.2, 0.4]
    assert [float(row["train"]) for row in curve] == pytest.approx([0.3, 0.2, 0.5]), "the resumed epoch counts"
    sampling = read_csv(tmp_path / "sampling.csv")
    assert {(float(row["rate"]), float(row["test"])) for row in sampling} == {(0.25, 0.35), (0.25, 0.25), (0.0625, 0.1)}
    for name in ("convergence.png", "sampling.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_missing_runs_start_with_the_options_of_the_call(runs, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("graphbench.experiments.trainings.graphbench", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(runs, "score_by_topk", lambda folder: None)
    runs.main(["--output", str(tmp_path), "--benchmarks", "listops", "--seeds", "5", "--trainer.max_epochs", "2"])
    fits = [call for call in calls if call[0] == "fit"]
    assert [Path(call[-1]).name for call in fits] == [f"listops-{model}-5" for model in ("sft", "softmax", "dense")]
    for call in fits:
        assert "--seed_everything=5" in call
        assert call[call.index("--trainer.max_epochs") + 1] == "2"


@pytest.mark.slow
def test_the_same_weights_are_scored_by_topk_in_a_copy_of_the_run(runs, tmp_path, monkeypatch):
    finish(runs, tmp_path, "solids", "sft", 0, [0.2, 0.4], 0.35)
    calls = []

    def test(*arguments):
        calls.append(arguments)
        folder = Path(arguments[2])
        assert "test" not in experiments.results(folder), "the copy must not start with the scores of the run"
        scores = {"metric": "accuracy", "test": {"test/accuracy": 0.3}}
        (folder / "results.json").write_text(json.dumps(scores))

    monkeypatch.setattr(runs, "graphbench", test)
    folder = runs.training("solids", "sft", 0).folder(tmp_path)
    for _ in range(2):  # what is scored stays
        runs.score_by_topk(folder)
    copy = folder.with_name("solids-sft-0.topk")
    assert calls == [("test", "--run", str(copy), "--model.architecture.init_args.evaluation", "topk")]
    assert (copy / "metrics.csv").is_file()
    runs.collect(tmp_path)
    rows = [(row["evaluation"], row["test"]) for row in read_csv(tmp_path / "evaluation.csv")]
    assert rows == [("as_trained", "0.35"), ("topk", "0.3")]
    assert len(read_csv(tmp_path / "runs.csv")) == 1


def test_means_are_taken_at_each_key(runs):
    rows = [{"rate": 0.5, "test": 0.2}, {"rate": 0.25, "test": 0.1}, {"rate": 0.5, "test": 0.4}]
    assert runs.mean_by(rows, "rate", "test") == ([0.25, 0.5], pytest.approx([0.1, 0.3]))


@pytest.mark.parametrize(("attention", "tells"), [("maxout_leaky", True), ("softmax_dot", False)])
def test_softmax_cannot_tell_clouds_apart_whose_points_enter_equal(attention, tells):
    """Figure 6 is not drawn on rotation-invariant clouds: shares that sum to 1 of equal values are that value."""
    features = Features(dense=3, names=NORMALS)
    spec = replace(tiny_spec("graph-classification", "coordinates"), node=features, edge=Features())
    torch.manual_seed(0)
    model = SFT(spec, 16, 2, 4, 8, relative="distances", attention=attention, readout="sampled_max").eval()
    first, second = model(tiny_table(spec, sizes=[24, 24]).batch([0, 1])).graph
    assert ((first - second).abs().amax() > 1e-4) == tells
