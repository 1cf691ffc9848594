"""Keep losses and gradients that are not finite from reaching the weights."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import Tensor, nn

from graphbench.callbacks.exact_resume import capture_generators, restore_generators
from graphbench.contracts.architecture import Representation
from graphbench.errors import GraphbenchError, check_range, listed
from graphbench.training.distributed import gather_objects, whole_parameters

log = logging.getLogger(__name__)

#: Number of a batch's graphs that a message names.
_NAMED = 8


class Diverged(GraphbenchError):
    """Raised for a loss or gradient that is not finite."""


#: Devices that compute asynchronously, so that reading a number from them waits.
_RUNS_AHEAD = {"cuda"}
#: Optimizers whose fused kernels skip a step if a number on their device says so.
_LEAVES_OUT = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)


class _Look:
    """Check of a step's gradients, whose result the device uses at once and the program reads a step later."""

    def __init__(self, gradients: Mapping[str, Tensor]) -> None:
        self._names = list(gradients)
        # Norms of all tensors in one kernel; a NaN or infinity in any of them shows in the norm of the norms.
        self._norms = torch.stack(torch._foreach_norm(list(gradients.values())))
        #: 1 if the step must not be taken, else 0; stays on the device.
        self.bad = (~torch.linalg.vector_norm(self._norms).isfinite()).float()
        self._copy = self.bad.to("cpu", non_blocking=True)
        self._copied = torch.cuda.Event() if self.bad.is_cuda else None
        if self._copied is not None:
            self._copied.record()

    def is_bad(self) -> bool:
        """Return whether a gradient was not finite; wait for the end of that step, but not for work queued since."""
        if self._copied is not None:
            self._copied.synchronize()
        return bool(self._copy)

    def bad_names(self) -> list[str]:
        """Return the parameters whose gradients were not finite."""
        return [name for name, finite in zip(self._names, self._norms.isfinite().tolist(), strict=True) if not finite]


class NonFinite(pl.Callback):
    """Check the norm of all gradients before every optimizer step and act if it is not finite.

    The callback checks gradients and not losses because every process has the same gradients, so all act alike. In
    16-bit training with a scaled loss, the scaler skips such steps by itself and nothing is done here.

    On a GPU the program does not wait for the norm: the fused kernels of Adam, AdamW, SGD and Adagrad skip a step if it
    is not finite, and the program notices and acts before the next step, validation or checkpoint. Other optimizers,
    and strategies that shard gradients, wait for the norm in every step.

    Args:
        policy: "stop" ends the fit with an error and keeps the checkpoints of earlier steps; "skip" skips the step;
            "lower_rate" skips the step and multiplies the learning rate by `factor` once, and stops the second time.
        limit: "skip" ends the fit after this many such steps in a row.
        factor: see "lower_rate".

    Raises:
        BadInput: an option is out of range.
    """

    def __init__(
        self, policy: Literal["stop", "skip", "lower_rate"] = "stop", limit: int = 100, factor: float = 0.1
    ) -> None:
        check_range("NonFinite: limit", limit, at_least=1, whole=True)
        check_range("NonFinite: factor", factor, above=0, below=1)
        self.policy, self.limit, self.factor = policy, limit, factor
        self._skipped, self._in_a_row, self._lowered = 0, 0, False
        self._batches: list[Any] = []
        self._losses: list[Tensor] = []
        self._judge_last_step: Callable[[], None] | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return how often it acted, including the last step."""
        self._settle()
        return {"skipped": self._skipped, "in_a_row": self._in_a_row, "lowered": self._lowered}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the counts."""
        self._skipped, self._in_a_row = state_dict["skipped"], state_dict["in_a_row"]
        self._lowered = state_dict["lowered"]

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Remember the batches of the coming step."""
        self._batches.append(batch)

    def on_before_backward(self, trainer: pl.Trainer, pl_module: pl.LightningModule, loss: Tensor) -> None:
        """Remember their losses."""
        self._losses.append(loss.detach())

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Act on gradients that are not finite."""
        self._settle()
        batches, losses, self._batches, self._losses = self._batches, self._losses, [], []
        named = {name: p.grad for name, p in pl_module.named_parameters() if p.grad is not None}
        if not named or getattr(trainer.precision_plugin, "scaler", None) is not None:
            return
        step = f"Step {trainer.global_step + 1} (epoch {trainer.current_epoch + 1}): "
        shared = isinstance(trainer.strategy, (SingleDeviceStrategy, DDPStrategy))
        if shared and _leaves_out(optimizer):
            look = _Look(named)
            optimizer.found_inf = look.bad  # type: ignore[attr-defined] # as set by torch's GradScaler

            def judge() -> None:  # the step was skipped: the weights are those that it was computed with
                if look.is_bad():
                    finding = describe(pl_module, batches, losses, look.bad_names(), trainer)
                    self._act(trainer, optimizer, step + finding)
                else:
                    self._in_a_row = 0

            self._judge_last_step = judge
            return
        bad = not math.isfinite(float(nn.utils.get_total_norm(named.values())))
        if not shared:  # each process has other gradients
            bad = trainer.strategy.reduce_boolean_decision(bad, all=False)
        if not bad:
            self._in_a_row = 0
            return
        # Waits once per parameter, but only in a step that failed.
        names = [name for name, gradient in named.items() if not bool(gradient.isfinite().all())]
        self._act(trainer, optimizer, step + describe(pl_module, batches, losses, names, trainer))
        for parameter in pl_module.parameters():
            parameter.grad = None  # optimizers do not change parameters without a gradient

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the last step before a validation."""
        self._settle()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Check the last step of an epoch."""
        self._settle()

    def _settle(self) -> None:
        """Act on the last step if it was not checked yet."""
        judge, self._judge_last_step = self._judge_last_step, None
        if judge is not None:
            judge()

    def _act(self, trainer: pl.Trainer, optimizer: torch.optim.Optimizer, finding: str) -> None:
        if self.policy == "stop" or (self.policy == "lower_rate" and self._lowered):
            lowered = " The learning rate was already lowered once." if self._lowered else ""
            raise Diverged(f"{finding}{lowered} The step was not taken. {_ADVICE}")
        self._skipped, self._in_a_row = self._skipped + 1, self._in_a_row + 1
        if self._in_a_row > self.limit:
            raise Diverged(f"{finding} So were the {self.limit} steps before. {_ADVICE}")
        if self.policy == "lower_rate":
            self._lower(trainer, optimizer)
            finding += f" The learning rate is multiplied by {self.factor:g}."
        if trainer.is_global_zero:
            log.warning("%s The step is skipped (%d so far).", finding, self._skipped)

    def _lower(self, trainer: pl.Trainer, optimizer: torch.optim.Optimizer) -> None:
        """Lower the rates and the values that schedules compute them from."""
        self._lowered = True
        for group in optimizer.param_groups:
            for name in {"lr", "initial_lr"} & group.keys():
                group[name] *= self.factor
        for config in trainer.lr_scheduler_configs:
            if hasattr(config.scheduler, "base_lrs"):
                config.scheduler.base_lrs = [rate * self.factor for rate in config.scheduler.base_lrs]


