"""A small table, and folders of runs that were never trained."""

from __future__ import annotations

import json

import pytest
from resolved import RECIPE

from graphbench.experiments.reproduce.tables import read_table

TABLE = """
title: Two models on PATTERN
paper: Somebody, 2026
place: table 1
printed: 4
seeds: 4
note: A made-up table, with 4 > 2 seeds.
columns:
  pattern: {name: "PATTERN, %", benchmark: PATTERN, metric: test/class_accuracy, scale: 100}
  epochs: {name: epochs, setting: trainer.max_epochs, recipe: sfi-former/pattern}
rows:
  ours:
    name: SFi-Former
    recipe: sfi-former/{column}
    cells: {pattern: 86.74 ± 0.17, epochs: {printed: 200, setting: trainer.max_epochs, recipe: sfi-former/pattern}}
  plus:
    name: SFi-Former+
    recipe: sfi-former/{column} + sfi-former/overlays/pretrained
    after: sfi-former/{column} + sfi-former/overlays/dense
    cells: {pattern: 86.78 ± 0.21}
  other: {name: SAN, missing: SAN, cells: {pattern: 86.58 ± 0.04}}
  curve:
    recipe: sfi-former/pattern
    options: ["--data.init_args.batch_size={b}"]
    with: {b: 8}
    cells: all
"""


@pytest.fixture
def table_text():
    return TABLE


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table-1.yaml"
    path.write_text(TABLE, encoding="utf-8")
    return read_table(path, "somebody/table-1")


@pytest.fixture
def diverge():
    """Return a function that writes the results of a diverged training to a run's folder."""

    def leave(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps({"diverged": "Step 1: the loss is nan."}), encoding="utf-8")

    return leave


@pytest.fixture
def finish():
    """Return a function that writes the files of a finished training to a run's folder."""

    def leave(folder, test, data="published", epochs=200, config=RECIPE, **more):
        folder.mkdir(parents=True, exist_ok=True)
        stored = {
            "metric": "class_accuracy", "higher_is_better": True, "data": data, "parameters": 222_213,
            "epochs": epochs, "steps": 62_600, "val": {"val/class_accuracy": test},
            "test": {"test/class_accuracy": test}, **more,
        }  # fmt: skip
        (folder / "results.json").write_text(json.dumps(stored), encoding="utf-8")
        (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")

    return leave
