"""A real fit of the command line on the pretended graphics card."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy

from graphbench.testing.pretend import NAME, counted_work, on_pretended_device, pretended_device


class Measured(BaseException):
    """Enough steps were counted."""


class _Accelerator(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""


def waits_of_steps(arguments: list[str], first: int, steps: int) -> Counter[str]:
    """Who waits for the device in steps of `graphbench fit`: from the start of one to the start of one behind the last.

    The process is of no further use: it knows a device more.

    Args:
        arguments: the command line after `fit`.
        first: optimizer steps before, in which everything is made.
        steps: that are counted.
    """
    from graphbench.benchmarks import base
    from graphbench.callbacks import non_finite
    from graphbench.callbacks.throughput import Throughput
    from graphbench.cli import lightning, main
    from graphbench.training import optim

    made = lightning.GraphbenchCLI.instantiate_trainer
    block, waits = counted_work(), Counter[str]()

    def instantiate(cli: Any, **options: Any) -> pl.Trainer:
        cli.trainer_class = lambda **config: pl.Trainer(
            **{name: value for name, value in config.items() if name not in ("accelerator", "devices", "strategy")},
            strategy=SingleDeviceStrategy(device=pretended_device(), accelerator=_Accelerator()),
        )
        return made(cli, **options)

    def count(callback: Throughput, trainer: pl.Trainer, *rest: Any) -> None:
        nonlocal waits
        if trainer.global_step == first and not waits["begun"]:
            waits = block.__enter__().waits
            waits["begun"] += 1
        if trainer.global_step == first + steps:
            block.__exit__(None, None, None)
            raise Measured

    lightning.GraphbenchCLI.instantiate_trainer = instantiate  # type: ignore[method-assign]
    Throughput.on_train_batch_start = count  # type: ignore[method-assign]
    for module in (non_finite, base):
        module._RUNS_AHEAD |= {NAME}
    optim._FUSED_ON = (*optim._FUSED_ON, NAME)  # type: ignore[assignment]
    train = pl.Trainer.fit

    def train_there(trainer: pl.Trainer, *given: Any, **options: Any) -> None:
        with on_pretended_device():
            train(trainer, *given, **options)

    pl.Trainer.fit = train_there  # type: ignore[method-assign]
    try:
        main(["fit", *arguments])
    except Measured:
        del waits["begun"]
        return waits
    raise AssertionError("the fit ended before enough steps were counted")


if __name__ == "__main__":
    for line, number in waits_of_steps(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2])).items():
        print(f"waits: {number} times {line}")
