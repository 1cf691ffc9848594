"""Two processes over gloo: they train, and their scores are those of one process."""

import json
from collections import Counter

import pandas as pd
import pytest
import pytorch_lightning as pl
from command_line import SMALL_MODEL, graphbench
from two_processes import on_two

from graphbench.cli import main

TWO = ["--trainer.strategy", "ddp", "--trainer.devices", "2"]


def results(folder):
    return json.loads((folder / "results.json").read_text())


def test_scores_of_two_processes_equal_those_of_one(finished_run, tmp_path):
    test = ["test", "--run", str(finished_run)]
    assert main(test) == 0
    one = results(finished_run)["test"]
    assert on_two(tmp_path, lambda rank: main([*test, *TWO])) == [0, 0]
    two = results(finished_run)["test"]
    assert two == pytest.approx(one, rel=1e-5)


def test_predictions_of_two_processes_are_those_of_one(finished_run, tmp_path):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    predict = ["predict", "--run", str(finished_run), "--output"]
    assert main([*predict, str(one)]) == 0
    assert on_two(tmp_path / "processes", lambda rank: main([*predict, str(two), *TWO])) == [0, 0]
    pd.testing.assert_frame_equal(pd.read_csv(one), pd.read_csv(two), rtol=1e-5)


@pytest.fixture
def validated(monkeypatch):
    """Return a function for the scores of `graphbench validate` on one process, which it does not store."""
    found, validate = [], pl.Trainer.validate

    def kept(*arguments, **options):
        found.extend(logged := validate(*arguments, **options))
        return logged

    def validated(run):
        monkeypatch.setattr(pl.Trainer, "validate", kept)
        assert main(["validate", "--run", str(run), "--trainer.strategy", "auto", "--trainer.devices", "1"]) == 0
        logged = found.pop()
        return {name: logged[name] for name in results(run)["val"]}

    return validated


@pytest.mark.slow
def test_two_processes_train_and_write_one_run(data_options, tmp_path, validated):
    """Lightning starts the second process itself, as it does for users; GPS has batch norms."""
    folder = tmp_path / "two"
    done = graphbench("fit", *data_options, *SMALL_MODEL, *TWO, "--trainer.max_epochs", "2", "--run", folder)
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert [line for line, count in Counter(told).items() if count > 1] == []
    assert not any("sync_dist" in line for line in told)
    scores = results(folder)
    assert scores["epochs"] == 2
    assert scores["steps"] == 6  # 96 graphs in global batches of 32
    table = pd.read_csv(folder / "metrics.csv")
    assert table["val/MAE"].notna().sum() == 2
    assert scores["val"] == pytest.approx(validated(folder), rel=1e-5)
