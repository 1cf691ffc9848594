"""Running means under a falling momentum follow their recursion; a model without batch norms is refused."""

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn

from graphbench.callbacks import BatchNormMomentum
from graphbench.errors import BadInput
from graphbench.nn import BatchNorm

BATCHES = torch.randn(4, 6, 2, generator=torch.Generator().manual_seed(0)) + 3


class Norms(pl.LightningModule):
    """Two kinds of norms and a weight to train."""

    def __init__(self, normed=True):
        super().__init__()
        self.norms = nn.ModuleList([BatchNorm(2), nn.BatchNorm2d(2)] if normed else [nn.LayerNorm(2)])
        self.weight = nn.Parameter(torch.ones(1))

    def training_step(self, batch, index):
        rows = batch[0]
        for norm in self.norms:
            norm(rows[:, :, None, None] if isinstance(norm, nn.BatchNorm2d) else rows)
        return self.weight.square().sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fitted(tmp_path, epochs, callbacks, resume=None, model=None):
    model = model or Norms()
    trainer = pl.Trainer(
        max_epochs=epochs, callbacks=callbacks, logger=False, enable_progress_bar=False, enable_model_summary=False,
        accelerator="cpu", default_root_dir=tmp_path,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks),
    )  # fmt: skip
    loader = torch.utils.data.DataLoader([(one,) for one in BATCHES], batch_size=None)
    trainer.fit(model, loader, ckpt_path=resume)
    return model


def expected(interval, epochs):
    mean = torch.zeros(2)
    for epoch in range(epochs):
        for step, batch in enumerate(BATCHES):
            drops = epoch // 2 if interval == "epoch" else (epoch * len(BATCHES) + step) // 2
            momentum = max(0.05, 0.5 * 0.4**drops)
            mean = (1 - momentum) * mean + momentum * batch.mean(0)
    return mean


@pytest.mark.parametrize("interval", ["epoch", "step"])
def test_running_means_follow_the_falling_momentum_and_a_resumed_run_goes_on(tmp_path, interval):
    falling = BatchNormMomentum(0.5, gamma=0.4, step_size=2, interval=interval, floor=0.05)
    keep = ModelCheckpoint(tmp_path, filename="{epoch}", save_top_k=-1)
    whole = fitted(tmp_path, 7, [falling, keep])
    for norm in whole.norms:
        assert torch.allclose(norm.running_mean, expected(interval, 7), rtol=1e-5)
    resumed = fitted(tmp_path, 7, [falling], resume=str(tmp_path / "epoch=3.ckpt"))
    for norm, other in zip(whole.norms, resumed.norms, strict=True):
        assert torch.equal(norm.running_mean, other.running_mean)
        assert torch.equal(norm.running_var, other.running_var)


def test_a_model_without_batch_norms_is_told(tmp_path):
    with pytest.raises(BadInput, match="the model has no batch norm; leave this callback out"):
        fitted(tmp_path, 1, [BatchNormMomentum(0.5)], model=Norms(normed=False))


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.0},
        {"momentum": 1.1},
        {"momentum": 0.1, "gamma": 0.0},
        {"momentum": 0.1, "step_size": 0},
        {"momentum": 0.1, "floor": 0.2},
        {"momentum": 0.1, "interval": "batch"},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(BadInput, match="BatchNormMomentum"):
        BatchNormMomentum(**options)
