"""On several processes the tables say what one process says, also when one of them has no graph to look at."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from toys import Toy, ToyTransformer
from two_processes import on_two

from graphbench import BenchmarkModule
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.callbacks.rank_progression import GradientFlow, InfluenceRange, RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap

#: Ends within the third epoch, so that nobody knows that it is the last.
STEPS = 7


def fit(folder: Path, devices: int) -> None:
    """Steps of six graphs by a model that draws nothing, so that any number of processes takes the same ones."""
    pl.seed_everything(0)
    data = Toy(root=str(folder.parent / "data"), batch_size=6 // devices, seed=0)
    callbacks = [
        AttentionCapacity(num_graphs=7, every_n_epochs=1),
        RankProgression(num_graphs=1, every_n_epochs=1),
        # Two nodes of most graphs, one of a share of them alone; batches of fewer graphs than a process has.
        InfluenceRange(num_graphs=5, every_n_epochs=2, num_targets=2, num_probes=3, norm="squared", batch_size=2),
        GradientFlow(num_graphs=4),
        AttentionMaps(num_graphs=1),
        TrainTestGap(num_graphs=7, splits=["val", "test"]),
    ]
    trainer = pl.Trainer(
        max_epochs=-1, max_steps=STEPS, val_check_interval=2, callbacks=callbacks, logger=False, devices=devices,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        strategy="ddp" if devices > 1 else "auto", default_root_dir=folder,
    )  # fmt: skip
    model = BenchmarkModule(
        data.spec, lambda spec: ToyTransformer(spec, draws=False), optimizer=lambda p: torch.optim.SGD(p, lr=0.05)
    )
    trainer.fit(model, data)


def run(tmp_path: Path, devices: int) -> dict[str, list[Any]]:
    folder = tmp_path / f"on_{devices}"
    if devices == 1:
        fit(folder, 1)
    else:
        on_two(tmp_path / f"processes-{devices}", lambda rank: fit(folder, devices), devices)
    tables: dict[str, list[Any]] = {}
    for path in (folder / "diagnostics").glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            tables[path.stem] = list(csv.DictReader(file))
    return tables | {"pictures": sorted(path.name for path in (folder / "diagnostics").rglob("*.png"))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def one(folder: Path) -> dict[str, list[Any]]:
    return run(folder, 1)


@pytest.mark.parametrize("devices", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_tables_and_pictures_are_those_of_one_process(folder: Path, one: dict[str, list[Any]], devices: int) -> None:
    several = run(folder, devices)
    assert several.keys() == one.keys()
    assert several.pop("pictures") == one["pictures"]
    for name, table in several.items():
        assert len(table) == len(one[name]) > 10
        for left, right in zip(one[name], table, strict=True):
            for column, text in left.items():
                if column in ("value", "train", "unseen", "gap"):
                    assert float(text) == pytest.approx(float(right[column]), rel=2e-4, abs=1e-6, nan_ok=True), left
                else:
                    assert text == right[column]


def test_every_table_is_finished(one: dict[str, list[Any]]) -> None:
    """After the last epoch too, where `max_steps` ends it."""
    looked = {name: {int(row["epoch"]) for row in table} for name, table in one.items() if name != "pictures"}
    every, second = {0, 1, 2, 3}, {0, 2, 3}
    assert looked == {
        "attention_capacity": every,
        "rank_progression": every,
        "range": second,
        "gradients": second,
        "train_test_gap": {1, 2, 3},
    }
    steps = {int(row["step"]) for name in ("range", "gradients") for row in one[name]}
    assert steps == {0, 6, STEPS}


def test_unseen_splits_are_scored_whole_at_every_validation(one: dict[str, list[Any]]) -> None:
    gap = one["train_test_gap"]
    assert [row["split"] for row in gap[:4]] == ["val", "val", "test", "test"]
    assert {row["stage"] for row in gap} == {"fit"}
    assert len(one["pictures"]) == 2
