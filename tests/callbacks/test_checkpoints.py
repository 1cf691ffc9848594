"""The best epoch of a run."""

from __future__ import annotations

import pytest
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from graphbench.callbacks import TrainTestGap
from graphbench.callbacks.checkpoints import BestCheckpoint, LastCheckpoint
from graphbench.errors import BadInput


class Scored(pl.LightningModule):
    """Logs a given accuracy and loss in every epoch."""

    def __init__(self, scores):
        super().__init__()
        self.weight, self.scores = torch.nn.Parameter(torch.zeros(1)), scores

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        accuracy, loss = self.scores[self.current_epoch]
        self.log_dict({"val/accuracy": accuracy, "val/loss": loss})

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def best_epoch(folder, scores, start=None):
    best = BestCheckpoint(folder, "best", monitor="val/accuracy", mode="max", enable_version_counter=False)
    last = pl.callbacks.ModelCheckpoint(folder, "last-{epoch}", save_top_k=-1)
    trainer = pl.Trainer(
        max_epochs=len(scores), callbacks=[best, last], logger=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    rows = DataLoader(torch.zeros(1, 1))
    trainer.fit(Scored(scores), rows, rows, ckpt_path=start)
    return torch.load(folder / "best.ckpt", weights_only=True)["epoch"]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([(0.5, 1.0), (0.5, 0.8), (0.4, 0.1), (0.5, 0.9)], 1),
        ([(0.5, 0.8), (0.5, 0.8), (0.5, 0.9)], 0),
        ([(0.5, 0.1), (0.6, 0.8), (0.6, 0.7)], 2),
        ([(float("nan"), 0.1), (0.5, 0.8)], 1),
    ],
)
def test_of_equal_epochs_the_one_with_the_smallest_loss_is_the_best(tmp_path, scores, best):
    assert best_epoch(tmp_path, scores) == best


def test_a_continued_run_compares_with_the_loss_of_before(tmp_path):
    first = [(0.5, 1.0), (0.5, 0.5)]
    assert best_epoch(tmp_path, first) == 1
    start = tmp_path / "last-epoch=1.ckpt"
    assert best_epoch(tmp_path, [*first, (0.5, 0.7)], start) == 1
    assert best_epoch(tmp_path, [*first, (0.5, 0.4)], start) == 2


@pytest.mark.parametrize(("kind", "option", "value"), [(LastCheckpoint, "steps", -5), (TrainTestGap, "epochs", 0)])
def test_an_interval_out_of_range_is_refused(kind, option, value):
    with pytest.raises(BadInput, match=rf"every_n_{option} must be .+ got {value}"):
        kind(**{f"every_n_{option}": value})
