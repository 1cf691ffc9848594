"""A real fit of the command line on the pretended GPU."""

from __future__ import annotations

import sys
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.strategies import SingleDeviceStrategy

from graphbench.testing.pretend import NAME, Work, counted_work, on_pretended_device, pretended_device


class Measured(BaseException):
    """Enough steps were counted."""


class _Accelerator(CPUAccelerator):
    def setup_device(self, device: torch.device) -> None:
        """There is nothing to set up."""


def work_of_steps(arguments: list[str], first: int, steps: int) -> Work:
    """Count the work of steps of `graphbench fit`, from the start of the first to the start of the one after the last.

    The process cannot be used afterwards: it has registered another device.

    Args:
        arguments: the command line after `fit`.
        first: optimizer steps before the counted ones, in which everything is made.
        steps: number of steps to count.
    """
    from graphbench.benchmarks import base
    from graphbench.callbacks import non_finite
    from graphbench.callbacks.throughput import Throughput
    from graphbench.cli import lightning, main
    from graphbench.training import optim

    made = lightning.GraphbenchCLI.instantiate_trainer
    block, work = counted_work(), None

    def instantiate(cli: Any, **options: Any) -> pl.Trainer:
        cli.trainer_class = lambda **config: pl.Trainer(
            **{name: value for name, value in config.items() if name not in ("accelerator", "devices", "strategy")},
            strategy=SingleDeviceStrategy(device=pretended_device(), accelerator=_Accelerator()),
        )
        return made(cli, **options)

    def count(callback: Throughput, trainer: pl.Trainer, *rest: Any) -> None:
        nonlocal work
        if trainer.global_step == first and work is None:
            work = block.__enter__()
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
        assert work is not None
        return work
    raise AssertionError("the fit ended before enough steps were counted")


if __name__ == "__main__":
    work = work_of_steps(sys.argv[3:], int(sys.argv[1]), int(sys.argv[2]))
    for kind, lines in (("waits", work.waits), ("copies", work.copies)):
        for line, number in lines.items():
            print(f"{kind}: {number} times {line}")
