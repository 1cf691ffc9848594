"""The gap compares the validated model on training graphs with the validation scores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import pytorch_lightning as pl
import torch

from graphbench.callbacks.probe import choose_graphs
from graphbench.callbacks.train_test_gap import TrainTestGap
from graphbench.module import BenchmarkModule

Rows = Callable[..., list[dict[str, str]]]
Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def mean_error(module: BenchmarkModule, trainer: pl.Trainer, split: str, chosen: torch.Tensor) -> float:
    batch = trainer.datamodule.tables[split].batch(chosen)
    module.eval()
    with torch.no_grad():
        return float((module(batch) - batch.y).abs().mean())


def test_gap_is_unseen_error_less_training_error(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(TrainTestGap(num_graphs=9, batch_size=4))
    table = rows("train_test_gap")
    assert [(row["epoch"], row["measure"]) for row in table] == [(e, m) for e in "12" for m in ("MAE", "loss")]
    last = next(row for row in table if (row["epoch"], row["measure"]) == ("2", "MAE"))
    train = mean_error(module, trainer, "train", choose_graphs(trainer, "train", 9, seed=0))
    unseen = mean_error(module, trainer, "val", torch.arange(10))
    assert float(last["train"]) == pytest.approx(train, rel=1e-5)
    assert float(last["unseen"]) == pytest.approx(unseen, rel=1e-5)
    assert float(last["gap"]) == pytest.approx(unseen - train, rel=1e-4, abs=1e-6)
    assert trainer.logger.last("train_test_gap/MAE") == pytest.approx(float(last["gap"]))


def test_gap_to_the_test_split_after_a_test(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(TrainTestGap(num_graphs=9, every_n_epochs=2))
    trainer.test(module, trainer.datamodule, verbose=False)
    table = rows("train_test_gap")
    assert [row["split"] for row in table] == ["val", "val", "test", "test"]
    assert float(table[2]["unseen"]) == pytest.approx(mean_error(module, trainer, "test", torch.arange(8)), rel=1e-5)
    assert trainer.logger.last("train_test_gap/MAE_test") == pytest.approx(float(table[2]["gap"]))
