"""A resumed run keeps the whole rows of its diagnostic tables, whatever a kill left of them."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from graphbench.callbacks import diagnostic_table
from graphbench.callbacks.diagnostic_table import trained_for
from graphbench.callbacks.train_test_gap import TrainTestGap

CUTS = {
    "in the first cell": lambda text: text[: text.rstrip("\n").rfind("\n") + 2],
    "in the second cell": lambda text: text[: text.rstrip("\n").rfind("\n") + 4],
    "in the last cell": lambda text: text[:-3],
    "zeros": lambda text: text + "\0" * 100,
    "empty": lambda text: "",
    "another table": lambda text: "a,b\n1,2\n",
    "half a header": lambda text: text[:9],
}


@pytest.fixture
def begun(fit, tmp_path):
    keep = ModelCheckpoint(tmp_path / "checkpoints", filename="last")
    fit(TrainTestGap(num_graphs=4), keep, enable_checkpointing=True)
    return str(tmp_path / "checkpoints" / "last.ckpt"), tmp_path / "run" / "diagnostics" / "train_test_gap.csv"


@pytest.mark.filterwarnings("ignore")
def test_a_torn_table_costs_its_torn_rows_alone(fit, rows, begun):
    checkpoint, path = begun
    whole, before = path.read_text(), rows("train_test_gap")
    for name, cut in CUTS.items():
        path.write_text(cut(whole))
        fit(TrainTestGap(num_graphs=4), resume=checkpoint, max_epochs=3)
        after = rows("train_test_gap")
        assert {row["epoch"] for row in after[-2:]} == {"3"}, name
        assert [row for row in after[:-2] if row not in before] == [], name
        lost = 0 if name == "zeros" else 4 if name in ("empty", "another table", "half a header") else 1
        assert len(after) == len(before) + 2 - lost, name


@pytest.mark.filterwarnings("ignore")
def test_a_second_training_in_a_folder_says_which_table_it_replaces(fit, begun, caplog):
    _, path = begun
    caplog.clear()  # the first training is done
    fit(TrainTestGap(num_graphs=4))
    assert sum(str(path) in record.getMessage() for record in caplog.records) == 1


def test_all_diagnostics_of_a_test_read_its_checkpoint_once(tmp_path, monkeypatch):
    read = []
    load = diagnostic_table.load_checkpoint
    monkeypatch.setattr(diagnostic_table, "load_checkpoint", lambda path: read.append(path) or load(path))
    path = tmp_path / "best.ckpt"
    for number, (epoch, step) in enumerate([(2, 8), (3, 12)], 1):  # the second time, the file is a new one
        progress = {"epoch_progress": {"current": {"started": epoch}}}
        torch.save({"loops": {"fit_loop": progress}, "global_step": step}, path)
        os.utime(path, ns=(number, number))
        trainer = SimpleNamespace(ckpt_path=str(path))
        assert [trained_for(trainer) for _ in range(3)] == [(epoch, step)] * 3
        assert len(read) == number
