"""Options of a launcher, and the SLURM script that is written from them."""

from __future__ import annotations

import argparse
import os
import subprocess

import pytest
from imitated_slurm import install

from graphbench.errors import BadInput
from graphbench.experiments.launchers import Cluster, add_options


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_options(parser)
    return Cluster.of(parser.parse_args(words))


def test_nothing_is_launched_unless_asked_for():
    assert parsed() is None
    assert parsed("--launcher", "local") is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--launcher", "dask"], "--launcher"),
        (["--launcher", "ray", "--launcher.time", "60"], "--launcher.time"),
        (["--launcher", "submitit", "--launcher.time", "60", "--launcher.cpus", "2"], "--launcher.cpus"),
        (["--launcher.gpus", "1"], "--launcher.gpus"),
        (["--launcher", "submitit"], "--launcher.time"),
        (["--launcher", "submitit", "--launcher.time", "soon"], "soon"),
        (["--launcher", "submitit", "--launcher.time", "0:00:00"], "--launcher.time"),
        (["--launcher", "submitit", "--launcher.time", "4:00"], "--launcher.time 4:00.* 5 minutes"),
        (["--launcher", "submitit", "--launcher.time", "60", "--launcher.gpus", "-1"], "--launcher.gpus"),
        (["--launcher", "submitit", "--launcher.time", "60", "--launcher.per_task", "0"], "--launcher.per_task"),
        (["--launcher", "submitit", "--launcher.time", "60", "--launcher.sbatch", "mem="], "mem="),
        (["--launcher", "submitit", "--launcher.time", "60", "--launcher.cluster", "lsf"], "lsf"),
    ],
)
def test_a_mistake_names_the_option_or_the_value(words, named):
    with pytest.raises(BadInput, match=named):
        parsed(*words)


def test_options_of_a_queue_that_is_not_there_are_named(caplog):
    here = ("--launcher", "submitit", "--launcher.time", "60", "--launcher.cluster", "local")
    assert parsed(*here, "--launcher.partition", "long", "--launcher.gpus", "1").gpus == 1
    assert [record.message.partition(" ")[0] for record in caplog.records] == ["--launcher.partition"]


def test_without_slurm_that_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BadInput, match="sbatch"):
        parsed("--launcher", "submitit", "--launcher.time", "60")


def test_the_script_asks_for_what_the_options_say(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", install(tmp_path)["PATH"])
    cluster = parsed(
        "--launcher", "submitit", "--launcher.time", "1-00:30:00", "--launcher.gpus", "2",
        "--launcher.partition", "long", "--launcher.account", "us", "--launcher.sbatch", "mem=32G cpus-per-task=8",
        "--launcher.at-once", "3",
        "--launcher.setup", "export GREETING='a b'; cd .",
    )  # fmt: skip
    executor = cluster.executor(tmp_path / "room", "name of it", after=["7", "9"])._executor
    executor.parameters["map_count"] = 10
    text = executor._make_submission_file_text("echo $GREETING", "0")
    directives = {line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")}
    assert {
        "--time=1470", "--gpus-per-node=2", "--partition=long", "--account=us", "--mem=32G", "--cpus-per-task=8",
        "--array=0-9%3", "--requeue", "--dependency=afterany:7:9", "--open-mode=append", "--job-name='name of it'",
    } <= directives  # fmt: skip
    script = text.replace("srun", "true #", 1) + "\necho $GREETING $SRUN_CPUS_PER_TASK"
    for cpus in ("", "8"):
        job = {**os.environ, "SLURM_CPUS_PER_TASK": cpus}
        said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=job).stdout
        assert said.split() == ["a", "b", *cpus]
