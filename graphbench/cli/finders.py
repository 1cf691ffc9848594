"""What Lightning's finders found becomes the configuration of the run; a search that found nothing ends it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytorch_lightning as pl
from jsonargparse import Namespace
from pytorch_lightning.callbacks import BatchSizeFinder, LearningRateFinder

from graphbench.cli.names import AS_FUNCTION, DEFAULT_OPTIMIZER
from graphbench.cli.trainer_checks import FEWEST_RATES
from graphbench.errors import BadInput
from graphbench.training.module import adam_w

if TYPE_CHECKING:
    from graphbench.cli.lightning import GraphbenchCLI

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
