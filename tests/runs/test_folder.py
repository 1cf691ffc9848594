"""The run folder: names, records, locking, and errors for folders without a run."""

import json
import os
import signal

import pytest

from graphbench.data.files.writing import writing
from graphbench.errors import BadInput, CorruptData
from graphbench.runs import RunFolder


def test_results_are_merged_by_top_level_key(tmp_path):
    run = RunFolder(tmp_path)
    assert run.read_results() == {}
    run.update_results({"val": {"val/MAE": 0.5}, "epochs": 3})
    run.update_results({"test": {"test/MAE": 0.1 + 0.2}, "epochs": 4})
    assert json.loads(run.results.read_text()) == {
        "val": {"val/MAE": 0.5},
        "epochs": 4,
        "test": {"test/MAE": 0.1 + 0.2},
    }


def test_each_change_of_code_in_a_continued_run_is_recorded_once(tmp_path):
    run, made = RunFolder(tmp_path), [{"started": day, "commit": day[-1], "packages": {}, "cores": 2} for day in "abb"]
    run.note_environment(3, made[1])
    assert not run.environment.exists(), "an earlier version recorded nothing to compare with"
    run.environment.write_text(json.dumps(made[0]))
    for step, now in ((3, made[0]), (5, made[1]), (7, made[2]), (9, made[0])):
        run.note_environment(step, now)
    stored = json.loads(run.environment.read_text())
    assert [(part["step"], part["commit"]) for part in stored.pop("continued")] == [(5, "b"), (9, "a")]
    assert stored == made[0]


def test_a_folder_without_configuration_is_no_run(tmp_path):
    with pytest.raises(BadInput, match=r"no config\.yaml"):
        RunFolder.existing(tmp_path)


def test_ranks_of_one_command_share_the_made_up_name(monkeypatch):
    for name in ("GRAPHBENCH_RUN", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    first = RunFolder.fresh("NCI", "GPS")
    assert first.path.parts[0] == "runs"
    assert first.path.name.startswith("nci-gps-")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert RunFolder.fresh("other", "name") == first
    monkeypatch.delenv("LOCAL_RANK")
    assert RunFolder.fresh("ZINC", "GT").path.name.startswith("zinc-gt-")
    assert os.environ["GRAPHBENCH_RUN"].startswith("runs/zinc-gt-")


def test_scores_that_are_no_numbers_become_null(tmp_path):
    run = RunFolder(tmp_path)
    run.write_results({"val": {"val/MAE": float("nan"), "val/loss": 1.5}, "all": [float("inf"), 2]})
    assert json.loads(run.results.read_text()) == {"val": {"val/MAE": None, "val/loss": 1.5}, "all": [None, 2]}


@pytest.mark.parametrize("text", ["{", "[1]", '{"val": '])
def test_damaged_scores_are_named(tmp_path, text):
    run = RunFolder(tmp_path)
    run.results.write_text(text)
    with pytest.raises(CorruptData, match=r"results\.json"):
        run.read_results()


def test_a_folder_is_held_by_one(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.held():
        run.results.write_text("{}")
        with pytest.raises(BadInput, match=rf"in use: process {os.getpid()} on "), RunFolder(run.path).held():
            pytest.fail("it was free")
    with run.held():
        assert run.path.is_dir()
    assert {path.name for path in run.path.iterdir()} <= {"results.json", ".lock"}


def test_a_folder_in_which_nothing_was_saved_is_removed_if_it_is_new(tmp_path):
    new, old = RunFolder(tmp_path / "new"), RunFolder(tmp_path / "old")
    old.path.mkdir()

    def fail(run):
        with run.held():
            run.config.write_text("seed: 1")
            raise KeyError

    for run in (new, old):
        with pytest.raises(KeyError):
            fail(run)
    assert not new.path.exists()
    assert old.config.is_file()


def test_what_a_run_left_is_cleared_and_the_rest_stays(tmp_path):
    run = RunFolder(tmp_path)
    for name in ("metrics.csv", "events.out.tfevents.1", "environment.json", "notes.txt", "config.yaml"):
        (tmp_path / name).touch()
    run.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "config.yaml"}


def test_tables_and_predictions_have_names_in_the_folder(tmp_path):
    run = RunFolder(tmp_path)
    assert run.tables == []
    run.diagnostics.mkdir()
    for name in ("ranks", "gap"):
        run.table(name).write_text("epoch\n")
    (run.diagnostics / "picture.png").touch()
    assert [path.name for path in run.tables] == ["gap.csv", "ranks.csv"]
    assert run.predictions("val") == tmp_path / "predictions-val.csv"


def test_clearing_keeps_what_others_put_there(tmp_path):
    run = RunFolder(tmp_path)
    run.diagnostics.mkdir()
    run.table("ranks").touch()
    for name in ("metrics.csv", "data.json", "events.out.tfevents.1", "notes.txt", "predictions-test.csv"):
        (tmp_path / name).touch()
    run.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"notes.txt", "predictions-test.csv"}


def test_what_a_kill_leaves_half_written_goes_when_the_run_goes_on(tmp_path):
    run = RunFolder(tmp_path / "run")
    holder = run.path / ".holder"
    files = (run.config, run.metrics, run.results, run.data, run.training, run.environment, run.last, run.best, holder)
    for path in files:
        if os.fork() == 0:
            with writing(path):
                os.kill(os.getpid(), signal.SIGKILL)
        os.wait()
    assert len(list(run.path.rglob(".*-*"))) == len(files)
    with run.held():
        assert not list(run.path.rglob(".*-*"))


def test_a_link_in_a_sent_folder_is_replaced_and_not_followed(tmp_path):
    """Lightning's loggers would write through a link at `hparams.yaml`."""
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "run").mkdir()
    for name in ("hparams.yaml", ".lock"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "mine")
    with pytest.raises(BadInput), RunFolder(tmp_path / "run").held():
        pass
    (tmp_path / "run" / ".lock").unlink()
    with RunFolder(tmp_path / "run").held():
        assert not (tmp_path / "run" / "hparams.yaml").is_symlink()
    assert (tmp_path / "mine").read_text() == "mine"
