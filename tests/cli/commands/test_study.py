"""`graphbench study`: the runs that it trains and shares, and its page against their records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev

import pytest
import yaml
from scipy import stats
from waits import wait_until

from graphbench.cli import main
from graphbench.cli.commands import study
from graphbench.experiments import CommandFailed, Training
from graphbench.experiments.study import Row
from graphbench.runs.holding import claimed

#: Seeds and depths of the study that most tests read.
SEEDS, DEPTHS = (0, 1), (1, 2)


class Inside:
    """Runs the commands of a study in this process and records the fits."""

    def __init__(self):
        self.fits = []

    def __call__(self, *arguments, log=None, environment=None):
        if arguments[0] == "fit":
            self.fits.append(arguments[-1].rpartition("/")[2])
        if code := main(list(arguments)):
            raise CommandFailed(arguments[0], code)


@pytest.fixture(scope="module")
def config(molecule_file, tmp_path_factory):
    """Write a GPS of one layer on the file of molecules; its encodings need no pairs of nodes."""
    folder = tmp_path_factory.mktemp("study-config")
    data = {"file": str(molecule_file), "target": "length", "batch_size": 32, "root": str(folder / "data")}
    sizes = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2}
    encoder = {"class_path": "RWSEEncoder", "init_args": {"num_steps": 4, "dim": 4}}
    architecture = {"class_path": "GPS", "init_args": {**sizes, "positional_encoders": [encoder]}}
    content = {
        "data": {"class_path": "Molecules", "init_args": data},
        "model": {"architecture": architecture},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "logger": False},
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def words_of(config, output, *further, questions=("depth", "budget"), seeds="0-1", rivals=("GCN", "S4D")):
    return ["study", "--model", str(config), "--depths", *map(str, DEPTHS), "--rivals", *rivals, "--seeds", seeds,
            "--questions", *questions, "--output", str(output), *further]  # fmt: skip


@pytest.fixture(scope="module")
def finished(config, tmp_path_factory):
    """Return the folder of a study, the names of its fits, and those of a second call."""
    output = tmp_path_factory.mktemp("study") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphbench.experiments.sweeps.local.graphbench", first := Inside())
        assert main(words_of(config, output)) == 0
        patch.setattr("graphbench.experiments.sweeps.local.graphbench", second := Inside())
        assert main(words_of(config, output)) == 0
    return output, first.fits, second.fits


def scores(output, name):
    stored = (json.loads((output / "runs" / f"{name}-{seed}" / "results.json").read_text()) for seed in SEEDS)
    return [one["test"]["test/MAE"] for one in stored]


def run_named(fits, start):
    (name,) = {fit.removesuffix("-0") for fit in fits if fit.startswith(start) and fit.endswith("-0")}
    return name


def table(output, title):
    """Return the cells of a table of study.md by label and heading."""
    _, _, rest = (output / "study.md").read_text().partition(f"## {title}")
    lines = [line for line in rest.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(header, row, strict=True)) for row in rows}


def test_one_configuration_is_trained_once_whatever_it_answers(finished):
    """Two depths and a rival; one layer and the budget's GPS are one model."""
    _, first, second = finished
    assert len(first) == len(set(first)) == len(SEEDS) * (2 + 1)
    assert second == [], "a second call trains nothing"


def test_runs_of_data_that_changed_are_not_counted_as_done(config, finished, molecule_file, capsys):
    output, fits, _ = finished
    text = molecule_file.read_text()
    first, *others = text.splitlines()
    molecule_file.write_text("\n".join([first, *others[:-1]]) + "\n")
    try:
        assert main(words_of(config, output)) == 1
    finally:
        molecule_file.write_text(text)
    assert str(output / "runs" / fits[0]) in capsys.readouterr().err


