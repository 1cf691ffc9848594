"""A run goes on with the whole rows of its diagnostics, whatever a kill has left of them."""

from __future__ import annotations

import pytest
from pytorch_lightning.callbacks import ModelCheckpoint

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
