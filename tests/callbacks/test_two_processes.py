"""On two processes the tables say what one process says, also when one of them has no graph to look at."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
SCRIPT = """
import importlib.util, sys
import pytorch_lightning as pl

spec = importlib.util.spec_from_file_location("toys", sys.argv[1])
toys = importlib.util.module_from_spec(spec)
spec.loader.exec_module(toys)
from graphbench import BenchmarkModule
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.callbacks.rank_progression import RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap

folder, devices = sys.argv[2], int(sys.argv[3])
pl.seed_everything(0)
data = toys.Toy(root=folder + "/../data", batch_size=4, seed=0)
module = BenchmarkModule(data.spec, toys.ToyTransformer)
callbacks = [AttentionCapacity(num_graphs=7), RankProgression(num_graphs=1), AttentionMaps(num_graphs=1),
             TrainTestGap(num_graphs=None, splits=["val", "test"])]
trainer = pl.Trainer(max_epochs=1, callbacks=callbacks, logger=False, enable_checkpointing=False,
                     enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", devices=devices,
                     strategy="ddp" if devices > 1 else "auto", default_root_dir=folder)
trainer.fit(module, data)
"""


def run(tmp_path: Path, devices: int) -> dict[str, list]:
    folder = tmp_path / f"on_{devices}"
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(CONFTEST), str(folder), str(devices)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    tables: dict[str, list] = {}
    for path in (folder / "diagnostics").glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables | {"pictures": sorted(path.name for path in (folder / "diagnostics").rglob("*.png"))}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, dict]:
    tmp_path = tmp_path_factory.mktemp("processes")
    return run(tmp_path, 1), run(tmp_path, 2)


@pytest.mark.parametrize("name", ["attention_capacity", "rank_progression"])
def test_untrained_model_gives_equal_tables(tables: tuple[dict, dict], name: str) -> None:
    one, two = ([row for row in of[name] if row["epoch"] == "0"] for of in tables)
    assert len(one) == len(two) > 10
    for left, right in zip(one, two, strict=True):
        assert {**left, "value": 0} == {**right, "value": 0}
        assert float(left["value"]) == pytest.approx(float(right["value"]), rel=1e-4, abs=1e-6)


def test_every_table_is_finished(tables: tuple[dict, dict]) -> None:
    for of in tables:
        assert {name: rows[-1]["epoch"] for name, rows in of.items() if name != "pictures"} == {
            "attention_capacity": "1",
            "rank_progression": "1",
            "train_test_gap": "1",
        }


def test_unseen_splits_are_scored_whole_on_any_number_of_processes(tables: tuple[dict, dict]) -> None:
    for of in tables:
        assert [row["split"] for row in of["train_test_gap"]] == ["val", "val", "test", "test"]
        assert {row["stage"] for row in of["train_test_gap"]} == {"fit"}


def test_one_process_draws_and_nobody_waits(tables: tuple[dict, dict]) -> None:
    one, two = (of["pictures"] for of in tables)
    assert one == two
    assert len(one) == 2