def test_the_page_has_the_numbers_of_the_runs(finished):
    output, fits, _ = finished
    rows = table(output, "Is it better than others of its size?")
    own = scores(output, run_named(fits, "Molecules-depth-1-layer"))
    rival = scores(output, run_named(fits, "Molecules-budget-GCN"))
    for label, values in (("GPS", own), ("GCN", rival)):
        mean, _, spread = rows[label]["test MAE"].partition(" ± ")
        assert float(mean) == pytest.approx(fmean(values), rel=1e-3)
        assert float(spread) == pytest.approx(stdev(values), rel=1e-2, abs=1e-3)
    difference = [two - one for one, two in zip(own, rival, strict=True)]
    assert float(rows["GCN"]["test less GPS"].split()[0]) == pytest.approx(fmean(difference), rel=1e-3)
    assert rows["GCN"]["p (Holm)"] == f"p = {stats.ttest_rel(rival, own).pvalue:.2g}"
    counts = {label: int(rows[label]["parameters"].replace(",", "")) for label in ("GPS", "GCN")}
    assert counts["GCN"] == pytest.approx(counts["GPS"], rel=0.15)
    page = (output / "study.html").read_text()
    assert all(rows[label]["test MAE"] in page for label in rows)


def test_depths_stand_beside_what_the_layers_did(finished):
    output, *_ = finished
    rows = table(output, "What happens with depth?")
    assert list(rows) == ["1 layer", "2 layers"]
    counts = [int(row["parameters"].replace(",", "")) for row in rows.values()]
    assert counts[0] < counts[1]
    for row in rows.values():
        assert float(row["effective rank, output"].split()[0]) >= 1.0
        assert float(row["capacity, last layer"].split()[0]) > 0.0


def test_a_rival_that_cannot_take_part_has_a_row_that_says_why(finished):
    output, *_ = finished
    assert "S4D: " in (output / "study.md").read_text()
    assert table(output, "Is it better than others of its size?")["S4D"]["seeds"] == "–"


def test_finished_runs_elsewhere_stand(config, finished, tmp_path):
    output, *_ = finished
    words = words_of(config, tmp_path / "new", "--runs", str(output), "--no-train", questions=["depth"])
    assert main(words) == 0
    assert not (tmp_path / "new" / "runs").exists()
    assert table(tmp_path / "new", "What happens with depth?") == table(output, "What happens with depth?")


def test_what_is_still_to_run_is_listed_and_counted(config, tmp_path, capsys):
    """Four rows of the control and two layers; the fused row, one layer and GPS are one training."""
    asked = {"questions": ["control", "depth", "budget"], "seeds": "7", "rivals": ["S4D"]}
    assert main(words_of(config, tmp_path / "dry", "--no-train", **asked)) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("to train ")]
    assert len(said) == 4 + 1
    assert sum("control: fused" in line and "depth: 1 layer" in line and "budget: GPS" in line for line in said) == 1
    assert not (tmp_path / "dry" / "runs").exists()


def test_a_model_without_depth_or_control_is_told(tmp_path, molecule_file, capsys):
    path = tmp_path / "mean.yaml"
    data = {"file": str(molecule_file), "target": "length", "root": str(tmp_path / "data")}
    architecture = {"class_path": "Sequoia", "init_args": {"hidden_dim": 8, "num_heads": 2}}
    path.write_text(yaml.safe_dump({"data": {"class_path": "Molecules", "init_args": data},
                                    "model": {"architecture": architecture}}))  # fmt: skip
    words = ["study", "--model", str(path), "--questions", "control", "depth", "--output", str(tmp_path / "out")]
    assert main([*words, "--no-train"]) == 0
    text = (tmp_path / "out" / "study.md").read_text().replace("\\", "")
    assert text.startswith("# Sequoia")
    assert "--depths: it has no option num_layers" in text
    assert "control-messages" in text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--rivals", "Nobody"], "--rivals 'Nobody'"),
        (["--depths", "0"], "--depths"),
        (["--questions", "size"], "--questions"),
        (["--benchmarks", "Nowhere"], "Nowhere"),
        (["--runs", "nowhere"], "--runs nowhere"),
        (["--seed_everything", "3"], "--seed_everything"),
        (["--only", "0"], "--only 0"),
    ],
)
def test_a_wrong_option_is_named_before_anything_runs(config, tmp_path, capsys, words, named):
    assert main(["study", "--model", str(config), "--output", str(tmp_path / "out"), *words]) == 1
    assert named in capsys.readouterr().err
    assert not (tmp_path / "out" / "runs").exists()


