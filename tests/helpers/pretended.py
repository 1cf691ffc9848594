"""A real fit of the command line on the pretended graphics card."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy

from graphbench.testing.pretend import NAME, counted_waits, on_pretended_device, pretended_device


class Measured(BaseException):
    """Enough steps were counted."""


class _Accelerator(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""


def waits_of_steps(arguments: list[str], first: int, steps: int) -> Counter[str]:
    """Who waits for the device in steps of `graphbench fit`, from the end of step `first` on.

    The process is of no further use: it knows a device more.

    Args:
        arguments: the command line after `fit`.
        first: steps before, in which everything is made.
        steps: that are counted.
    """
    from graphbench.benchmarks import base
    from graphbench.callbacks import non_finite
    from graphbench.cli import lightning
    from graphbench.cli.commands.fit import fit
    from graphbench.training import optim

    class Counting(pl.Callback):
        def __init__(self) -> None:
            self.waits: Counter[str] = Counter()

        def on_train_batch_end(self, trainer: pl.Trainer, *rest: Any) -> None:
            if trainer.global_step == first:
                self.block = counted_waits()
                self.waits = self.block.__enter__()
            if trainer.global_step == first + steps:
                self.block.__exit__(None, None, None)
                raise Measured

    original = lightning.GraphbenchCLI.instantiate_trainer

    def instantiate(cli: Any, **options: Any) -> pl.Trainer:
        cli.trainer_class = lambda **config: pl.Trainer(
            **{name: value for name, value in config.items() if name not in ("accelerator", "devices", "strategy")},
            strategy=SingleDeviceStrategy(device=pretended_device(), accelerator=_Accelerator()),
        )
        return original(cli, **options)

    counting = Counting()
    lightning.GraphbenchCLI.instantiate_trainer = instantiate  # type: ignore[method-assign]
    optim._FUSED_ON = (*optim._FUSED_ON, NAME)  # type: ignore[assignment]
    non_finite._RUNS_AHEAD |= {NAME}
    base._RUNS_AHEAD |= {NAME}
    with on_pretended_device():
        try:
            fit(arguments, [counting])
        except Measured:
            return counting.waits
    raise AssertionError("the fit ended before enough steps were counted")


if __name__ == "__main__":
    for line, number in waits_of_steps(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2])).items():
        print(f"waits: {number} times {line}")
