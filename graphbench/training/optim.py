"""Learning-rate schedules, and parameter groups with separate learning rates."""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Literal, get_args

from torch import nn
from torch.optim import Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, ReduceLROnPlateau

from graphbench.errors import BadInput, check_choice, check_range

logger = logging.getLogger(__name__)

ScheduleName = Literal["constant", "cosine", "linear", "step", "exponential", "inverse_sqrt", "one_cycle", "plateau"]
Interval = Literal["step", "epoch"]
Watch = Literal["metric", "loss"]
#: Factor of the rate below which a model practically does not learn.
_HARDLY = 1e-6
#: Options that only some schedules read -> the names of these schedules.
_READ_BY = {
    "floor": ("cosine", "linear", "one_cycle", "step", "exponential"),
    "milestones": ("step",),
    "warmup_floor": ("constant", "cosine", "linear", "step", "exponential", "inverse_sqrt"),
    **dict.fromkeys(("step_size", "gamma"), ("step", "exponential")),
    **dict.fromkeys(("factor", "patience", "min_lr", "stop_below", "watch"), ("plateau",)),
}


@dataclass(frozen=True)
class Schedule:
    """Course of the learning rate over a run, as a factor of the optimizer's rate.

    Warm-up rises linearly over `warmup` epochs (or steps) to 1. What follows depends on `name`, with p the share of
    the remaining run that has passed:

    * constant: 1; cosine: (1 + cos πp) / 2; linear: 1 - p, both down to `floor`;
    * step: `gamma ** (e // step_size)`, or `gamma ** m` after m of the `milestones`; exponential:
      `gamma ** (e / step_size)`; never below `floor`, e counted after warm-up (see `warmup_overlaps`);
    * inverse_sqrt: `sqrt(w / max(w, e))`, e counted from the start of the run, w the warm-up, at least 1;
    * one_cycle: a cosine rise over the warm-up instead of a linear one, then cosine;
    * plateau: torch's ReduceLROnPlateau on the score given by `watch`.

    Args:
        name: shape after warm-up.
        interval: whether the factor changes every step or every epoch; `warmup` and `step_size` count these.
        warmup: length of the warm-up in intervals.
        warmup_floor: smallest factor during warm-up. With `interval: epoch`, epoch e trains at `e / warmup`, so
            epoch 0 needs a floor; GraphGPS trains it at 1e-6 of the rate. By default warm-up counts from 1
            (`(e + 1) / warmup`), which wastes no epoch.
        warmup_overlaps: count epochs (or steps) of the main schedule from the start of the run, not from the end of
            warm-up; during warm-up the two factors are multiplied, as with a PyTorch scheduler under a linear warm-up
            (Ma & Yarats, "On the adequacy of untuned warmup for adaptive optimization", 2021).
        floor: smallest factor at the end of cosine, linear and one_cycle, and anywhere in step and exponential.
        step_size: intervals between two drops (step, exponential).
        milestones: intervals after which the rate drops (step), instead of every `step_size`.
        gamma: factor of a drop (step, exponential).
        factor, patience, min_lr: as in torch's ReduceLROnPlateau; `patience` counts validations.
        stop_below: stop training when plateau has reduced the rate below this value, as in "Benchmarking Graph Neural
            Networks", whose runs have no fixed number of epochs; 0 never stops.
        watch: what plateau follows on the validation split: the benchmark's metric, or the loss, as in GraphGPS and
            "Benchmarking Graph Neural Networks".
    """

    name: ScheduleName = "constant"
    interval: Interval = "step"
    warmup: int = 0
    warmup_floor: float | None = None
    warmup_overlaps: bool = False
    floor: float = 0.0
    step_size: int = 1
    milestones: tuple[int, ...] = ()
    gamma: float = 0.5
    factor: float = 0.5
    patience: int = 10
    min_lr: float = 0.0
    stop_below: float = 0.0
    watch: Watch = "metric"

    def __post_init__(self) -> None:
        # Only the command line checks types; in Python a misspelt name would leave the rate constant.
        for option, choices in (("name", ScheduleName), ("interval", Interval), ("watch", Watch)):
            check_choice(f"schedule.{option}", getattr(self, option), get_args(choices))
        for option, least in (("warmup", 0), ("step_size", 1), ("patience", 0)):
            check_range(f"schedule.{option}", getattr(self, option), at_least=least, whole=True)
        check_range("schedule.floor", self.floor, at_least=0, at_most=1)
        if self.warmup_floor is not None:
            check_range("schedule.warmup_floor", self.warmup_floor, at_least=0, at_most=1)
        check_range("schedule.gamma", self.gamma, at_least=0)  # powers of a negative number are complex
        check_range("schedule.factor", self.factor, at_least=0, below=1)
        check_range("schedule.min_lr", self.min_lr, at_least=0)
        if any(earlier >= later for earlier, later in pairwise((0, *self.milestones))):
            raise BadInput(
                f"schedule.milestones must grow from above 0, such as [120, 160], but got {self.milestones}."
            )
        check_range("schedule.stop_below", self.stop_below, at_least=0)
        for field in fields(self):  # a recipe's options may remain after its schedule name was overridden
            value, names = getattr(self, field.name), _READ_BY.get(field.name, ())
            if names and self.name not in names and value != field.default:
                logger.warning(
                    "schedule.%s: %s is for %s; with name: %s it has no effect.",
                    field.name, value, " and ".join(names), self.name,
                )  # fmt: skip
        if 0 < self.stop_below <= self.min_lr:
            raise BadInput(
                f"schedule.stop_below must be above min_lr, below which no rate falls, but got {self.stop_below} and "
                f"{self.min_lr}."
            )
        if self.name == "plateau" and self.warmup:
            raise BadInput("schedule.warmup does not combine with name: plateau, which follows only the scores.")

    def factor_at(self, count: int, total: int) -> float:
        """Return the factor of the rate in interval `count` (from 0) of `total`."""
        if count >= self.warmup:
            return self._decay(count, total)
        rise = self._rise(count)
        return rise * self._decay(count, total) if self.warmup_overlaps else rise

    def _rise(self, count: int) -> float:
        """Return the factor of the warm-up."""
        if self.name == "one_cycle":
            return (1 - math.cos(math.pi * (count + 1) / self.warmup)) / 2
        if self.warmup_floor is not None:
            return max(self.warmup_floor, count / self.warmup)
        return (count + 1) / self.warmup

    def _decay(self, count: int, total: int) -> float:
        """Return the factor of the schedule after warm-up, or during it if the two overlap."""
        start = 0 if self.warmup_overlaps else self.warmup
        after = count - start
        # If a run continues for longer than planned, the rate keeps its last value.
        passed = min(1.0, after / max(1, total - start))
        if self.name in ("cosine", "one_cycle"):
            return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * passed)) / 2
        if self.name == "linear":
            return self.floor + (1 - self.floor) * (1 - passed)
        if self.name == "step":
            drops = sum(after >= end for end in self.milestones) if self.milestones else after // self.step_size
            return max(self.floor, float(self.gamma**drops))
        if self.name == "exponential":
            return max(self.floor, float(self.gamma ** (after / self.step_size)))
        if self.name == "inverse_sqrt":
            return math.sqrt(max(1, self.warmup) / max(1, self.warmup, count))
        return 1.0

    def _warn_of_length(self, total: int) -> None:
        """Warn if a run of `total` intervals ends before the schedule changes, or has a tiny rate for half of it."""
        length = f"and the run has {total:,}"
        if self.warmup >= total:
            logger.warning(
                "schedule.warmup is %d %ss, %s: it ends before the rate is reached.", self.warmup, self.interval, length
            )
        start = 0 if self.warmup_overlaps else self.warmup
        first = start + (self.milestones[0] if self.milestones else self.step_size)
        if self.name == "step" and first >= total:
            logger.warning(
                "schedule: the first drop is after %d %ss, %s: its rate never drops.", first, self.interval, length
            )
        middle = total // 2
        if self.name in ("step", "exponential") and middle > 0 and (left := self._decay(middle, total)) < _HARDLY:
            logger.warning(
                "schedule: after %d of %d %ss the rate is %.0e of the optimizer's; step_size and milestones count %ss "
                "(schedule.interval).",
                middle, total, self.interval, left, self.interval,
            )  # fmt: skip

    def ends(self, rates: Iterable[float]) -> bool:
        """Tell whether training stops at these rates of an optimizer's groups.

        Examples:
            >>> Schedule("plateau", stop_below=1e-5).ends([7.8e-6])
            True
            >>> Schedule("plateau").ends([7.8e-6])
            False
        """
        return self.name == "plateau" and max(rates) < self.stop_below

    def configure(
        self,
        optimizer: Optimizer,
        steps: Callable[[], float],
        epochs: Callable[[], int | None],
        monitor: str,
        mode: str,
    ) -> dict[str, Any] | None:
        """Return Lightning's configuration of the scheduler; None for a constant rate without warm-up.

        `steps` and `epochs` return the length of the whole run, or None, -1 or infinity if it is open-ended, and are
        called only if needed; `monitor` and `mode` ("min" or "max") are for plateau.
        """
        if self.name == "constant" and not self.warmup:
            return None
        if self.name == "plateau":
            if self.watch == "loss":
                monitor, mode = "val/loss", "min"
            plateau = ReduceLROnPlateau(
                optimizer,
                mode="min" if mode == "min" else "max",
                factor=self.factor,
                patience=self.patience,
                min_lr=self.min_lr,
                eps=0.0,  # torch ignores reductions of less than 1e-8, so that tiny rates never fall below `stop_below`
            )
            # Lightning counts epochs, so it must never step this one: the module steps it after every validation.
            return {
                "scheduler": plateau, "interval": "epoch", "frequency": sys.maxsize, "monitor": monitor, "name": "lr",
            }  # fmt: skip
        total = 0
        planned = self.name in ("cosine", "linear", "one_cycle")
        if planned or self.warmup or self.name in ("step", "exponential"):
            length = steps() if self.interval == "step" else epochs()
            total = int(length) if length is not None and 0 < length < math.inf else 0
            if planned and not total:
                raise BadInput(
                    f"schedule.name: {self.name} needs the length of the run: set trainer.max_epochs or max_steps."
                )
        if total:
            self._warn_of_length(total)
        scheduler: LRScheduler = LambdaLR(optimizer, lambda count: self.factor_at(count, total))
        return {"scheduler": scheduler, "interval": self.interval, "name": "lr"}


