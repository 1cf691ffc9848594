"""`configs/callbacks/diagnostics.yaml` beside the quickstart switches every diagnostic on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from command_line import graphbench

CONFIGS = Path(__file__).parents[2] / "configs"


def test_quickstart_with_every_diagnostic(tmp_path):
    graphbench(
        "fit", "--config", CONFIGS / "quickstart.yaml", "--config", CONFIGS / "callbacks" / "diagnostics.yaml",
        "--trainer.max_epochs", 1, "--trainer.limit_train_batches", 5, "--trainer.accelerator", "cpu",
        "--run", tmp_path / "run", "--data.root", tmp_path / "data",
    )  # fmt: skip
    found = tmp_path / "run" / "diagnostics"
    for name in ("attention_capacity", "rank_progression"):
        table = pd.read_csv(found / f"{name}.csv")
        assert sorted(table["epoch"].unique()) == [0, 1]
        assert table["value"].notna().all()
    assert set(pd.read_csv(found / "train_test_gap.csv")["split"]) == {"val"}
    kinds = sorted(path.stem.rpartition("_")[2] for path in (found / "attention_maps").glob("*.png"))
    assert kinds == ["drawing", "drawing", "matrices", "matrices"]
