"""The script of figure 5: rows of the table, inference on the test split, and seconds of all of its batches."""

from __future__ import annotations

import csv
from math import ceil
from pathlib import Path

import pytest
import torch
from scripts import load_script

from graphbench.experiments.reproduce.tables import find_table

SCRIPT = load_script(Path(__file__).parents[1] / "experiments" / "figure_5.py")


def test_seconds_of_the_split_are_those_of_a_batch_times_its_batches(tmp_path, monkeypatch):
    rounds = iter(range(100))
    monkeypatch.setattr(SCRIPT, "build_with_batch", lambda recipe, clouds, device: (recipe, clouds))
    monkeypatch.setattr(SCRIPT, "seconds_of", lambda recipe, clouds: 0.5 if next(rounds) >= 5 else 60.0)
    SCRIPT.main(["--output", str(tmp_path), "--rounds", "3"])
    with (tmp_path / "figure_5.csv").open(encoding="utf-8") as file:
        rows = {row["row"]: float(row["seconds"]) for row in csv.DictReader(file)}
    assert rows == dict.fromkeys(find_table("sft/figure-5").row_names, 0.5 * ceil(2468 / 32))


def test_a_model_is_timed_in_evaluation_without_gradients_on_the_test_split():
    model, batch = SCRIPT.build_with_batch("point-clouds/cn-pointnet-modelnet40", 2, "cpu")
    assert not model.training
    assert (batch.num_graphs, batch.num_nodes) == (2, 2 * 1024)
    seen = []
    model.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled()))
    assert SCRIPT.seconds_of(model, batch) > 0
    assert seen == [False]


@pytest.mark.slow
def test_every_model_of_the_figure_is_timed(tmp_path):
    SCRIPT.main(["--output", str(tmp_path), "--clouds", "1", "--rounds", "1"])
    assert (tmp_path / "figure_5.csv").read_text(encoding="utf-8").count("\n") == 6