def parameter_groups(
    module: nn.Module, own: Iterable[Mapping[str, Any]], lr: float, lr_scales: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Return optimizer groups, with each trainable parameter once.

    First come those of `lr_scales`, start of a parameter's name -> factor of the rate `lr`, in which the longest match
    wins; then `own` groups of an architecture (`Architecture.parameter_groups()`), with `params` and options, such as
    `lr_scale`, which multiplies the rate; then the rest. A start of only frozen parameters has no effect (it warns).
    """
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    groups: list[dict[str, Any]] = []
    taken: set[int] = set()
    for prefix in sorted(lr_scales, key=len, reverse=True):
        if not any(name.startswith(prefix) for name, _ in module.named_parameters()):
            tops = sorted({name.split(".")[0] for name, _ in module.named_parameters()})
            raise BadInput(
                f"lr_scales: no parameter's name starts with {prefix!r}. Names start with {', '.join(tops)}."
            )
        matched = [p for n, p in named.items() if n.startswith(prefix)]
        if not matched:
            logger.warning("lr_scales: %s is frozen, so its factor has no effect.", prefix)
        params = [p for p in matched if id(p) not in taken]
        taken.update(map(id, params))
        if params:  # longer names may have taken them all
            groups.append({"params": params, "lr": lr * lr_scales[prefix], "name": prefix})
    for number, group in enumerate(own):
        options = {k: v for k, v in group.items() if k not in ("params", "lr_scale")}
        params = [p for p in group["params"] if p.requires_grad and id(p) not in taken]
        taken.update(map(id, params))
        if params:
            groups.append(
                {"name": f"group{number}", "lr": lr * group.get("lr_scale", 1.0)} | options | {"params": params}
            )
    rest = [p for p in named.values() if id(p) not in taken]
    return [{"params": rest, "name": "rest"}, *groups] if rest else groups


#: Devices on which PyTorch updates all parameters of Adam in one kernel.
_FUSED_ON = ("cpu", "cuda")


def fuse(optimizer: Optimizer) -> Optimizer:
    """Let Adam and AdamW update all parameters of a group in one kernel, unless the user chose otherwise.

    On a CPU PyTorch by default loops over parameters; `speed/gps_throughput.py` prints how much this slows down a
    training step of GPS. Groups with an explicit implementation (`fused`, `foreach`, `capturable`, `differentiable`),
    groups of a checkpoint (a run that began without it resumes without it) and other classes are not changed.

    Examples:
        >>> import torch
        >>> parameters = [nn.Parameter(torch.zeros(2))]
        >>> fuse(torch.optim.AdamW(parameters)).param_groups[0]["fused"]
        True
        >>> fuse(torch.optim.AdamW(parameters, foreach=True)).param_groups[0]["fused"]
    """
    if type(optimizer) not in (Adam, AdamW):  # subclasses may compute otherwise
        return optimizer
    for group in optimizer.param_groups:
        set_by_user = any(group.get(option) for option in ("foreach", "capturable", "differentiable"))
        fits = all(p.device.type in _FUSED_ON and p.is_floating_point() for p in group["params"])
        if group.get("fused") is None and group.get("foreach") is None and not set_by_user and fits:
            group["fused"] = True
    return optimizer


def set_rates(optimizer: Optimizer, schedulers: Iterable[Any], rates: Sequence[float]) -> None:
    """Change an optimizer's learning rates before its first step; its schedule multiplies the new rates.

    Examples:
        >>> import torch
        >>> optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=1.0)
        >>> schedule = LambdaLR(optimizer, lambda count: 0.5)
        >>> set_rates(optimizer, [schedule], [0.1])
        >>> optimizer.param_groups[0]["lr"]
        0.05
    """
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
        if "initial_lr" in group:
            group["initial_lr"] = rate
    for scheduler in schedulers:
        # ReduceLROnPlateau has no base rate: it multiplies the current rate.
        if isinstance(scheduler, LambdaLR):
            scheduler.base_lrs = list(rates)
            for group, rate, factor in zip(optimizer.param_groups, rates, scheduler.lr_lambdas, strict=True):
                group["lr"] = rate * factor(scheduler.last_epoch)
