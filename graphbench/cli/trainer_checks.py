"""Check the trainer's options before anything runs, and the results of Lightning's finders once they have run.

Lightning reports these mistakes later, elsewhere, or not at all.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, get_args

import pytorch_lightning as pl
import torch
from jsonargparse import Namespace
from pytorch_lightning.callbacks import BackboneFinetuning, BatchSizeFinder, LearningRateFinder, SpikeDetection
from pytorch_lightning.plugins import DeepSpeedPrecision
from pytorch_lightning.plugins.environments import SLURMEnvironment

from graphbench.cli.command_line import CommandLine, class_names, value_at
from graphbench.cli.options import AS_FUNCTION, DEFAULT_OPTIMIZER, Request
from graphbench.errors import BadInput, check_range
from graphbench.training.lightning_internals import cluster_environment
from graphbench.training.module import BenchmarkModule, adam_w

log = logging.getLogger(__name__)
#: Lightning drops the first ten losses and the last one, and a slope needs two.
_MIN_RATES = 13
#: Option of the trainer -> its minimum: Lightning divides by some, and silently ignores others.
_LEAST = {"accumulate_grad_batches": 1, "check_val_every_n_epoch": 1, "gradient_clip_val": 0, "log_every_n_steps": 0,
          "num_sanity_val_steps": -1}  # fmt: skip
#: Callbacks and plug-ins of Lightning that no run can use, why, and what to use instead.
_INSTEAD = {
    BackboneFinetuning: "its groups of parameters are not those of a continued run. --model.freeze architecture "
    "--model.freeze_epochs 10 trains only the head for ten epochs; --model.learning_rates sets the rates after that",
    SpikeDetection: "Lightning cannot load its state, so the run could be neither tested nor continued. "
    "NonFinite, which is always on, takes no step that is not finite",
    DeepSpeedPrecision: "only DeepSpeed's strategy can use it. --trainer.precision sets the precision of any strategy",
}
#: Profilers of Lightning that can be given by name.
_PROFILERS = ("simple", "advanced", "pytorch")
#: Options for which 0 means a training without a step.
_LENGTHS = ("max_epochs", "max_steps", "limit_train_batches")


def whole_numbers_first(function: Callable[..., Any]) -> None:
    """Read options that accept both whole numbers and shares as whole numbers when they are written as such.

    `limit_val_batches: 1` is one batch, and 1.0 is all. The parser uses the first type of a union that fits. Of equal
    unions, `typing` returns the one that was created first, which in scikit-learn begins with `float`.
    """
    hints = function.__annotations__
    for name, hint in hints.items():
        kinds = get_args(hint)
        if int in kinds and float in kinds:
            hints[name] = reduce(or_, sorted(kinds, key=lambda kind: kind is not int))


def check_trainer(
    config: Mapping[str, Any], callbacks: Sequence[pl.Callback], parsed: Sequence[Namespace], model: BenchmarkModule
) -> None:
    """Check the options of a trainer: arguments of `Trainer`, and the callbacks both as built and as `parsed`."""
    for name, least in _LEAST.items():
        if config.get(name) is not None:
            check_range(f"--trainer.{name}", config[name], at_least=least)
    for name in _LENGTHS:
        if config.get(name) == 0:
            raise BadInput(f"--trainer.{name} is 0: nothing would be trained; expected more.")
    for unit in ("epochs", "steps"):
        fewest, most = config.get(f"min_{unit}"), config.get(f"max_{unit}")
        if fewest is not None and most is not None and 0 < most < fewest:
            raise BadInput(f"--trainer.min_{unit} is {fewest}, but --trainer.max_{unit} ends the run after {most}.")
    if config.get("gradient_clip_algorithm") is not None and not config.get("gradient_clip_val"):
        log.warning(
            "trainer.gradient_clip_algorithm: %s has no effect without gradient_clip_val.",
            config["gradient_clip_algorithm"],
        )
    if config.get("barebones"):
        raise BadInput(
            "--trainer.barebones true omits checkpoints, loggers and callbacks, which a run consists of. For the "
            "bare speed of a training see graphbench profile."
        )
    profiler = config.get("profiler")
    if isinstance(profiler, str) and profiler.lower() not in _PROFILERS:  # xla is another one, for TPUs
        raise BadInput(
            f"--trainer.profiler is {profiler!r}; expected {', '.join(_PROFILERS)} or a class of "
            "pytorch_lightning.profilers."
        )
    plugins = config.get("plugins") or []
    plugins = plugins if isinstance(plugins, list) else [plugins]
    for option, items in (("callbacks", callbacks), ("plugins", plugins)):
        for item in items:
            for kind, why in _INSTEAD.items():
                if isinstance(item, kind):
                    raise BadInput(f"--trainer.{option}: {type(item).__name__} is not possible here: {why}.")
    _check_rates(callbacks, parsed)
    _check_monitors(callbacks, model)
    devices = str(config.get("devices", "auto"))
    if devices.isdecimal() and (config.get("accelerator") == "cpu" or not torch.cuda.is_available()):
        check_processes(int(devices))


def check_launcher(trainer: pl.Trainer, strategy: Any) -> None:
    """Refuse strategies that fork or spawn their processes, such as `ddp_spawn` and `ddp_notebook`.

    The model that they train, its scores and the signals that it receives stay in those processes. Several SLURM tasks
    are refused if `srun` has not started them: the only one running would wait for the others.
    """
    by_slurm = isinstance(cluster_environment(trainer), SLURMEnvironment)
    if by_slurm and trainer.world_size > 1 and "SLURM_STEP_ID" not in os.environ:
        raise BadInput(
            f"The SLURM job around this command has {trainer.world_size} tasks, of which this is one, and nothing "
            "starts the others: put `srun` before `graphbench`, or `srun --ntasks 1` for a single process."
        )
    launcher = trainer.strategy.launcher
    if launcher is not None and not hasattr(launcher, "cluster_environment"):
        raise BadInput(
            f"--trainer.strategy is {strategy}, which forks or spawns its processes: the trained model and its "
            "scores stay there. Expected ddp, which starts each process as a command."
        )


def check_processes(count: int) -> None:
    """Refuse many more processes on the CPU than it has cores: Lightning would start them all."""
    most = max(8, os.cpu_count() or 1)
    if count > most:
        raise BadInput(f"--trainer.devices is {count}: that many processes on the CPU; expected at most {most} here.")


def is_whole(limit: float) -> bool:
    """Return whether a limit of batches includes all of them: a whole number counts them, others are shares."""
    return isinstance(limit, float) and limit == 1.0


def require_whole(trainer: Any, stage: str) -> None:
    """Refuse to score or predict a part of a split, which would count as the whole. `stage` is val, test or predict."""
    limit = getattr(trainer, f"limit_{stage}_batches")
    if is_whole(limit):
        return
    option = f"--trainer.limit_{stage}_batches"
    if trainer.fast_dev_run:
        raise BadInput("--trainer.fast_dev_run is for trials of a training: one batch would count as the whole split.")
    if stage == "val" and trainer.overfit_batches:
        raise BadInput(
            f"--trainer.overfit_batches is {limit}: so many batches would count as the whole split. Score all of it "
            "with --trainer.overfit_batches 0."
        )
    raise BadInput(f"{option} is {limit}: a part would count as the whole split. Use all of it with {option} 1.0.")


def refuse_loggers(request: Request) -> None:
    """Refuse a logger on the command line of a command that uses none; one in a configuration is for its training."""
    for one in CommandLine.parse(request.typed).options:
        if one.path.startswith("trainer.logger") and one.value != "false":
            raise BadInput(
                f"{one.name}: only `graphbench fit` logs to a tracker. The scores of a test are in the run's "
                "results.json, and can be sent to a tracker from there."
            )


def _check_rates(callbacks: Sequence[pl.Callback], parsed: Sequence[Namespace]) -> None:
    """Refuse a learning rate search with an empty range, or with too few rates."""
    for callback, item in zip(callbacks, parsed, strict=False):
        if not isinstance(callback, LearningRateFinder):
            continue
        options = item.get("init_args") or Namespace()
        low, high = options.get("min_lr", 1e-8), options.get("max_lr", 1)
        if not 0 < low < high:
            raise BadInput(f"LearningRateFinder: min_lr must be above 0 and below max_lr, but got {low} and {high}.")
        count = options.get("num_training_steps", 100)
        check_range("LearningRateFinder: num_training_steps", count, at_least=_MIN_RATES)


def _check_monitors(callbacks: Sequence[pl.Callback], model: BenchmarkModule) -> None:
    """Refuse to watch a score that is never reported: Lightning says so only when an epoch is over.

    A user's callbacks may log scores under any name, so with one of those every name passes.
    """
    reported = model.scores.while_training
    if not all(type(one).__module__.startswith(("pytorch_lightning.", "graphbench.")) for one in callbacks):
        return
    for callback in callbacks:
        monitor = getattr(callback, "monitor", None)
        if not isinstance(monitor, str) or monitor in reported:
            continue
        lower = {name.lower(): name for name in reported}
        near = [lower[name] for name in difflib.get_close_matches(monitor.lower(), lower, n=1, cutoff=0.8)]
        if near or monitor.startswith(("train/", "val/", "test/")):  # others are times, rates and diagnostics
            hint = f"did you mean {near[0]}? There is " if near else "there is "
            raise BadInput(
                f"{type(callback).__name__}: monitor is {monitor!r}, which no epoch reports; {hint}"
                f"{', '.join(reported)}."
            )


# -- finders -----------------------------------------------------------------------------------------------------------


def store_findings(config: Namespace, trainer: pl.Trainer, model: BenchmarkModule, data: Any) -> None:
    """Write the results of Lightning's finders into the configuration, so that a continued run has them.

    The finders ran when the fit began; the model now has the learning rate, and the data the batch size.
    """
    callbacks: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, BatchSizeFinder):
            config["data.init_args.batch_size"] = int(data.batch_size)
            log.info("Batch size found: %d", data.batch_size)
        if isinstance(callback, LearningRateFinder) and callback.optimal_lr is not None:
            _check_search(callback, trainer)
            log.info("Learning rate found: %.3g", model.lr)
            if config.get("model.optimizer") in (adam_w, *AS_FUNCTION):
                config["model.optimizer"] = Namespace(class_path=DEFAULT_OPTIMIZER, init_args=Namespace())
            if config.get("model.optimizer.init_args") is None:
                log.warning("--model.optimizer is a function: the rate is in the checkpoints, not in config.yaml.")
            else:
                config["model.optimizer.init_args.lr"] = model.lr


def stored_findings(config: Mapping[str, Any]) -> list[str]:
    """Return the results of a run's finders as options, to append to the command that began it.

    Examples:
        >>> trainer = {"callbacks": [{"class_path": "pytorch_lightning.callbacks.BatchSizeFinder"}]}
        >>> stored_findings({"trainer": trainer, "data": {"class_path": "NCI", "init_args": {"batch_size": 48}}})
        ['--data.batch_size=48']
    """
    names = class_names(value_at(config, "trainer.callbacks") or [])
    finders = ((BatchSizeFinder, "data.batch_size"), (LearningRateFinder, "model.optimizer.lr"))
    values = {option: value_at(config, option) for finder, option in finders if finder.__name__ in names}
    return [f"--{option}={value}" for option, value in values.items() if value is not None]


def _check_search(finder: LearningRateFinder, trainer: pl.Trainer) -> None:
    """Refuse the result of a search that was longer than the run, or whose loss diverged early."""
    search = finder.optimal_lr
    assert search is not None
    count, steps = search.num_training, trainer.estimated_stepping_batches
    if steps < count:
        raise BadInput(
            f"LearningRateFinder: this run has {steps} steps, too few to try {count} rates. Give it more steps, with "
            f"--trainer.max_epochs or a smaller --data.batch_size, or fewer rates, with num_training_steps (at least "
            f"{_MIN_RATES})."
        )
    if search.suggestion() is None:
        raise BadInput(
            f"LearningRateFinder: the loss grew or was not a number after {len(search.results['loss'])} of {count} "
            "rates, too few to choose from. Lower its max_lr, or set its early_stop_threshold higher or to null."
        )
