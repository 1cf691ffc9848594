"""Access parts of Lightning without a public name; no other file of graphbench uses its names that begin with `_`.

Each function says what Lightning lacks. `tests/training/test_lightning_internals.py` fails if a release renames one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import RichProgressBar, WeightAveraging
from pytorch_lightning.strategies import DDPStrategy, Strategy
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel


def replace_signal_handling(trainer: pl.Trainer, handling: Any) -> None:
    """Let an object with `register_signal_handlers`, `teardown` and `received_sigterm` handle a trainer's signals."""
    # Lightning's handlers call collectives, so a signal within one hangs, and `Trainer` accepts no others.
    trainer._signal_connector = handling


def skip_sigterm_broadcast(trainer: pl.Trainer) -> None:
    """Skip the broadcast of SIGTERM before every batch."""
    # It forces a host-device sync per step and has no option; `OrderlyStop` compares on the host.
    trainer.fit_loop.epoch_loop._broadcast_sigterm_tensor = lambda: None  # type: ignore[method-assign]


def begin_next_epoch(trainer: pl.Trainer) -> None:
    """Resume after the epoch at whose end the checkpoint was written, even if `max_steps` ends the run."""
    # Such a run always counts as restarted within an epoch: Lightning would repeat the end of the epoch without a
    # batch, with scores of NaN and no validation.
    loop = trainer.fit_loop
    if not loop.restarted_on_epoch_end:
        return
    loop._restarting = False
    loop.epoch_loop.restarting = False
    loop.reset_restart_stage()
    loop.epoch_loop.reset_restart_stage()
    current: Any = loop.epoch_progress.current
    if current.completed < current.processed:
        loop.epoch_progress.increment_completed()


def count_batch_once(trainer: pl.Trainer) -> None:
    """Resume after the validation within an epoch at whose end the checkpoint was written."""
    # Lightning skips that validation and finishes its batch again, counting it twice: loggers would be a step ahead.
    loop = trainer.fit_loop.epoch_loop
    fetcher: Any = trainer.fit_loop._data_fetcher
    if loop.restarting and loop.restarted_on_last and loop._should_check_val_fx(fetcher):
        loop._batches_that_stepped -= 1


def cluster_environment(trainer: pl.Trainer) -> Any:
    """Return the environment that started the trainer's processes, or None."""
    # Only strategies for several processes have it as a public attribute, and SLURM also starts single processes.
    return trainer._accelerator_connector.cluster_environment


def group_timeout(strategy: Strategy) -> timedelta:
    """Return the timeout of a strategy's process group."""
    # The argument is stored only under a private name; a strategy without it has Lightning's default.
    return getattr(strategy, "_timeout", None) or timedelta(minutes=30)


def attached_trainer(module: pl.LightningModule) -> pl.Trainer | None:
    """Return the trainer of a module, or None."""
    # `LightningModule.trainer` raises without one, and with Fabric it is a stand-in without data.
    try:
        return module.trainer if module.fabric is None else None
    except RuntimeError:
        return None


def ddp_options(strategy: DDPStrategy) -> dict[str, Any]:
    """Return the arguments with which a strategy will wrap the model, which may be changed in place."""
    # Whether parameters are unused is known only once model and data exist, after the strategy was built.
    return strategy._ddp_kwargs


def metrics_column(bar: RichProgressBar) -> Any:
    """Return the column of the values next to a bar, or None before Lightning has created it."""
    # `configure_columns` returns all columns except this one.
    return bar._metric_component


def epoch_metrics(trainer: pl.Trainer) -> Mapping[str, Tensor]:
    """Return the values that callbacks and module logged for the epoch that ends."""
    # `Trainer.logged_metrics` also contains values of earlier steps and epochs.
    return trainer._logger_connector.metrics["log"]


def average_floats_alone(trainer: pl.Trainer) -> None:
    """Let weight averages copy integer buffers, such as the offsets of a table, without averaging."""
    # Averages with decay d would round d x + (1 - d) x down to x - 1 and read other rows; no option excludes them.
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if isinstance(callback, WeightAveraging) and callback._average_model is not None:
            _keep_whole_numbers(callback._average_model)


def _keep_whole_numbers(average: AveragedModel) -> None:
    update = average.update_parameters

    def update_floats(model: nn.Module) -> None:
        update(model)
        for mean, current in zip(average.module.buffers(), model.buffers(), strict=True):
            if not (mean.is_floating_point() or mean.is_complex()):
                mean.copy_(current)

    average.update_parameters = update_floats  # type: ignore[method-assign]
