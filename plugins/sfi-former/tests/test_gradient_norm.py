"""The table of gradient norms: one row per step, before clipping, and kept where a run goes on."""

from __future__ import annotations

import csv

import pytorch_lightning as pl
import torch
from torch import nn

from graphbench_sfi_former import GradientNorm


class Line(pl.LightningModule):
    """w x with loss w x, whose gradient is x."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2))

    def training_step(self, batch, batch_idx):
        return (self.w * batch[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_every_step_has_its_norm_before_clipping(tmp_path):
    data = torch.utils.data.DataLoader([torch.tensor([3.0, 4.0]) * k for k in (1, 2, 3)], batch_size=1)
    trainer = pl.Trainer(
        default_root_dir=tmp_path,
        max_epochs=2,
        gradient_clip_val=1.0,
        callbacks=[GradientNorm()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
    )
    trainer.fit(Line(), data)
    with (tmp_path / "diagnostics" / "gradient_norm.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(int(r["epoch"]), int(r["step"]), float(r["norm"])) for r in rows] == [
        (0, 1, 5.0), (0, 2, 10.0), (0, 3, 15.0), (1, 4, 5.0), (1, 5, 10.0), (1, 6, 15.0),
    ]  # fmt: skip