_ADVICE = (
    "A lower learning rate (--model.optimizer.lr), warm-up (--model.schedule.warmup), clipping "
    "(--trainer.gradient_clip_val) or NonFinite with policy skip or lower_rate may help; the checkpoints of earlier "
    "steps stay."
)


def _leaves_out(optimizer: torch.optim.Optimizer) -> bool:
    """Return whether the device can skip a step by itself, and runs asynchronously so that this helps."""
    return isinstance(optimizer, _LEAVES_OUT) and all(
        # Only the fused kernels read `found_inf`.
        group.get("fused") and all(parameter.device.type in _RUNS_AHEAD for parameter in group["params"])
        for group in optimizer.param_groups
    )


def describe(
    module: pl.LightningModule, batches: list[Any], losses: list[Tensor], names: list[str], trainer: pl.Trainer
) -> str:
    """Describe where the numbers of a step stop being finite: the batch, and the layer or gradient (of `names`).

    All processes must call it, and return the finding of the process whose loss it was, if it was a loss.
    """
    with whole_parameters(trainer):
        finding = _find(module, batches, losses, names, trainer)
    return max(gather_objects(finding), key=lambda one: one[0])[1]  # the first of equals


def _find(
    module: pl.LightningModule, batches: list[Any], losses: list[Tensor], names: list[str], trainer: pl.Trainer
) -> tuple[bool, str]:
    """Return whether this process's loss is the cause, and a description of what is not finite."""
    values = [float(loss) * trainer.accumulate_grad_batches for loss in losses]  # Lightning has divided by it
    bad = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
    if bad is None:
        where = f"the gradient of {names[-1]} ({len(names)} in all)" if names else "the norm of all gradients"
        shown = batches
        message = f"{where} is not finite, though the loss here is ({', '.join(f'{v:.4g}' for v in values)})."
    else:
        shown = batches[bad : bad + 1]
        layer = _first_layer(module, shown[0]) if shown else None
        where = f"; the first layer whose output is not finite is {layer}" if layer else ""
        message = f"the loss is {values[bad]}{where}."
    return bad is not None, f"{message} Graphs: {_graphs(shown, trainer)}."


def _first_layer(module: pl.LightningModule, batch: Any) -> str | None:
    """Return the first layer whose output is not finite; the model's buffers and the generators are unchanged."""
    names: list[str] = []

    def look(name: str) -> Any:
        def hook(layer: nn.Module, inputs: Any, output: Any) -> None:
            if not names and any(not bool(t.isfinite().all()) for t in _floats(output)):
                names.append(f"{name} ({type(layer).__name__})")

        return hook

    # These would wait for processes whose loss is finite.
    waiting = [layer for layer in module.modules() if isinstance(layer, nn.SyncBatchNorm) and layer.training]
    for layer in waiting:
        layer.eval()
    hooks = [layer.register_forward_hook(look(name)) for name, layer in module.named_modules() if name]
    try:
        with torch.no_grad(), _unchanged(module):
            module(batch)
    finally:
        for hook in hooks:
            hook.remove()
        for layer in waiting:
            layer.train()
    return names[0] if names else None


@contextmanager
def _unchanged(module: pl.LightningModule) -> Iterator[None]:
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    generators = capture_generators(module)
    with torch.random.fork_rng():
        yield
    restore_generators(module, generators)
    for name, buffer in module.named_buffers():
        buffer.copy_(buffers[name])


def _floats(output: Any) -> Iterable[Tensor]:
    if isinstance(output, Tensor):
        return [output] if output.is_floating_point() else []
    if isinstance(output, Representation):
        output = vars(output)
    parts = output.values() if isinstance(output, dict) else output if isinstance(output, (list, tuple)) else []
    return [tensor for part in parts for tensor in _floats(part)]


def _graphs(batches: list[Any], trainer: pl.Trainer) -> str:
    """Return the graphs of the batches, named as in predictions."""
    rows = [int(row) for batch in batches for row in getattr(batch, "graph_id", torch.empty(0)).tolist()]
    data: Any = getattr(trainer, "datamodule", None)
    ids = data.ids("train") if hasattr(data, "ids") else None
    return listed(rows if ids is None else [ids[row] for row in rows], _NAMED)
