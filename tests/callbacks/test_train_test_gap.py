"""The gap compares the validated model's scores on training graphs with the validation scores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from toys import Toy, ToyTransformer

from graphbench.callbacks.checkpoints import LastCheckpoint
from graphbench.callbacks.probe import choose_graphs
from graphbench.callbacks.train_test_gap import TrainTestGap
from graphbench.errors import BadInput
from graphbench.training.module import BenchmarkModule

Rows = Callable[..., list[dict[str, str]]]
Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def mean_error(module: BenchmarkModule, trainer: pl.Trainer, split: str, chosen: torch.Tensor) -> float:
    batch = trainer.datamodule.tables[split].batch(chosen)
    module.eval()
    with torch.no_grad():
        return float((module.predict(batch) - batch.y).abs().mean())


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


def test_opted_in_test_split_is_scored_while_training_and_marked(
    fit: Fit, rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        module, trainer = fit(TrainTestGap(num_graphs=None, splits=["val", "test"], batch_size=3), max_epochs=1)
    table = rows("train_test_gap")
    assert [(row["split"], row["measure"], row["stage"]) for row in table] == [
        (split, measure, "fit") for split in ("val", "test") for measure in ("MAE", "loss")
    ]
    assert float(table[2]["train"]) == pytest.approx(mean_error(module, trainer, "train", torch.arange(16)), rel=1e-5)
    assert float(table[2]["unseen"]) == pytest.approx(mean_error(module, trainer, "test", torch.arange(8)), rel=1e-5)
    assert trainer.logger.last("train_test_gap/MAE_test") == pytest.approx(float(table[2]["gap"]))
    assert "scores the test split during training" in caplog.text


def test_stage_tells_a_test_of_the_run_from_a_look_while_training(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(TrainTestGap(num_graphs=5, splits=["test"]), max_epochs=1)
    trainer.test(module, trainer.datamodule, verbose=False)
    assert [row["stage"] for row in rows("train_test_gap")] == ["fit", "fit", "test", "test"]


@pytest.mark.parametrize("finished", [1, 2])
def test_rows_of_a_test_carry_the_epoch_and_step_of_the_tested_checkpoint(
    fit: Fit, rows: Rows, tmp_path: Path, finished: int
) -> None:
    """Test with another trainer, whose own counters are at 0, as `graphbench test` does."""
    saved = ModelCheckpoint(tmp_path, "{epoch}", monitor="val/MAE", save_top_k=-1)
    module, trainer = fit(TrainTestGap(num_graphs=5), saved, enable_checkpointing=True)
    other = pl.Trainer(
        callbacks=[TrainTestGap(num_graphs=5)], logger=False, accelerator="cpu", enable_progress_bar=False,
        default_root_dir=trainer.default_root_dir,
    )  # fmt: skip
    other.test(module, trainer.datamodule, ckpt_path=tmp_path / f"epoch={finished}.ckpt", verbose=False)
    tested = [row for row in rows("train_test_gap") if row["stage"] == "test"]
    assert [(row["epoch"], row["step"]) for row in tested] == [(str(finished), str(4 * finished))] * 2


def test_rows_of_a_test_after_the_training_carry_its_last_epoch(fit: Fit, rows: Rows) -> None:
    module, trainer = fit(TrainTestGap(num_graphs=5))
    trainer.test(module, trainer.datamodule, verbose=False)
    assert [(row["epoch"], row["step"]) for row in rows("train_test_gap") if row["stage"] == "test"] == [("2", "8")] * 2


@pytest.mark.parametrize("when", ["after the epoch", "after the training"])
def test_last_checkpoints_count_finished_epochs(fit: Fit, rows: Rows, tmp_path: Path, when: str) -> None:
    module, trainer = fit(TrainTestGap(num_graphs=5), LastCheckpoint(), enable_checkpointing=True)
    path = Path(trainer.default_root_dir, "checkpoints", "last.ckpt")
    if when == "after the training":
        path = tmp_path / "after.ckpt"
        trainer.save_checkpoint(path)
    trainer.test(module, trainer.datamodule, ckpt_path=path, verbose=False)
    assert [(row["epoch"], row["step"]) for row in rows("train_test_gap") if row["stage"] == "test"] == [("2", "8")] * 2


def test_the_test_split_stays_unread_unless_named(fit: Fit, rows: Rows) -> None:
    fit(TrainTestGap(num_graphs=5))
    assert {row["split"] for row in rows("train_test_gap")} == {"val"}


@pytest.mark.parametrize("splits", [[], ["train"], "val", ["val", "predict"]])
def test_other_splits_are_refused(splits: list[str]) -> None:
    with pytest.raises(BadInput, match="splits of TrainTestGap must be a list of val, test or both"):
        TrainTestGap(splits=splits)


class Scaled(Toy):
    """Changes batches on the device, as point clouds are sampled and rotated there."""

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        batch.x_dense = 3 * batch.x_dense
        return batch


def test_graphs_are_scored_as_the_loop_has_them(tmp_path: Path, rows: Rows) -> None:
    pl.seed_everything(0, verbose=False)
    data = Scaled(root=str(tmp_path / "data"), batch_size=4, seed=0)
    module = BenchmarkModule(data.spec, ToyTransformer)
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[TrainTestGap(splits=["test"])], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path / "run",
    )  # fmt: skip
    trainer.fit(module, data)
    looked = {row["measure"]: float(row["unseen"]) for row in rows("train_test_gap")}
    (scored,) = trainer.test(module, data, verbose=False)
    assert looked == pytest.approx({name: scored[f"test/{name}"] for name in looked}, rel=1e-5)