@pytest.mark.slow
def test_a_killed_study_goes_on(config, tmp_path):
    words = words_of(config, tmp_path / "out", "--trainer.max_epochs", "30", questions=["depth"], seeds="0")
    command = [sys.executable, "-m", "graphbench", *words]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    runs = tmp_path / "out" / "runs"
    wait_until(lambda: list(runs.glob("*/checkpoints/last.ckpt")) or process.poll() is not None, 600)
    assert process.poll() is None, "the study ended before its first training wrote a checkpoint"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    begun = {path.parent.name for path in runs.glob("*/config.yaml")}
    assert not list(runs.glob("*/results.json"))
    assert subprocess.run(command, check=False).returncode == 0
    assert len(list(runs.glob("*/results.json"))) == len(DEPTHS)
    (first,) = begun
    epochs = (tmp_path / "out" / "logs" / f"{first}.log").read_text()
    assert [epochs.count(f"epoch {epoch}/30 ") for epoch in range(2, 31)] == [1] * 29, "from its last checkpoint"


@pytest.mark.slow
def test_costs_are_measured_once(config, tmp_path):
    words = words_of(config, tmp_path / "out", questions=["cost"])
    command = [sys.executable, "-m", "graphbench", *words]
    assert subprocess.run(command, check=False).returncode == 0
    (own, rival) = sorted((tmp_path / "out" / "cost").glob("*.json"), key=lambda path: "GPS" not in path.name)
    cost = json.loads(own.read_text())
    assert cost["step_ms"] > cost["products_ms"] > 0
    assert cost["memory_mb"] > cost["activations_mb"] > 0
    rows = table(tmp_path / "out", "What does a step cost?")
    assert float(rows["GPS"]["step / products"]) == pytest.approx(cost["ratio"], abs=0.005)
    times = own.stat().st_mtime, rival.stat().st_mtime
    assert subprocess.run(command, check=False).returncode == 0
    assert (own.stat().st_mtime, rival.stat().st_mtime) == times


@pytest.mark.slow
def test_a_study_as_jobs(config, finished, tmp_path):
    pytest.importorskip("submitit")
    output, *_ = finished
    here = ["--launcher", "submitit", "--launcher.cluster", "local", "--launcher.time", "60"]
    assert main(words_of(config, tmp_path / "out", *here, questions=["depth"])) == 0
    rows = table(tmp_path / "out", "What happens with depth?")
    held = table(output, "What happens with depth?")
    for label, row in rows.items():
        assert [row[key] for key in row if "MAE" in key] == [held[label][key] for key in row if "MAE" in key]


def test_what_another_process_measures_is_left_to_it(tmp_path, monkeypatch, caplog):
    made = []

    def profile(*words, log):
        made.append(words[-1])
        Path(words[-1]).write_text("{}")

    monkeypatch.setattr(study, "graphbench", profile)
    rows = [Row("cost", "CSL", name, ("gps/zinc",), name=name) for name in ("GPS", "GCN")]
    measured = {row: tmp_path / "cost" / f"{row.label}.json" for row in rows}
    with claimed(measured[rows[0]]):
        assert study._measure_costs(measured, tmp_path) == [rows[0].name]
    assert study._measure_costs(measured, tmp_path) == []
    assert [Path(path).stem for path in made] == ["GCN", "GPS"]


def test_jobs_of_an_earlier_call_keep_their_numbers(tmp_path):
    """They wait in the queue with `--only NUMBER` while another call adds trainings."""
    one, two, three = (Training(name, 0, ["gps/zinc"], [f"--model.head.num_layers={name}"]) for name in "123")
    path = tmp_path / "trainings.json"
    assert study._store([two, three], path) == [0, 1]
    assert study._store([one, three], path) == [2, 1]
    assert [Training(**content).name for content in json.loads(path.read_text())] == ["2", "3", "1"]
