"""Train two steps in a given precision, with Lightning's trainer and precision plugins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader

from graphbench.contracts import Architecture, BenchmarkSpec, GraphBatch
from graphbench.testing.tiny import encode, tiny_table
from graphbench.training.module import BenchmarkModule
from graphbench.training.quiet import silenced

Precision = Literal["16-mixed", "bf16-mixed", "bf16-true", "32-true", "64-true"]
#: Dtype of the weights in training; mixed precisions keep them in float32.
_WEIGHTS = {"bf16-true": torch.bfloat16, "64-true": torch.float64}


class _Watch(pl.Callback):
    """Record losses, and check gradients and dtypes."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.losses: list[float] = []

    def on_before_optimizer_step(self, trainer: pl.Trainer, module: pl.LightningModule, optimizer: Any) -> None:
        """Check gradients as the optimizer gets them, except for the scale of 16-mixed."""
        for name, parameter in module.named_parameters():
            assert parameter.dtype == self.dtype, f"{name} trains in {parameter.dtype}, not in {self.dtype}"
            assert parameter.grad is None or parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Record the loss of the step."""
        self.losses.append(float(outputs["loss"]))


def train_two_steps(spec: BenchmarkSpec, make: Callable[[BenchmarkSpec], Architecture], precision: Precision) -> None:
    """Train a new model for two steps on tiny graphs and validate it, like `--trainer.precision`.

    On a CPU Lightning replaces 16-mixed by bf16-mixed; here its plugin uses float16 anyway, without scaling the loss
    up, so that no step is skipped.
    """
    torch.manual_seed(0)
    module = BenchmarkModule(spec, make)
    table = encode(tiny_table(spec), module.required_encodings())
    batches = [table.batch(range(0, len(table), 2)), table.batch(range(1, len(table), 2))]
    before = {name: parameter.detach().double() for name, parameter in module.named_parameters()}
    watch = _Watch(_WEIGHTS.get(precision, torch.float32))
    options: dict[str, Any] = {"precision": precision}
    if precision == "16-mixed":
        options = {"plugins": [MixedPrecision(precision, "cpu", torch.amp.GradScaler("cpu", init_scale=1.0))]}
    with silenced(("pytorch_lightning", "lightning.pytorch", "lightning_fabric")):
        trainer = pl.Trainer(
            accelerator="cpu", devices=1, max_epochs=1, num_sanity_val_steps=0, limit_val_batches=1, logger=False,
            callbacks=[watch], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            **options,
        )  # fmt: skip
        loader: DataLoader[GraphBatch] = DataLoader(batches, batch_size=None, collate_fn=lambda batch: batch)  # type: ignore[arg-type]
        trainer.fit(module, loader, loader)
    assert len(watch.losses) == 2, f"{len(watch.losses)} steps were trained, not two"
    scores = [value.double() for name, value in trainer.callback_metrics.items() if name.endswith("/loss")]
    assert torch.tensor([*watch.losses, *scores]).isfinite().all(), f"losses {watch.losses} are not finite"
    after = dict(module.named_parameters())
    for name, parameter in after.items():
        assert parameter.isfinite().all(), f"{name} is not finite after two steps"
    assert any(not torch.equal(before[name], after[name].detach().double()) for name in before), "no weight changed"
