"""What is wrong with a trainer before anything runs: Lightning tells later, elsewhere, or not at all."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
import torch
from jsonargparse import Namespace
from pytorch_lightning.callbacks import BatchSizeFinder, LearningRateFinder

from graphbench.cli.options import AS_FUNCTION, DEFAULT_OPTIMIZER
from graphbench.errors import BadInput, check_range
from graphbench.training.module import BenchmarkModule, adam_w

if TYPE_CHECKING:
    from graphbench.cli.lightning import GraphbenchCLI


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


log = logging.getLogger(__name__)


def take_over_found(cli: GraphbenchCLI) -> None:
    """Write what Lightning's finders found into the configuration, so that a continued run has it.

    Args:
        cli: a command whose trainer's callbacks have begun their fit.

    Raises:
        BadInput: a search for a learning rate came to no end or to no rate.
    """
    callbacks: list[pl.Callback] = cli.trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, BatchSizeFinder):
            cli.config["data.init_args.batch_size"] = int(cli.datamodule.batch_size)
            log.info("Batch size found: %d", cli.datamodule.batch_size)
        if isinstance(callback, LearningRateFinder) and callback.optimal_lr is not None:
            _check_search(callback, cli.trainer)
            log.info("Learning rate found: %.3g", cli.model.lr)
            _write_rate(cli)


def found_options(config: Mapping[str, Any]) -> list[str]:
    """Return what finders found for a run, as options behind the command that began it and is given again.

    Args:
        config: configuration of the run.

    Examples:
        >>> trainer = {"callbacks": [{"class_path": "pytorch_lightning.callbacks.BatchSizeFinder"}]}
        >>> found_options({"trainer": trainer, "data": {"class_path": "NCI", "init_args": {"batch_size": 48}}})
        ['--data.batch_size=48']
    """
    callbacks = (config.get("trainer") or {}).get("callbacks") or ()
    names = {str(one.get("class_path") if isinstance(one, Mapping) else one).rpartition(".")[2] for one in callbacks}
    found = []
    if BatchSizeFinder.__name__ in names:
        found.append(f"--data.batch_size={config['data']['init_args']['batch_size']}")
    optimizer = (config.get("model") or {}).get("optimizer")
    if LearningRateFinder.__name__ in names and isinstance(optimizer, Mapping) and "lr" in optimizer["init_args"]:
        found.append(f"--model.optimizer.lr={optimizer['init_args']['lr']}")
    return found


def _write_rate(cli: GraphbenchCLI) -> None:
    """Put the rate that was found among the optimizer's options, as far as it has any."""
    if cli.config.get("model.optimizer") is adam_w or cli.config.get("model.optimizer") in AS_FUNCTION:
        cli.config["model.optimizer"] = Namespace(class_path=DEFAULT_OPTIMIZER, init_args=Namespace())
    if cli.config.get("model.optimizer.init_args") is None:
        log.warning("--model.optimizer is a function: the rate stands in the checkpoints, not in config.yaml.")
    else:
        cli.config["model.optimizer.init_args.lr"] = cli.model.lr


def _check_search(finder: LearningRateFinder, trainer: pl.Trainer) -> None:
    """Refuse a search that the run was too short for, or whose loss grew too early: its rate would be no finding.

    Raises:
        BadInput: says how many rates were tried, how many there should have been, and what to change.
    """
    search = finder.optimal_lr
    assert search is not None
    tried, asked, steps = len(search.results["loss"]), search.num_training, trainer.estimated_stepping_batches
    if steps < asked:
        raise BadInput(
            f"LearningRateFinder: this run has {steps} steps, too few to try {asked} rates. Give it more steps, with "
            f"--trainer.max_epochs or a smaller --data.batch_size, or fewer rates, with num_training_steps (at least "
            f"{FEWEST_RATES})."
        )
    if search.suggestion() is None:
        raise BadInput(
            f"LearningRateFinder: the loss grew or was no number after {tried} of {asked} rates, too few to choose "
            "from. Lower its max_lr, or set its early_stop_threshold higher or to null."
        )
