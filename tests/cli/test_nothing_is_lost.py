"""Kills at writes, damaged, moved and shared folders: saved work is resumed, and losses are reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from command_line import SMALL_MODEL
from equal_runs import OPTIONS, assert_equal_runs, content
from forked import at, forked, killed_at_write, signal_at_step, start, wait

from graphbench.cli import main
from graphbench.runs import RunFolder

SHORT = [*SMALL_MODEL, "--trainer.max_epochs", "2", "--data.batch_size", "48"]


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    """Train a run without a kill."""
    folder = tmp_path_factory.mktemp("whole")
    ended = forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


@pytest.fixture
def copy(whole, tmp_path):
    """Return a copy of it to damage."""
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


# -- kills at writes -------------------------------------------------------------------------------------------------


def other_file_system(folder: Path) -> str | None:
    """Return a folder for temporary files on another file system than `folder`."""
    candidates = [Path("/dev/shm"), Path(tempfile.gettempdir()), Path.home()]
    return next(
        (
            str(p)
            for p in candidates
            if p.is_dir() and os.access(p, os.W_OK) and p.stat().st_dev != folder.stat().st_dev
        ),
        None,
    )


def assert_survives(whole, data_options, tmp_path, number, temporary):
    """Kill at a write, continue, and compare; return whether there was such a write."""
    run = tmp_path / "run"
    command = ["fit", *data_options, *OPTIONS, "--run", run, "--if-exists", "resume"]
    ended = forked(tmp_path, *command, prepare=killed_at_write(run, number, temporary))
    assert ended.code in (-signal.SIGKILL, 0), ended.text
    if ended.code:
        again = forked(tmp_path, *command)
        assert again.code == 0, again.text
    assert_equal_runs(whole, run)
    assert not list(run.rglob(".*-*")), "half-written files stay"
    return ended.code != 0


@pytest.mark.parametrize("number", [39, 60, pytest.param(95, marks=pytest.mark.slow)])
def test_a_kill_at_a_write_costs_nothing_on_two_file_systems(whole, data_options, tmp_path, number):
    temporary = other_file_system(tmp_path)
    if temporary is None:
        pytest.skip("no second file system to write temporary files to")
    assert assert_survives(whole, data_options, tmp_path, number, temporary)


@pytest.mark.slow
def test_a_kill_at_any_write_costs_nothing(whole, data_options, tmp_path):
    temporary, number = other_file_system(tmp_path), 1
    while assert_survives(whole, data_options, tmp_path / str(number), number, temporary):
        number += 7  # each takes two fits; an epoch has 22 writes, so each epoch is killed at other ones
    assert number > 60


# -- damaged checkpoints ---------------------------------------------------------------------------------------------


def flip(path: Path, position: float = 0.5) -> None:
    """Flip one bit."""
    content = bytearray(path.read_bytes())
    content[int(position * len(content))] ^= 16
    path.write_bytes(content)


def test_a_flipped_bit_is_found_and_the_checkpoint_before_is_offered(whole, copy, capsys):
    assert content(copy, "previous")["global_step"] == 9
    flip(copy / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume", str(copy)]) == 1
    said = capsys.readouterr().err
    assert "does not match its checksum" in said
    command = said[said.index("graphbench fit --resume") :].split()[1:]
    assert command[-1] == str(copy / "checkpoints" / "previous.ckpt")
    assert main(command) == 0
    assert_equal_runs(whole, copy)


def test_a_finished_run_without_its_last_checkpoints_is_left_alone_and_its_best_one_offered(copy, capsys):
    for name in ("last", "previous"):
        (copy / "checkpoints" / f"{name}.ckpt").unlink(missing_ok=True)
    kept = (copy / "checkpoints" / "best.ckpt").read_bytes()
    assert main(["fit", "--resume", str(copy)]) == 1
    said = capsys.readouterr().err
    assert "has no last.ckpt to continue from" in said
    assert f"--checkpoint {copy / 'checkpoints' / 'best.ckpt'}" in said
    assert (copy / "checkpoints" / "best.ckpt").read_bytes() == kept


def test_where_all_checkpoints_are_damaged_nothing_is_offered(copy, capsys):
    for path in (copy / "checkpoints").iterdir():
        flip(path)
    assert main(["fit", "--resume", str(copy)]) == 1
    assert "no other one to continue from" in capsys.readouterr().err
    assert main(["test", "--run", str(copy)]) == 1
    assert "does not match its checksum" in capsys.readouterr().err


def test_a_full_disk_is_said_and_the_checkpoint_before_stays(data_options, tmp_path):
    resource = pytest.importorskip("resource")
    run = tmp_path / "run"

    def limit(trainer):
        if trainer.current_epoch == 2:  # only files as small as a configuration fit
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    options = ["--trainer.logger", "false"]
    ended = forked(
        tmp_path, "fit", *data_options, *OPTIONS, *options, "--run", run, prepare=at("on_train_batch_end", limit)
    )
    assert ended.code == 1, ended.text
    assert "ckpt cannot be written: File too large" in ended.text
    assert "Traceback" not in ended.text
    assert content(run)["global_step"] == 6
    assert not list(run.rglob(".*ckpt*"))


@pytest.mark.slow
def test_runs_of_earlier_versions_are_continued(whole, copy):
    """They have no previous checkpoint, no state of some callbacks, and no record of their environment."""
    path = copy / "checkpoints" / "previous.ckpt"
    old = torch.load(path, weights_only=True)
    del old["callbacks"]["LastCheckpoint"], old["callbacks"]["Throughput"], old["callbacks"]["NonFinite"]
    for rank in old["callbacks"]["ExactResume"]["ranks"]:
        del rank["scores"], rank["generators"]
    torch.save(old, copy / "checkpoints" / "last.ckpt")
    path.unlink()
    (copy / "environment.json").unlink()
    assert main(["fit", "--resume", str(copy)]) == 0
    assert_equal_runs(whole, copy)


# -- moved folders ---------------------------------------------------------------------------------------------------


def test_a_moved_run_keeps_its_best_checkpoint(data_options, tmp_path):
    """The second part raises the loss by a negative rate, so none of its epochs is the best."""
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["fit", *data_options, *SHORT, "--run", str(first)]) == 0
    best = (first / "checkpoints" / "best.ckpt").read_bytes()
    score = json.loads((first / "results.json").read_text())["val"]
    first.rename(second)
    spoiled = torch.load(second / "checkpoints" / "last.ckpt", weights_only=True)
    for group in spoiled["optimizer_states"][0]["param_groups"]:
        group["lr"] = group["initial_lr"] = -0.1
    torch.save(spoiled, second / "checkpoints" / "last.ckpt")
    assert main(["fit", "--resume", str(second), "--trainer.max_epochs", "4"]) == 0
    assert (second / "checkpoints" / "best.ckpt").read_bytes() == best
    assert json.loads((second / "results.json").read_text())["val"] == score


@pytest.mark.slow
def test_a_run_is_used_from_any_folder(molecule_file, tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    shutil.copy(molecule_file, here / "mine.csv")
    data = ["--data", "Molecules", "--data.file", "mine.csv", "--data.target", "length"]
    assert forked(tmp_path, "fit", *data, *SHORT, "--run", "run", cwd=here).code == 0
    for command in (["predict", "--run"], ["test", "--run"], ["fit", "--trainer.max_epochs", "3", "--resume"]):
        ended = forked(tmp_path, *command, here / "run", cwd=elsewhere)
        assert ended.code == 0, ended.text
    assert not (elsewhere / "data").exists()
    assert len(pd.read_csv(here / "run" / "predictions-test.csv")) == 12
    # as on another machine: the folder of the fit is gone, and the data are in the working directory
    here.rename(tmp_path / "gone")
    (tmp_path / "gone" / "run").rename(elsewhere / "copied")
    shutil.copy(molecule_file, elsewhere / "mine.csv")
    for command in (["predict", "--run"], ["test", "--run"], ["fit", "--trainer.max_epochs", "5", "--resume"]):
        ended = forked(tmp_path, *command, "copied", cwd=elsewhere)
        assert ended.code == 0, ended.text


# -- one folder, several processes -----------------------------------------------------------------------------------


def test_a_second_process_in_a_folder_is_refused_by_the_name_of_the_first(data_options, copy, tmp_path):
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"

    def hold(trainer):
        begun.touch()
        while not go_on.exists():
            signal.sigtimedwait([], 0.05)

    first = start(tmp_path, "fit", "--resume", copy, "--trainer.max_epochs", "5", prepare=at("on_train_start", hold))
    while not begun.exists():
        signal.sigtimedwait([], 0.05)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for command in (["--resume", copy], ["--run", copy, "--if-exists", "resume"]):
        second = forked(tmp_path, "fit", *data_options, *SHORT, *command)
        assert second.code == 1, second.text
        assert f"{copy} is in use: process {first[0]} on " in second.text
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    go_on.touch()
    ended = wait(*first)
    assert ended.code == 0, ended.text


def test_two_runs_of_one_second_have_two_folders(monkeypatch, tmp_path):
    import graphbench.runs.folder

    class Clock(graphbench.runs.folder.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2030, 1, 2, 3, 4, 5)

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("GRAPHBENCH_RUN", "")
    monkeypatch.setattr(graphbench.runs.folder, "datetime", Clock)
    names = [RunFolder.fresh("NCI", "GPS").path.name for _ in range(3)]
    assert names == ["nci-gps-20300102-030405", "nci-gps-20300102-030405-2", "nci-gps-20300102-030405-3"]


@pytest.mark.slow
def test_a_job_that_is_queued_again_goes_on(whole, data_options, tmp_path):
    run = tmp_path / "run"
    command = ["fit", *data_options, *OPTIONS, "--run", run, "--if-exists", "resume"]
    killed = at("on_train_batch_end", signal_at_step(7, signal.SIGKILL))
    assert forked(tmp_path, *command, prepare=killed).code == -signal.SIGKILL
    for _ in range(2):  # the second time there is nothing left to do
        again = forked(tmp_path, *command)
        assert again.code == 0, again.text
        assert_equal_runs(whole, run)


# -- folders without a checkpoint ------------------------------------------------------------------------------------


def test_a_mistake_leaves_no_folder_and_a_kill_one_that_is_used_again(data_options, tmp_path, capsys):
    run = tmp_path / "run"
    assert main(["fit", *data_options, *SHORT, "--data.target", "lenght", "--run", str(run)]) == 1
    assert "lenght" in capsys.readouterr().err
    assert not run.exists()
    killed = at("on_train_batch_end", signal_at_step(1, signal.SIGKILL))
    command = ["fit", *data_options, *SHORT, "--run", run]
    assert forked(tmp_path, *command, prepare=killed).code == -signal.SIGKILL
    assert (run / "config.yaml").is_file()
    shutil.copytree(run, tmp_path / "other")
    assert main(["report", str(run), "--output", str(tmp_path / "page")]) == 1
    assert "no checkpoint" in capsys.readouterr().err
    assert forked(tmp_path, *command).code == 0
    resumed = forked(tmp_path, "fit", "--resume", tmp_path / "other")
    assert resumed.code == 0, resumed.text
    assert "starts over" in resumed.text
    one, two = content(run)["state_dict"], content(tmp_path / "other")["state_dict"]
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert len(list(run.glob("events.out.tfevents.*"))) == 1


def test_a_trial_of_one_batch_leaves_nothing(data_options, tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    for named in ([], ["--run", tmp_path / "named"]):
        options = [*SHORT, "--trainer.fast_dev_run", "true", *named]
        ended = forked(tmp_path, "fit", *data_options, *options, cwd=work)
        assert ended.code == 0, ended.text
        assert ".ckpt" not in ended.text  # no checkpoint remains to be named
    assert not list(work.iterdir())
    assert not (tmp_path / "named").exists()


# -- resumed runs ----------------------------------------------------------------------------------------------------


def test_options_of_a_run_that_goes_on_are_written_down(copy):
    before = yaml.safe_load((copy / "config.yaml").read_text())
    assert main(["fit", "--resume", str(copy), "--trainer.max_epochs", "5", "--data.eval_batch_size", "3"]) == 0
    after = yaml.safe_load((copy / "config.yaml").read_text())
    assert after["trainer"]["max_epochs"] == 5
    assert after["data"]["init_args"]["eval_batch_size"] == 3
    before["trainer"]["max_epochs"], before["data"]["init_args"]["eval_batch_size"] = 5, 3
    assert after == before


def test_options_with_which_nothing_can_go_on_are_not_written_down(copy):
    before = (copy / "config.yaml").read_bytes()
    assert main(["fit", "--resume", str(copy), "--trainer.max_epochs", "5", "--data.target", "lenght"]) == 1
    assert (copy / "config.yaml").read_bytes() == before


def test_the_last_checkpoint_knows_the_best_one_also_where_it_is_configured(data_options, tmp_path):
    """If it were written first, a kill after it would lose the epoch that became the best."""
    every = ["--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.every_n_steps", "2"]
    run = tmp_path / "run"
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, *every, "--run", run)
    assert ended.code == 0, ended.text
    best = [state["best_model_score"] for name, state in content(run)["callbacks"].items() if "ModelCheckpoint" in name]
    losses = pd.read_csv(run / "metrics.csv")["val/MAE"].dropna()
    assert losses.idxmin() == losses.index[-1], "this test needs the last epoch to be the best"
    assert [float(score) for score in best] == [pytest.approx(losses.min())]


@pytest.mark.slow
def test_the_row_of_an_epoch_is_written_though_a_kill_came_between_checkpoint_and_row(whole, data_options, tmp_path):
    def prepare():
        from graphbench.callbacks.checkpoints import LastCheckpoint

        original = LastCheckpoint._save

        def save(self, trainer):
            original(self, trainer)
            if trainer.global_step == 6:
                os.kill(os.getpid(), signal.SIGKILL)

        LastCheckpoint._save = save

    run = tmp_path / "run"
    command = ["fit", *data_options, *OPTIONS, "--run", run]
    assert forked(tmp_path, *command, prepare=prepare).code == -signal.SIGKILL
    assert pd.read_csv(run / "metrics.csv")["train/loss"].notna().sum() == 1
    assert forked(tmp_path, "fit", "--resume", run).code == 0
    assert_equal_runs(whole, run)
    epochs = [pd.read_csv(folder / "metrics.csv", dtype=str)["epoch"].tolist() for folder in (whole, run)]
    assert epochs[0] == epochs[1]


@pytest.mark.slow
def test_a_torn_last_row_is_left_out(whole, copy):
    shutil.copy(copy / "checkpoints" / "previous.ckpt", copy / "checkpoints" / "last.ckpt")
    with (copy / "metrics.csv").open("a") as file:
        file.write("3,0.000")
    assert main(["fit", "--resume", str(copy)]) == 0
    assert_equal_runs(whole, copy)
