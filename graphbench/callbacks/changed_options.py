"""Apply the new options of a continued run where its checkpoint would restore the old ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from graphbench.errors import BadInput
from graphbench.runs.differences import NOTHING, Difference
from graphbench.training.module import BenchmarkModule
from graphbench.training.optim import set_rates

_OPTIMIZER, _SCHEDULE, _CALLBACKS = "model.optimizer.", "model.schedule.", "trainer.callbacks."
#: Options that decide the rate that a schedule multiplies, and those that decide the length of a schedule.
_RATES = ("model.optimizer.lr", "model.lr_scales", "model.learning_rates")
_LENGTHS = (
    "trainer.max_epochs", "trainer.max_steps", "trainer.limit_train_batches", "trainer.accumulate_grad_batches",
    "trainer.devices", "trainer.num_nodes", "data.batch_size", "data.steps_per_epoch",
)  # fmt: skip


class ChangedOptions(pl.Callback):
    """Let a run continue with options other than those in its checkpoint.

    - Options of the optimizer replace those in the restored parameter groups; whether the restored state supports them
      is tried on one parameter first.
    - Rates follow from the current step: in interval t the rate is `base * factor(t)` of the new schedule, with t
      counted from the beginning of the run. A `plateau` schedule that continues keeps its counts, and a new base
      multiplies the rate that it has reached.
    - Options in the state of callbacks, such as the patience of Lightning's EarlyStopping, are set again.

    It precedes all other callbacks, so that they see the current rates.
    """

    def __init__(self, changed: Sequence[Difference]) -> None:
        self._changed = tuple(changed)
        names = [one.option for one in changed]
        self._rates = any(name.startswith(_RATES) for name in names)
        self._schedule = any(name.startswith(_SCHEDULE) for name in names)
        self._reset = self._rates or self._schedule or any(name.startswith(_LENGTHS) for name in names)
        self._values: list[tuple[pl.Callback, str, Any]] = []
        self._saved: list[dict[str, Any]] = []
        self._fresh: list[dict[str, Any]] = []
        self._had_schedule = False

    def _watches_on(self, module: BenchmarkModule) -> bool:
        """Return whether a `plateau` schedule continues with its counts."""
        names = {one.option for one in self._changed}
        return module.schedule.name == "plateau" and not names & {f"{_SCHEDULE}name", f"{_SCHEDULE}watch"}

    def setup(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        """Record options of callbacks before their states are restored."""
        if stage == "fit":
            self._values = [value for one in self._changed for value in _values_of(trainer, one)]

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Record the optimizer's old options, and drop the state of a schedule that has changed."""
        if trainer.state.fn != "fit" or not isinstance(pl_module, BenchmarkModule):
            return
        states = checkpoint.get("callbacks", {})
        for callback, attribute, value in self._values:
            if attribute and not hasattr(callback, attribute) and states.get(callback.state_key):
                raise BadInput(
                    f"--resume: {type(callback).__name__}.{attribute.lstrip('_')} is {value!r}, but the state of this "
                    "callback in the checkpoint hides it. Leave it as it was, or train a new run."
                )
        self._saved = [dict(group) for group in checkpoint["optimizer_states"][0]["param_groups"]]
        self._had_schedule = bool(checkpoint.get("lr_schedulers"))
        if self._schedule and not self._watches_on(pl_module):
            checkpoint["lr_schedulers"] = []

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the options of the optimizer with its state, which is restored next."""
        if not isinstance(pl_module, BenchmarkModule) or not self._saved:
            return
        groups = trainer.optimizers[0].param_groups
        self._fresh = [{name: value for name, value in group.items() if name != "params"} for group in groups]
        if [len(group["params"]) for group in groups] != [len(group["params"]) for group in self._saved]:
            return  # other parts, or other code: the optimizer reports this when it is restored
        for one in self._options(_OPTIMIZER):
            name = one.option.removeprefix(_OPTIMIZER)
            if name != "lr":
                _check_option(one, name, self._fresh, self._saved, pl_module._optimizer_of)
        if self._rates and self._watches_on(pl_module):
            for one in self._changed:
                if one.option.startswith(_RATES[1:]):
                    raise BadInput(
                        f"--resume: {one}, but with --model.schedule.name plateau only --model.optimizer.lr can change."
                    )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set options of the optimizer and of callbacks, whose states are now restored."""
        for callback, attribute, value in self._values:
            if hasattr(callback, attribute):
                setattr(callback, attribute, value)
        for one in self._options(_OPTIMIZER):
            name = one.option.removeprefix(_OPTIMIZER)
            for group, fresh in zip(trainer.optimizers[0].param_groups, self._fresh, strict=True):
                if name != "lr" and name in fresh:
                    group[name] = fresh[name]

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Set rates if the run resumes with a whole epoch."""
        self._set_rates(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Set rates if the run resumes within an epoch."""
        self._set_rates(trainer, pl_module)

    def _set_rates(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if not self._reset or not isinstance(module, BenchmarkModule):
            return
        self._reset = False
        optimizer: Optimizer = trainer.optimizers[0]
        schedulers: list[Any] = [config.scheduler for config in trainer.lr_scheduler_configs]
        if self._watches_on(module):
            self._adjust_plateau(optimizer, schedulers[0], module)
            return
        for scheduler in schedulers:
            if not isinstance(scheduler, ReduceLROnPlateau):
                # The count that the schedule would have now; the rate follows from it by `set_rates`.
                scheduler.last_epoch = (
                    trainer.global_step if module.schedule.interval == "step" else module.current_epoch
                )
        set_rates(optimizer, schedulers, module._rates if self._rates else self._saved_rates(module))

    def _saved_rates(self, module: BenchmarkModule) -> list[float]:
        """Return the rates that the earlier schedule multiplied, which a diverging step may have lowered."""
        # torch's schedulers write `initial_lr`; without one, the rate itself was multiplied by 1.
        pairs = zip(self._saved, module._rates, strict=True)
        return [float(saved.get("initial_lr", rate if self._had_schedule else saved["lr"])) for saved, rate in pairs]

    def _adjust_plateau(self, optimizer: Optimizer, scheduler: Any, module: BenchmarkModule) -> None:
        """Set the options of a schedule that keeps its counts, and replace its base."""
        scheduler.factor, scheduler.patience = module.schedule.factor, module.schedule.patience
        scheduler.min_lrs = [module.schedule.min_lr] * len(optimizer.param_groups)
        change = next((one for one in self._changed if one.option == _RATES[0]), None)
        for group, base in zip(optimizer.param_groups, module._rates, strict=True):
            if change is None or "/" in str(group.get("name", "")):  # those of model.learning_rates have their own base
                continue
            # A rate of 0 has never fallen, so there is no reduction to keep.
            group["lr"] = group["lr"] * change.now / change.before if change.before else base

    def _options(self, prefix: str) -> list[Difference]:
        return [one for one in self._changed if one.option.startswith(prefix)]


def _values_of(trainer: pl.Trainer, one: Difference) -> list[tuple[pl.Callback, str, Any]]:
    """Return callbacks with a changed option, the attribute that stores it, and the callback's value."""
    name, _, option = one.option.removeprefix(_CALLBACKS).partition(".")
    if not one.option.startswith(_CALLBACKS) or not option or NOTHING in (one.before, one.now):
        return []
    name, _, number = name.partition("-")
    every: list[pl.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    callbacks = [callback for callback in every if type(callback).__name__ == name]
    callback = callbacks[int(number or 1) - 1]
    option = option.partition(".")[0]
    attribute = next((name for name in (option, f"_{option}") if hasattr(callback, name)), option)
    return [(callback, attribute, getattr(callback, attribute, one.now))]


def _check_option(
    one: Difference,
    name: str,
    fresh: Sequence[Mapping[str, Any]],
    saved: Sequence[Mapping[str, Any]],
    make: Callable[[list[Any]], Optimizer],
) -> None:
    """Try on one parameter whether an optimizer can continue with another value of an option."""
    remedy = "Leave it as it was, or train a new run from its weights (--model.init_from)."
    if any(name not in group or name not in old for group, old in zip(fresh, saved, strict=True)):
        raise BadInput(f"--resume: {one}, but the optimizer's state in the checkpoint has no such option. {remedy}")
    parameter = nn.Parameter(torch.zeros(1, 1))
    optimizer = make([parameter])
    # The first step creates the state with the saved options, the second one uses it with the new ones.
    for values in (saved[0], fresh[0]):
        optimizer.param_groups[0][name] = values[name]
        parameter.grad = torch.ones_like(parameter)
        try:
            optimizer.step(lambda: 0.0)
        except Exception as error:  # whatever a formula without its state raises
            raise BadInput(f"--resume: {one}, for which the optimizer's state lacks {error}. {remedy}") from error
