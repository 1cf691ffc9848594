"""Commands with `--launcher`: their units are jobs of an imitated SLURM, tasks of Ray, or local processes."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import imitated_slurm
import pandas as pd
import pytest
import yaml
from waits import wait_until

from graphbench.cli import main
from graphbench.experiments.status import read_status

pytest.importorskip("submitit")

HERE = ["--launcher", "submitit", "--launcher.cluster", "local", "--launcher.time", "60"]


@pytest.fixture
def config(molecule_file, tmp_path):
    data = {"file": str(molecule_file), "target": "length", "batch_size": 32, "root": str(tmp_path / "data")}
    content = {
        "data": {"class_path": "Molecules", "init_args": data},
        "model": {"architecture": {"class_path": "GCN", "init_args": {"hidden_dim": 8, "num_layers": 1}}},
        "trainer": {"max_epochs": 2, "accelerator": "cpu"},
    }
    path = tmp_path / "gcn.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    imitated_slurm.imitate(tmp_path, monkeypatch, seconds=0.2)
    return tmp_path


def with_children(process):
    """Return a process and all that it has started, on Linux."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in children for one in with_children(int(child)))]


def scores(output, name):
    return json.loads((output / "runs" / name / "results.json").read_text())["test"]


@pytest.mark.slow
def test_a_sweep_whose_job_is_warned_is_queued_again_and_ends_with_the_bits_of_one_that_nobody_warned(config, slurm):
    words = ["sweep", "--config", str(config), "--seeds", "0-1", "--trainer.max_epochs=40"]
    whole, output = slurm / "whole", slurm / "out"
    assert main([*words, "--output", str(whole)]) == 0
    begun, warned = output / "runs" / "gcn-1" / "checkpoints" / "last.ckpt", []

    def warn():
        wait_until(begun.is_file)
        warned.append((output / "runs" / "gcn-1" / "results.json").is_file())
        imitated_slurm.warn(slurm, "101_1")

    threading.Thread(target=warn, daemon=True).start()
    options = ["--launcher", "submitit", "--launcher.time", "4:00:00", "--launcher.at_once", "2"]
    assert main([*words, "--output", str(output), *options]) == 0
    assert warned == [False], "the warning must come during training"
    assert (slurm / "slurm" / "101_1.runs").read_text() == "..", "queued again once"
    assert "--resume" not in (output / "logs" / "gcn-0.log").read_text()
    for name in ("gcn-0", "gcn-1"):
        assert scores(output, name) == scores(whole, name)
    assert (output / "report.html").is_file(), "the last job writes it"
    assert {unit.state for unit in read_status(output)} == {"done"}
    assert len(imitated_slurm.scripts(slurm)) == 2
    assert main([*words, "--output", str(output), *options]) == 0
    assert len(imitated_slurm.scripts(slurm)) == 2, "nothing is missing, so nothing is submitted"


@pytest.mark.slow
def test_a_sweep_on_ray_that_loses_a_machine_has_the_bits_of_one_that_loses_none(config, tmp_path, monkeypatch):
    """Two trainings at a time; one of them is killed with its worker after its first checkpoint, and resumes."""
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("RAY_worker_niceness", "0")
    words, output, whole = ["sweep", "--config", str(config), "--seeds", "0-1"], tmp_path / "out", tmp_path / "whole"
    words, run, killed = [*words, "--trainer.max_epochs=40"], output / "runs" / "gcn-1", []

    def lose():
        wait_until((run / "checkpoints" / "last.ckpt").is_file)
        worker = json.loads((output / "logs" / "gcn-1.json").read_text())["process"]
        for process in with_children(worker):
            os.kill(process, signal.SIGKILL)
        killed.append((worker, (run / "results.json").is_file()))

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    try:
        threading.Thread(target=lose, daemon=True).start()
        assert main([*words, "--output", str(output), "--launcher", "ray"]) == 0
    finally:
        ray.shutdown()
    ((worker, was_finished),) = killed
    assert not was_finished, "the kill must come during training"
    assert json.loads((output / "logs" / "gcn-1.json").read_text())["process"] != worker
    assert (output / "report.html").is_file(), "the last task writes it"
    assert {unit.state for unit in read_status(output)} == {"done"}
    assert main([*words, "--output", str(whole)]) == 0
    for name in ("gcn-0", "gcn-1"):
        assert scores(output, name) == scores(whole, name)


