"""What is wrong with a trainer before anything runs: Lightning tells later, elsewhere, or not at all."""

from __future__ import annotations

import difflib
import os
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import LearningRateFinder

from graphbench.errors import BadInput, check_range
from graphbench.training.module import BenchmarkModule

#: Lightning leaves the first ten losses and the last one out, and takes a slope between two.
FEWEST_RATES = 13


def check_trainer(config: dict[str, Any], callbacks: list[pl.Callback], model: BenchmarkModule) -> None:
    """Look at the options of a trainer.

    Args:
        config: arguments of `Trainer`.
        callbacks: the configured ones, built.
        model: what will be trained.

    Raises:
        BadInput: names the option, its value and what would be right.
    """
    _check_numbers(config)
    _check_rates(callbacks)
    _check_monitors(callbacks, model)
    _check_processes(config)


def _check_numbers(config: dict[str, Any]) -> None:
    """Refuse what Lightning takes and divides by, or leaves out without a word.

    Raises:
        BadInput: names the option and its range.
    """
    least = {"accumulate_grad_batches": 1, "check_val_every_n_epoch": 1, "gradient_clip_val": 0, "log_every_n_steps": 0,
             "num_sanity_val_steps": -1}  # fmt: skip
    for name, limit in least.items():
        if config.get(name) is not None:
            check_range(f"--trainer.{name}", config[name], at_least=limit)


def _check_rates(callbacks: list[pl.Callback]) -> None:
    """Refuse a search for a learning rate between bounds that have nothing between them, or of too few rates.

    Raises:
        BadInput: names the option.
    """
    for one in callbacks:
        if not isinstance(one, LearningRateFinder):
            continue
        if not 0 < one._min_lr < one._max_lr:
            raise BadInput(
                f"LearningRateFinder: min_lr must be above 0 and below max_lr, but got {one._min_lr} and {one._max_lr}."
            )
        check_range("LearningRateFinder: num_training_steps", one._num_training_steps, at_least=FEWEST_RATES)


def _check_monitors(callbacks: list[pl.Callback], model: BenchmarkModule) -> None:
    """Refuse to watch a score that is never reported: Lightning says so only when an epoch is over.

    Scores that a callback of the user's own logs are not known here; beside such a callback all names are let through.

    Raises:
        BadInput: names the callback, its monitor and what there is.
    """
    known = model.scores.while_training
    if not all(type(one).__module__.startswith(("pytorch_lightning.", "graphbench.")) for one in callbacks):
        return
    for one in callbacks:
        watched = getattr(one, "monitor", None)
        if not isinstance(watched, str) or watched in known:
            continue
        lower = {name.lower(): name for name in known}
        near = [lower[name] for name in difflib.get_close_matches(watched.lower(), lower, n=1, cutoff=0.8)]
        if near or watched.startswith(("train/", "val/", "test/")):  # others are times, rates and diagnostics
            hint = f"did you mean {near[0]}? There is " if near else "there is "
            raise BadInput(
                f"{type(one).__name__}: monitor is {watched!r}, which no epoch reports; {hint}{', '.join(known)}."
            )


def _check_processes(config: dict[str, Any]) -> None:
    """Refuse more processes on the CPU than it has cores for: Lightning would start them all, and the machine stop.

    Raises:
        BadInput: names the number and the most.
    """
    devices, most = str(config.get("devices", "auto")), max(8, os.cpu_count() or 1)
    on_cpu = config.get("accelerator") == "cpu" or not torch.cuda.is_available()
    if on_cpu and devices.isdecimal() and int(devices) > most:
        raise BadInput(f"--trainer.devices is {devices}: that many processes on the CPU; expected at most {most} here.")
