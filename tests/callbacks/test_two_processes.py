"""On several processes the tables equal those of one process, even if one of them has no graph to probe."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from sharded import ShardedOnCpu
from torch import nn
from toys import Toy, ToyTransformer
from two_processes import on_two

from graphbench import BenchmarkModule
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.callbacks.non_finite import Diverged, NonFinite, _first_layer
from graphbench.callbacks.rank_progression import GradientFlow, InfluenceRange, RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap

#: Ends within the third epoch, so no callback knows in advance that it is the last.
STEPS = 7


def made(devices: int, folder: Path) -> tuple[BenchmarkModule, Toy]:
    pl.seed_everything(0)
    data = Toy(root=str(folder.parent / "data"), batch_size=6 // devices, seed=0)
    module = BenchmarkModule(
        data.spec, lambda spec: ToyTransformer(spec, draws=False), optimizer=lambda p: torch.optim.SGD(p, lr=0.05)
    )
    return module, data


def fit(folder: Path, devices: int, strategy: Any) -> None:
    """Train on six graphs a step with a model that draws nothing: any number of processes takes the same steps."""
    callbacks = [
        AttentionCapacity(num_graphs=7, every_n_epochs=1),
        RankProgression(num_graphs=1, every_n_epochs=1),
        # Two target nodes a graph, and batches smaller than a process's share of the graphs.
        InfluenceRange(num_graphs=5, every_n_epochs=2, num_targets=2, num_probes=3, norm="squared", batch_size=2),
        GradientFlow(num_graphs=4),
        AttentionMaps(num_graphs=1),
        TrainTestGap(num_graphs=7, splits=["val", "test"]),
    ]
    trainer = pl.Trainer(
        max_epochs=-1, max_steps=STEPS, val_check_interval=2, callbacks=callbacks, logger=False, devices=devices,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        strategy=strategy, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(*made(devices, folder))


def run(folder: Path, devices: int, strategy: Any = "auto") -> dict[str, list[Any]]:
    if devices == 1:
        fit(folder, 1, strategy)
    else:
        on_two(folder.parent / f"processes-{folder.name}", lambda rank: fit(folder, devices, strategy), devices)
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
    return run(folder / "one", 1)


SHARDED = ShardedOnCpu(sharding_strategy="FULL_SHARD")


@pytest.mark.parametrize(
    ("name", "devices", "strategy"),
    [
        ("two", 2, "ddp"),
        pytest.param("sharded", 2, SHARDED, marks=pytest.mark.slow),
        pytest.param("three", 3, "ddp", marks=pytest.mark.slow),
    ],
)
def test_tables_and_pictures_are_those_of_one_process(
    folder: Path, one: dict[str, list[Any]], name: str, devices: int, strategy: Any
) -> None:
    several = run(folder / name, devices, strategy)
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
    """This includes the last epoch, which `max_steps` cuts short."""
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


class Poison(pl.Callback):
    """Gives one process a batch of NaN, which the others see only through its gradients."""

    def on_train_batch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, *_: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == 2:
            batch.x_dense = batch.x_dense * torch.nan


@pytest.mark.parametrize("strategy", ["ddp", SHARDED])
def test_a_loss_that_is_no_number_is_said_alike_by_all_processes(tmp_path: Path, strategy: Any) -> None:
    """This includes processes whose own loss is finite, among them the first, the only one that prints."""

    def work(rank: int) -> str:
        trainer = pl.Trainer(
            max_epochs=2, callbacks=[Poison(), NonFinite()], logger=False, devices=2, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", strategy=strategy,
            default_root_dir=tmp_path,
        )  # fmt: skip
        with pytest.raises(Diverged) as told:
            trainer.fit(*made(2, tmp_path / "run"))
        return str(told.value)

    first, second = on_two(tmp_path / "two", work)
    assert first == second
    assert "the loss is nan; the first layer whose output is not finite is architecture.embed (Linear)." in first


def test_layers_that_wait_for_other_processes_are_looked_at_alone() -> None:
    """A batch norm over processes trains on CUDA only; it would wait for those whose loss is finite."""
    layers = nn.Sequential(nn.Linear(2, 3), nn.SyncBatchNorm(3))
    module = pl.LightningModule()
    module.layers, module.forward = layers, lambda batch: layers(batch)
    assert _first_layer(module, torch.full((4, 2), torch.nan)) == "layers.0 (Linear)"
    assert layers[1].training