@pytest.mark.slow
def test_a_training_that_fails_is_named_with_its_last_lines(config, molecule_file, tmp_path, capsys):
    lines = molecule_file.read_text().splitlines()  # a column of words, which only reading the rows shows
    molecule_file.write_text("\n".join([f"{lines[0]},colour", *(f"{line},blue" for line in lines[1:]), ""]))
    words = ["sweep", "--config", str(config), "--vary", "data.init_args.target=length,colour", "--output",
             str(tmp_path / "out"), *HERE, "--launcher.per_task", "2"]  # fmt: skip
    assert main(words) == 1
    said = capsys.readouterr().err
    assert "1 of 2 trainings" in said
    assert (tmp_path / "out" / "report.html").is_file(), "of the finished runs"
    assert main(["status", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert any("colour" in line for line in shown.splitlines() if line.startswith("    |"))
    assert "2 units: 1 done, 1 failed" in shown
    assert main(["status", str(tmp_path / "out"), "--json"]) == 0
    assert sorted(unit["state"] for unit in json.loads(capsys.readouterr().out)) == ["done", "failed"]


@pytest.mark.slow
def test_a_table_of_a_paper_is_written_by_the_last_job(tmp_path):
    words = ["reproduce", "electric-flow/figure-1", "--only", "heat-fc", "--columns", "layers-1", "layers-3",
             "--scale", "smoke", "--output", str(tmp_path / "out"), *HERE, "--launcher.per_task", "2"]  # fmt: skip
    assert main(words) == 0
    assert list((tmp_path / "out").glob("*.csv"))
    assert [unit.state for unit in read_status(tmp_path / "out")] == ["done", "done"]


@pytest.mark.slow
def test_workers_share_a_study(config, tmp_path, capsys):
    pytest.importorskip("optuna")
    (tmp_path / "space.yaml").write_text("model.architecture.init_args.hidden_dim: {values: [4, 8]}\n")
    words = ["tune", "--config", str(config), "--space", str(tmp_path / "space.yaml"), "--trials", "3", "--run",
             str(tmp_path / "study"), *HERE]  # fmt: skip
    assert main(words) == 1
    assert "--launcher.at_once" in capsys.readouterr().err
    assert main([*words, "--launcher.at_once", "2"]) == 0
    assert (tmp_path / "study" / "best.yaml").is_file()
    assert {unit.state for unit in read_status(tmp_path / "study")} == {"done"}
    assert len(pd.read_csv(tmp_path / "study" / "trials.csv")) == 3


@pytest.mark.slow
def test_jobs_write_a_share_of_a_prediction_each(finished_run, molecule_file, tmp_path, capsys):
    words = ["predict", "--run", str(finished_run), "--input", str(molecule_file)]
    assert main([*words, "--output", str(tmp_path / "whole.parquet")]) == 0
    launched = [*words, "--output", f"{tmp_path / 'parts'}/", "--part-rows", "1024", *HERE, "--launcher.at_once", "2"]
    assert main(launched) == 0
    whole, parts = (pd.read_parquet(tmp_path / name) for name in ("whole.parquet", "parts"))
    pd.testing.assert_frame_equal(parts, whole, check_exact=True)
    assert [(unit.name, unit.state) for unit in read_status(tmp_path / "parts")] == [("1/2", "done"), ("2/2", "done")]
    capsys.readouterr()
    assert main(launched) == 1
    assert "--if-exists resume" in capsys.readouterr().err
    assert main([*launched, "--if-exists", "resume"]) == 0
    assert main([*launched, "--if-exists", "resume", "--interval", "0.9"]) == 1, "the jobs refuse another prediction"
    assert "share-1-of-2 has failed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["predict", "--run", "RUN", "--input", "FILE", "--output", "p.csv", *HERE], "--output DIR/"),
        (["predict", "--run", "RUN", "--input", "FILE", "--output", "p/", *HERE], "--launcher.at_once"),
        (["predict", "--run", "RUN", "--input", "FILE", "--output", "p/", "--part", "1/2", *HERE], "--part 1/2"),
        (["predict", "--run", "RUN", "--input", "FILE", "--output", "p/", "--launcher.gpus", "1"], "--launcher.gpus"),
    ],
)
def test_a_mistake_of_a_prediction_is_one_line(
    words, named, finished_run, molecule_file, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    known = {"RUN": str(finished_run), "FILE": str(molecule_file)}
    assert main([known.get(word, word) for word in words]) == 1
    said = capsys.readouterr().err
    assert named in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())
