"""The folder of a run is moved, removed or emptied during its training."""

from __future__ import annotations

import shutil

import pytest
from equal_runs import OPTIONS, assert_equal_runs, content
from forked import at, forked


@pytest.fixture(scope="module")
def whole(data_options, tmp_path_factory):
    """Train a run whose folder stays."""
    folder = tmp_path_factory.mktemp("lost")
    ended = forked(folder, "fit", *data_options, *OPTIONS, "--run", folder / "run")
    assert ended.code == 0, ended.text
    return folder / "run"


def fit(data_options, tmp_path, run, prepare, *options):
    ended = forked(tmp_path, "fit", *data_options, *OPTIONS, *options, "--run", run, prepare=prepare)
    assert ended.code == 1, ended.text
    assert "Traceback" not in ended.text
    assert f"The run's folder {run} was " in ended.text.splitlines()[-1]
    return ended.text.splitlines()[-1]


def at_step(step, action):
    return lambda trainer: action() if trainer.global_step == step else None


@pytest.mark.parametrize(
    ("hook", "step", "checkpoint"),
    [
        ("on_train_batch_end", 5, 5),
        ("on_train_batch_end", 6, 3),  # no checkpoint can be written at the end of an epoch
        pytest.param("on_train_epoch_end", 6, 3, marks=pytest.mark.slow),
        pytest.param("on_validation_start", 6, 3, marks=pytest.mark.slow),
        pytest.param("on_train_batch_start", 4, 5, marks=pytest.mark.slow),
    ],
)
def test_a_folder_that_moves_gets_a_checkpoint_and_nothing_stays_behind(
    whole, data_options, tmp_path, hook, step, checkpoint
):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    said = fit(data_options, tmp_path, run, at(hook, at_step(step, lambda: run.rename(elsewhere))))
    assert not run.exists()
    assert f"Continue with: graphbench fit --resume {elsewhere}" in said
    assert content(elsewhere)["global_step"] == checkpoint
    again = forked(tmp_path, "fit", "--resume", elsewhere)
    assert again.code == 0, again.text
    assert_equal_runs(whole, elsewhere)


def test_a_folder_that_is_removed_ends_the_fit_and_does_not_come_back(data_options, tmp_path):
    run = tmp_path / "run"
    said = fit(data_options, tmp_path, run, at("on_train_batch_end", at_step(5, lambda: shutil.rmtree(run))))
    assert "after step 5" in said
    assert not run.exists()


def test_another_folder_of_the_name_is_left_alone(data_options, tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def replace():
        run.rename(elsewhere)
        run.mkdir()
        (run / "config.yaml").write_text("of another run")

    fit(data_options, tmp_path, run, at("on_train_batch_end", at_step(5, replace)))
    assert [(path.name, path.read_text()) for path in run.iterdir()] == [("config.yaml", "of another run")]
    assert content(elsewhere)["global_step"] == 5


@pytest.mark.slow
def test_a_folder_that_is_emptied_ends_the_fit(data_options, tmp_path):
    run = tmp_path / "run"

    def empty():
        for path in run.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    said = fit(data_options, tmp_path, run, at("on_train_batch_end", at_step(5, empty)))
    assert "was emptied" in said
    assert "config.yaml" in said


@pytest.mark.slow
def test_a_folder_that_moves_behind_the_last_epoch_gets_no_scores_under_its_old_name(whole, data_options, tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"

    def prepare():
        from graphbench.callbacks.throughput import Throughput

        Throughput.on_fit_end = lambda self, *rest: run.rename(elsewhere)

    fit(data_options, tmp_path, run, prepare)
    assert not run.exists()
    assert forked(tmp_path, "fit", "--resume", elsewhere).code == 0
    assert_equal_runs(whole, elsewhere)
