"""`configs/callbacks/diagnostics.yaml` beside any configuration switches every diagnostic on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from command_line import SMALL_MODEL

from graphbench.cli import main

DIAGNOSTICS = Path(__file__).parents[2] / "configs" / "callbacks" / "diagnostics.yaml"


@pytest.mark.slow
def test_a_run_with_every_diagnostic(data_options, tmp_path):
    arguments = ["--config", str(DIAGNOSTICS), *data_options, *SMALL_MODEL, "--trainer.max_epochs", "1"]
    assert main(["fit", *arguments, "--run", str(tmp_path / "run")]) == 0
    found = tmp_path / "run" / "diagnostics"
    for name in ("attention_capacity", "rank_progression"):
        table = pd.read_csv(found / f"{name}.csv")
        assert sorted(table["epoch"].unique()) == [0, 1]
        assert table["value"].notna().all()
    assert set(pd.read_csv(found / "train_test_gap.csv")["split"]) == {"val"}
    kinds = sorted(path.stem.rpartition("_")[2] for path in (found / "attention_maps").glob("*.png"))
    assert kinds == ["drawing", "drawing", "matrices", "matrices"]
