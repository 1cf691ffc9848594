"""On two processes the tables say what one process says, also when one of them has no graph to look at."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import pytorch_lightning as pl
from toys import Toy, ToyTransformer
from two_processes import on_two

from graphbench import BenchmarkModule
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.callbacks.rank_progression import RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap


def fit(folder: Path, devices: int) -> None:
    pl.seed_everything(0)
    data = Toy(root=str(folder.parent / "data"), batch_size=4, seed=0)
    callbacks = [
        AttentionCapacity(num_graphs=7),
        RankProgression(num_graphs=1),
        AttentionMaps(num_graphs=1),
        TrainTestGap(num_graphs=None, splits=["val", "test"]),
    ]
    trainer = pl.Trainer(
        max_epochs=1,
        callbacks=callbacks,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=devices,
        strategy="ddp" if devices > 1 else "auto",
        default_root_dir=folder,
    )
    trainer.fit(BenchmarkModule(data.spec, ToyTransformer), data)


def run(tmp_path: Path, devices: int) -> dict[str, list]:
    folder = tmp_path / f"on_{devices}"
    if devices == 1:
        fit(folder, 1)
    else:
        on_two(tmp_path / "processes", lambda rank: fit(folder, 2))
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
