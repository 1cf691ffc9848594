"""`graphbench sweep`: runs that it trains, skips and resumes, and its report, with trainings of two epochs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
import torch
import yaml
from own_graphs import ring
from quick import one_of_each
from scipy import stats
from torch_geometric.data import Data
from waits import wait_until

from graphbench.cli import main
from graphbench.experiments import CommandFailed

SIZES = {"hidden_dim": 8, "num_layers": 1, "dropout": 0.2}


@pytest.fixture(scope="module")
def configs(molecule_file, tmp_path_factory):
    """Write two models on the file of molecules: gcn.yaml and gin.yaml."""
    folder = tmp_path_factory.mktemp("sweep-configs")
    data = {"file": str(molecule_file), "target": "length", "batch_size": 32, "root": str(folder / "data")}
    for name in ("GCN", "GIN"):
        content = {
            "data": {"class_path": "Molecules", "init_args": data},
            "model": {"architecture": {"class_path": name, "init_args": SIZES}},
            "trainer": {"max_epochs": 2, "accelerator": "cpu"},
        }
        (folder / f"{name.lower()}.yaml").write_text(yaml.safe_dump(content))
    return folder


class Inside:
    """Runs the commands of a sweep in this process; those of a folder in `broken` fail."""

    def __init__(self):
        self.calls, self.broken = [], set()

    def __call__(self, *arguments, log=None, environment=None):
        self.calls.append(arguments)
        name = arguments[-1].rpartition("/")[2]
        code = 9 if name in self.broken else main(list(arguments))
        if code:
            raise CommandFailed(arguments[0], code)

    def trained(self):
        """Return the names of the runs that were fitted since the last call."""
        names = [call[-1].rpartition("/")[2] for call in self.calls if call[0] == "fit"]
        self.calls.clear()
        return names


@pytest.fixture
def inside(monkeypatch):
    made = Inside()
    monkeypatch.setattr("graphbench.experiments.sweeps.local.graphbench", made)
    return made


@pytest.fixture(scope="module")
def two_models(configs, tmp_path_factory):
    """Run a sweep of two models and two seeds twice, since one run fails at first; return what each call did."""
    output = tmp_path_factory.mktemp("sweep") / "out"
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--config", str(configs / "gin.yaml"), "--seeds", "0-1",
             "--output", str(output)]  # fmt: skip
    made = Inside()
    made.broken = {"gin-1"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphbench.experiments.sweeps.local.graphbench", made)
        first = main(words), made.trained(), (output / "table.csv").read_text()
        made.broken = set()
        second = main(words), made.trained(), (output / "table.csv").read_text()
    return output, words, first, second


def scores_of(output, name):
    return json.loads((output / "runs" / name / "results.json").read_text())["test"]["test/MAE"]


@pytest.mark.slow
def test_a_failed_training_does_not_stop_the_rest_and_is_tried_again(two_models):
    _, _, (code, trained, _), (code_again, trained_again, _) = two_models
    assert (code, code_again) == (1, 0)
    assert trained == ["gcn-0", "gin-0", "gcn-1", "gin-1"], "all models of a seed first"
    assert trained_again == ["gin-1"], "finished runs are skipped"


def test_the_report_is_over_all_that_is_finished(two_models):
    output, _, (_, _, early), (_, _, table) = two_models
    (output / "early.csv").write_text(early)
    assert pd.read_csv(output / "early.csv").set_index("model").loc["GIN", "test/MAE n"] == 1
    (output / "late.csv").write_text(table)
    rows = pd.read_csv(output / "late.csv").set_index("model")
    for name in ("gcn", "gin"):
        values = [scores_of(output, f"{name}-{seed}") for seed in range(2)]
        row = rows.loc[name.upper()]
        assert row["test/MAE n"] == 2
        assert row["test/MAE mean"] == pytest.approx(sum(values) / 2, rel=1e-12)
        assert row["test/MAE sd"] == pytest.approx(pd.Series(values).std(ddof=1), rel=1e-12)


def test_the_models_are_compared_seed_by_seed(two_models):
    output, *_ = two_models
    rows = pd.read_csv(output / "table.csv")
    models = rows[rows["kind"] == "model"].set_index("model")
    other = next(name for name in models.index if models.loc[name, "pairs"] > 0)
    best = next(name for name in models.index if name != other)
    assert models.loc[best, "val/MAE mean"] < models.loc[other, "val/MAE mean"]
    values = {name: [scores_of(output, f"{name.lower()}-{seed}") for seed in range(2)] for name in (best, other)}
    assert models.loc[other, "p"] == pytest.approx(stats.ttest_rel(values[other], values[best]).pvalue, rel=1e-9)
    assert models.loc[other, "p of"] == "paired t test"
    for file in ("table.md", "table.tex", "report.html"):
        assert "paired t test" in (output / file).read_text(), file


@pytest.mark.slow
def test_other_options_in_the_same_folder_are_refused(two_models, inside, capsys):
    _, words, *_ = two_models
    assert main([*words, "--trainer.max_epochs", "3"]) == 1
    said = capsys.readouterr().err
    assert "gcn-0 was trained with other options: trainer.max_epochs is 3 instead of 2. Name another --output" in said
    assert not inside.calls
    assert main([*words, "--slurm", "array.sh"]) == 1, "an option of earlier versions"
    assert "--launcher submitit" in capsys.readouterr().err


@pytest.mark.slow
def test_folds_test_every_molecule_once_and_share_a_row(configs, inside, molecule_file, tmp_path):
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--folds", "3", "--resplit", "scaffold",
             "--vary", "model.architecture.init_args.hidden_dim=4", "--output", str(tmp_path / "out"),
             "--trainer.max_epochs=1"]  # fmt: skip
    assert main(words) == 0
    names = [f"gcn-hidden_dim=4-fold{fold}-0" for fold in range(3)]
    assert inside.trained() == names
    parts = [json.loads((tmp_path / "out" / "runs" / name / "data.json").read_text())["splits"] for name in names]
    molecules = len(molecule_file.read_text().splitlines()) - 1
    assert sum(part["test"]["graphs"] for part in parts) == molecules
    assert len({part["test"]["content"] for part in parts}) == 3
    rows = pd.read_csv(tmp_path / "out" / "table.csv").set_index("model")
    assert rows.loc["GCN", "seeds"] == "0; folds 0, 1, 2"
    assert rows.loc["GCN", "test/MAE n"] == 3
    baselines = rows[rows["kind"] == "baseline"]
    assert baselines.index.is_unique, "a baseline has one row over all folds"
    assert set(baselines["test/MAE n"]) == {3}


def small_graphs(path, count=30, size=4):
    torch.save(
        [Data(x=torch.rand(size, 2), edge_index=ring(size), y=torch.tensor([n % 2])) for n in range(count)], path
    )
    return path


@pytest.mark.slow
def test_several_benchmarks_have_a_table_each_and_one_test_over_all(configs, inside, tmp_path):
    sources = [small_graphs(tmp_path / f"{name}.pt", size=size) for name, size in (("few", 4), ("more", 6))]
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--config", str(configs / "gin.yaml"), "--folds", "3",
             "--trainer.max_epochs=1", "--output", str(tmp_path / "out")]  # fmt: skip
    for source in sources:
        words += ["--benchmark", f"Graphs --data.source {source} --data.target y --data.root {tmp_path / 'data'}"]
    assert main(words) == 0
    assert inside.trained() == [
        f"{model}-Graphs-{number}-fold{fold}-0" for fold in range(3) for number in (1, 2) for model in ("gcn", "gin")
    ]
    for number in (1, 2):
        runs = [tmp_path / "out" / "runs" / f"gcn-Graphs-{number}-fold{fold}-0" for fold in range(3)]
        parts = [json.loads((run / "data.json").read_text())["splits"] for run in runs]
        assert sum(part["test"]["graphs"] for part in parts) == 30
        assert len({part["test"]["content"] for part in parts}) == 3
    rows = pd.read_csv(tmp_path / "out" / "table.csv")
    models = rows[rows["kind"] == "model"]
    assert sorted(name.partition(" ")[0] for name in models["model"]) == ["GCN", "GCN", "GIN", "GIN"]
    assert models["benchmark"].nunique() == 2
    assert "All benchmarks together" in (tmp_path / "out" / "report.html").read_text()


BAD = {
    "folds of CSL": (
        ["--config", "GCN", "--benchmark", "CSL", "--folds", "4"],
        "--folds 4: CSL has 5 folds, on which its scores are compared",
    ),
    "benchmark": (["--config", "GCN", "--benchmark", "Graphs --trainer.max_epochs 3"], "options of its data, such as"),
    "a file as a benchmark": (
        ["--config", "GCN", "--benchmark", "mine.csv"],
        "--data mine.csv: this option takes the name of a benchmark",
    ),
    "option of a benchmark": (
        ["--config", "GCN", "--benchmark", "CSL --data.fould 1"],
        "CSL has no option 'fould'. Did you mean --data.fold?",
    ),
    "no model": ([], "needs --config NAME_OR_FILE, once for every model"),
    "no such model": (["--config", "gcm"], "--config gcm: there is no such file"),
    "seeds": (["--config", "GCN", "--seeds", "4-0"], "--seeds 4-0: expected numbers and ranges such as 0-4"),
    "far too many": (["--config", "GCN", "--seeds", "0-999", "--folds", "5"], "5,000 trainings; at most 1,000"),
    "two folds": (["--config", "GCN", "--folds", "2"], "--folds must be an integer of at least 3, but got 2"),
    "no value": (["--config", "GCN", "--vary", "trainer.max_epochs"], "expected OPTION=VALUE,VALUE"),
    "twice": (["--config", "GCN", "--config", "GCN"], "Two models of the sweep would have the folder gcn"),
    "unknown option": (
        ["--config", "GCN", "--vary", "model.architecture.init_args.num_layer=1,2"],
        "GCN has no option 'num_layer'. Did you mean --model.architecture.num_layers?",
    ),
    "near an own option": (["--config", "GCN", "--job", "3"], "Unknown option --job. Did you mean --jobs?"),
    "an option of no model": (
        ["--config", "GCN", "--model.architecture.num_layer", "3"],
        "GCN has no option 'num_layer'",
    ),
    "a run": (["--config", "GCN", "--run", "here"], "graphbench sweep does not accept --run: its runs are in --output"),
    "a seed": (
        ["--config", "GCN", "--seed_everything=3"],
        "does not accept --seed_everything: --seeds names the seeds",
    ),
    "fixed split": (["--config", "quickstart", "--folds", "5"], "--folds 5: NCI has a fixed split, on which its"),
    "fixed split, anew": (["--config", "quickstart", "--resplit", "random"], "--resplit random: NCI has a fixed split"),
    "split of the file": (
        ["--config", "GCN", "--folds", "5", "--data.init_args.split=column", "--data.init_args.split_column=s"],
        "no column 's'",
    ),
    "no chance": (
        ["--config", "GCN", "--split-seeds", "0-4", "--data.init_args.split=scaffold"],
        "--split-seeds: split=scaffold depends on no seed. Add --resplit scaffold_balanced",
    ),
    "target": (
        ["--config", "GCN", "--data.target", "lenght", "--seeds", "0-3"],
        "no column 'lenght'. Its columns: 'smiles', 'length'.",
    ),
    "varied target": (["--config", "GCN", "--vary", "data.init_args.target=length,lenght"], "Did you mean 'length'?"),
    "varied and set": (
        [
            "--config",
            "GCN",
            "--vary",
            "model.architecture.init_args.num_layers=1,2",
            "--model.architecture.num_layers=3",
        ],
        "--model.architecture.num_layers 3: --vary sets it for each training",
    ),
    "varied twice": (
        ["--config", "GCN", "--vary", "data.batch_size=4,8", "--vary", "data.init_args.batch_size=16"],
        "data.init_args.batch_size is varied twice",
    ),
    "two benchmarks": (["--config", "GCN", "--benchmark", "CSL", "--data", "NCI"], "--data NCI: --benchmark sets it"),
    "two splits": (["--config", "GCN", "--resplit", "scaffold", "--data.split", "random"], "--resplit sets it"),
    "jobs": (["--config", "GCN", "--jobs", "0"], "--jobs must be an integer of at least 1, but got 0"),
    "only": (["--config", "GCN", "--only", "1"], "--only must be an integer of at least 0 and below 1, but got 1"),
}


@pytest.mark.parametrize("name", one_of_each(BAD, number=8))
def test_a_mistake_is_one_line_before_anything_runs(name, configs, inside, tmp_path, capsys):
    words, message = BAD[name]
    words = [str(configs / "gcn.yaml") if word == "GCN" else word for word in words]
    assert main(["sweep", *words, "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err.strip()
    assert message in said
    assert len(said.splitlines()) == 1
    assert not inside.calls
    assert not (tmp_path / "out").exists()


def test_the_check_of_many_models_shows_its_progress(configs, inside, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("graphbench.data.progress.DELAY", -1.0)
    monkeypatch.setattr("graphbench.cli.commands.sweep._FEW", 1)
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--vary", "trainer.max_epochs=1,2", "--no-train"]
    assert main([*words, "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "Checking models: 1 of 2 models so far" in said
    assert "Checking models: 2 models in" in said
    assert "Comparing options: 2 runs in" in said


@pytest.mark.slow
def test_a_job_trains_one_and_writes_no_report_and_the_last_writes_it_and_trains_nothing(configs, inside, tmp_path):
    output = tmp_path / "out"
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--seeds", "0,3", "--output", str(output),
             "--trainer.max_epochs=1"]  # fmt: skip
    assert main([*words, "--only", "1"]) == 0
    assert [config.parent.name for config in (output / "runs").glob("*/config.yaml")] == ["gcn-3"]
    assert scores_of(output, "gcn-3") > 0
    assert not (output / "report.html").exists()
    inside.calls.clear()
    assert main([*words, "--no-train"]) == 1, "one has no score"
    assert not inside.calls
    assert (output / "report.html").is_file()


@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_ends_with_the_scores_of_one_that_nobody_killed(configs, inside, tmp_path):
    words = ["sweep", "--config", str(configs / "gcn.yaml"), "--seeds", "0-1", "--trainer.max_epochs=40"]
    assert main([*words, "--output", str(tmp_path / "whole")]) == 0
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "graphbench", *words, "--output", str(killed)]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    begun = killed / "runs" / "gcn-1" / "checkpoints" / "last.ckpt"
    wait_until(lambda: begun.is_file() or process.poll() is not None, 600)  # four processes import torch by then
    assert process.poll() is None, "the sweep ended before its second training wrote a checkpoint"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert begun.is_file()
    assert not (killed / "runs" / "gcn-1" / "results.json").is_file(), "killed in the second training"
    inside.calls.clear()
    assert main([*words, "--output", str(killed)]) == 0
    assert [call[:2] for call in inside.calls] == [("fit", "--resume"), ("test", "--run")]
    for seed in (0, 1):
        assert scores_of(killed, f"gcn-{seed}") == scores_of(tmp_path / "whole", f"gcn-{seed}")
