"""Choose the trained parameters and their learning rates: optimizer, schedule, rates of parts, frozen parts."""

from __future__ import annotations

import logging
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import GradientAccumulationScheduler, StochasticWeightAveraging
from pytorch_lightning.cli import OptimizerCallable
from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn
from torchmetrics import Metric

from graphbench.contracts.architecture import Architecture, PositionalEncoder
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput, check_range
from graphbench.nn.heads import HeadConfig
from graphbench.runs.differences import differing_options
from graphbench.training import parts, targets
from graphbench.training.lightning_internals import attached_trainer
from graphbench.training.optim import Schedule, fuse, parameter_groups, set_rates

logger = logging.getLogger(__name__)
_LONGEST_MESSAGE = 600  # characters of torch's message on weights


#: Argument of `BenchmarkModule` -> its type, and what to pass.
_OBJECTS: dict[str, tuple[Any, str]] = {
    "spec": (BenchmarkSpec, "the BenchmarkSpec of the data, such as data.spec"),
    "head": (HeadConfig, "a graphbench.nn.HeadConfig, such as HeadConfig(num_layers=2)"),
    "schedule": (Schedule, "a graphbench.training.optim.Schedule, such as Schedule(name='cosine')"),
    "positional_encoding": (PositionalEncoder | None, "a positional encoder, such as graphbench.nn.RWSEEncoder(16, 8)"),
}


def check_objects(given: Mapping[str, Any]) -> None:
    """Refuse strings, mappings and classes instead of objects, which only the command line builds from them."""
    for name, (kind, words) in _OBJECTS.items():
        if not isinstance(given[name], kind):
            raise BadInput(f"{name} must be {words}, but got {given[name]!r}.")
    if not callable(given["optimizer"]):
        raise BadInput(
            "optimizer must be a function of the parameters, such as functools.partial(torch.optim.Adam, lr=1e-3), "
            f"but got {given['optimizer']!r}."
        )
    metrics = given["metrics"]
    is_list = isinstance(metrics, Sequence) and not isinstance(metrics, str)
    if metrics is not None and not (is_list and all(isinstance(one, (str, Mapping, Metric)) for one in metrics)):
        raise BadInput(
            "metrics must be a list of names and metric objects, such as ['R2', torchmetrics.MeanMetric()], "
            f"but got {metrics!r}."
        )


def make_architecture(make: Callable[[BenchmarkSpec], Architecture], spec: BenchmarkSpec) -> Architecture:
    """Build the model for a specification."""
    cls = getattr(make, "func", make)  # the function of a `functools.partial`
    is_other = isinstance(cls, nn.Module) or (isinstance(cls, type) and not issubclass(cls, Architecture))
    if is_other or not callable(cls):
        shown = cls.__name__ if isinstance(cls, type) else f"a {type(cls).__name__}"
        raise BadInput(
            "architecture must be a subclass of graphbench.Architecture, or a function that builds one from a "
            f"specification, but got {shown}. Make an nn.Module part of a subclass, whose forward(batch) returns a "
            "Representation."
        )
    wanted = "an Architecture whose constructor calls super().__init__(spec, dim)"
    try:
        made = make(spec)
    except AttributeError as error:
        if "Module.__init__() call" not in str(error):
            raise
        raise BadInput(f"architecture must build {wanted} before it sets a part: {error}.") from error
    if not isinstance(made, Architecture) or "dim" not in vars(made):
        raise BadInput(f"architecture must build {wanted}; it built {type(made).__name__}.")
    _check_parts(made)
    return made


def _check_parts(model: nn.Module) -> None:
    """Refuse weights in Python lists and dictionaries, which torch does not register, and weights without a size.

    Frozen weights are allowed there, such as those of a teacher that should not be stored.
    """
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise BadInput(f"{type(model).__name__} needs the size of {name} when it is built; a lazy module has none.")
    registered = {id(part) for part in (*model.modules(), *model.parameters())}
    for module in model.modules():
        for name, value in vars(module).items():
            parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
            strange = [p for p in parts if isinstance(p, (nn.Module, nn.Parameter)) and id(p) not in registered]
            weights = [one for p in strange for one in (p.parameters() if isinstance(p, nn.Module) else [p])]
            if any(weight.requires_grad for weight in weights):
                raise BadInput(
                    f"{type(module).__name__}.{name} is a {type(value).__name__} whose weights would be neither "
                    "trained nor stored; make it an nn.ModuleList, nn.ModuleDict or nn.ParameterList."
                )


class LearningModule(pl.LightningModule):
    """Base class of `BenchmarkModule`: optimizer, schedule and frozen parts of a module with an architecture."""

    architecture: Architecture
    spec: BenchmarkSpec
    #: `max_steps` of the run; -1 without one, and while Lightning's finders train.
    _last_step = -1
    _logged_untrained = False
    _logged_options = False

    def choose_learning(
        self,
        optimizer: OptimizerCallable,
        schedule: Schedule,
        lr_scales: dict[str, float] | None,
        learning_rates: dict[str, float] | str | None,
        freeze: str | list[str] | None,
        freeze_epochs: int | None,
    ) -> None:
        """Check the options, see `BenchmarkModule`, and freeze parts; call it after all parameters exist."""
        self.schedule = schedule
        self.lr_scales = lr_scales or {}
        for name, scale in self.lr_scales.items():
            check_range(f"lr_scales: the factor of {name!r}", scale, at_least=0)
        self._make_optimizer = optimizer
        self._found_lr: float | None = None
        self._rates: list[float] = []
        self.learning_rates = parts.parse_rates(learning_rates)
        self.freeze_epochs = freeze_epochs
        # Last, since patterns name parameters: those of the head and the task exist now.
        self.frozen = parts.freeze_parts(self, parts.parse_patterns(freeze), freeze_epochs)
        self.train(self.training)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what checkpoints of earlier versions lack, and warn about options that change the trained model."""
        targets.add_deviations(self, checkpoint.get("state_dict", {}))  # type: ignore[arg-type]
        trained, trainer = checkpoint.get("hyper_parameters"), attached_trainer(self)
        if self._logged_options or not isinstance(trained, Mapping) or not (trainer is None or trainer.is_global_zero):
            return
        if options := differing_options(self.hparams, trained):
            self._logged_options = True  # once, although a test has two splits
            logger.warning("The checkpoint was trained with other options: %s.", "; ".join(options[:6]))

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights like torch.

        Raises:
            BadInput: they do not match; names what is missing, unexpected or has another shape.
        """
        try:
            return super().load_state_dict(state_dict, strict, assign)
        except RuntimeError as error:
            if "in loading state_dict" not in str(error):  # such as an out-of-memory error
                raise
            # torch's first line names the class, and each further line one kind of mismatch.
            misfits = " ".join(line.strip() for line in str(error).splitlines()[1:])
            name = type(self.architecture).__name__
            raise BadInput(
                f"The weights do not fit {name}, whose code or options differ from those that were trained: "
                f"{textwrap.shorten(misfits, _LONGEST_MESSAGE, placeholder=' ...')}"
            ) from error

    # -- frozen parts --------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> LearningModule:
        """Set the mode of all parts except batch norms of frozen parts, which stay in evaluation mode."""
        super().train(mode)
        if getattr(self, "frozen", None) and self.is_frozen:
            parts.rest_frozen_norms(self, self.frozen)
        return self

    @property
    def is_frozen(self) -> bool:
        """Tell whether the parts of `freeze` are frozen in this epoch."""
        return bool(self.frozen) and (self.freeze_epochs is None or self.current_epoch < self.freeze_epochs)

    def on_train_epoch_start(self) -> None:
        """Unfreeze parts after `freeze_epochs`."""
        if self.freeze_epochs is not None:
            self.train()  # also batch norms of these parts
            if self.current_epoch == self.freeze_epochs:
                logger.info(
                    "freeze: from epoch %d on, %d frozen tensors are trained", self.current_epoch + 1, len(self.frozen)
                )

    def on_after_backward(self) -> None:
        """Warn about parts that get no gradient, and drop the gradients of frozen parts."""
        # With sharding strategies a process has only some of the gradients.
        if not self._logged_untrained and isinstance(self.trainer.strategy, (SingleDeviceStrategy, DDPStrategy)):
            self._logged_untrained = True
            untrained = parts.without_gradient(self.architecture)
            if untrained and self.trainer.is_global_zero:
                name = type(self.architecture).__name__
                logger.warning("No gradient of the first step reaches %s of %s.", ", ".join(untrained), name)
        # Lightning calls this after DDP has averaged and before clipping, whose norm then covers only trained parts.
        if self.freeze_epochs is not None and self.is_frozen:
            parts.drop_gradients(self, self.frozen)

    # -- length of the run ---------------------------------------------------------------------------------------

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop the trainer if `max_steps` ends the run within an epoch, so that the last weights are validated.

        At that point Lightning validates only if training is stopped, which `min_epochs` would prevent.
        """
        if 0 <= self._last_step <= self.trainer.global_step:
            self.trainer.should_stop = True
            self.trainer.fit_loop.min_epochs = None

    # -- optimizer and rates -------------------------------------------------------------------------------------

    @property
    def lr(self) -> float:
        """The learning rate, which Lightning's LearningRateFinder sets."""
        return float(self._probe().defaults["lr"]) if self._found_lr is None else self._found_lr

    @lr.setter
    def lr(self, rate: float) -> None:
        self._found_lr = float(rate)

    @property
    def monitor(self) -> str:
        """Name of the validation metric that selects the best checkpoint."""
        return f"val/{self.spec.metric}"

    @property
    def monitor_mode(self) -> str:
        """Return "max" or "min", the direction in which that metric is better."""
        return "max" if self.spec.higher_is_better else "min"

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Step the scheduler like Lightning, and stop training at the rate `schedule.stop_below`."""
        super().lr_scheduler_step(scheduler, metric)
        self._end_by_rate()

    def follow(self, scores: Mapping[str, Any]) -> None:
        """Step schedulers that follow a validation score."""
        for config in self.trainer.lr_scheduler_configs:
            if config.reduce_on_plateau:
                self.lr_scheduler_step(config.scheduler, scores[str(config.monitor)])

    def on_train_start(self) -> None:
        """Stop a resumed run if its rate had stopped it, and start the epoch of a run that resumes within one."""
        self._end_by_rate()
        # Lightning does not call `on_train_epoch_start` if a run resumes within an epoch.
        if self.freeze_epochs is not None:
            self.train()
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, (GradientAccumulationScheduler, StochasticWeightAveraging)):
                callback.on_train_epoch_start(self.trainer, self)

    def _end_by_rate(self) -> None:
        if self.ended_by_rate:
            self.trainer.should_stop = True

    @property
    def ended_by_rate(self) -> bool:
        """Tell whether the rate has fallen below the value at which the schedule stops training (`stop_below`)."""
        return self.schedule.ends(group["lr"] for group in self.trainer.optimizers[0].param_groups)

    def on_fit_start(self) -> None:
        """Start at the rate of Lightning's finder, and warn if frozen parts are never trained."""
        self._last_step = self.trainer.max_steps  # not earlier: finders train with their own limits
        last, fewest = self.trainer.max_epochs, self.trainer.min_epochs or 0
        # Last, since counting batches builds the loader, which a run without these options does not need here.
        if fewest > 1 and self._last_step >= 0 and (ends := self._epochs()) is not None and ends < fewest:
            logger.warning(
                "trainer.min_epochs is %d, but max_steps %d ends the run in epoch %d", fewest, self._last_step, ends
            )
        if self.freeze_epochs is not None and last is not None and 0 <= last <= self.freeze_epochs:
            logger.warning(
                "freeze_epochs=%d, but max_epochs=%d: the frozen parts are never trained", self.freeze_epochs, last
            )
        if self._found_lr is not None:
            # A ratio, since parts with separate rates keep their proportion to the others.
            factor = self._found_lr / float(self._probe().defaults["lr"])
            schedulers = [config.scheduler for config in self.trainer.lr_scheduler_configs]
            set_rates(self.trainer.optimizers[0], schedulers, [rate * factor for rate in self._rates])

    def _probe(self) -> torch.optim.Optimizer:
        """Create the optimizer for one matrix, to read its defaults; Muon accepts nothing else."""
        return self._optimizer_of([nn.Parameter(torch.zeros(1, 1))])

    def configure_optimizers(self) -> Any:
        """Return the optimizer and the schedule; raise `BadInput` if the optimizer rejects an option or shape."""
        optimizer = self.build_optimizer()
        _check_eps(optimizer)
        if isinstance(optimizer, torch.optim.LBFGS) and self.trainer.accumulate_grad_batches > 1:
            raise BadInput(  # Lightning zeroes gradients only before the first batch
                f"--trainer.accumulate_grad_batches is {self.trainer.accumulate_grad_batches}: LBFGS evaluates a batch "
                "several times per step, and these gradients would add up. Use a larger --data.batch_size."
            )
        # Before the scheduler is created, which at once multiplies the rates by the factor of the first interval.
        self._rates = [float(group["lr"]) for group in optimizer.param_groups]
        scheduler = self.schedule.configure(
            optimizer,
            steps=self._steps,
            epochs=self._epochs,
            monitor=self.monitor,
            mode=self.monitor_mode,
        )
        return {"optimizer": optimizer} | ({"lr_scheduler": scheduler} if scheduler else {})

    def _steps(self) -> float:
        """Return the steps of the run; Lightning counts those of all epochs with one accumulation of gradients."""
        trainer, usual = self.trainer, self.trainer.estimated_stepping_batches
        batches, epochs = trainer.num_training_batches, trainer.max_epochs
        if epochs is None or epochs < 0 or not 0 < batches < math.inf:
            return usual
        steps: float = 0
        for start, stop, in_epoch in self._stretches(int(batches)):
            steps += in_epoch * max(0, min(stop, max(epochs, 1)) - start)
        return steps if trainer.max_steps < 0 else min(steps, trainer.max_steps)

    def _stretches(self, batches: int) -> list[tuple[float, float, int]]:
        """Return first epoch, epoch after the last one, and steps in an epoch, wherever their number changes."""
        accumulation = {0: self.trainer.accumulate_grad_batches}
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, GradientAccumulationScheduler):
                accumulation = callback.scheduling
        starts = sorted(accumulation)
        in_epoch = [math.ceil(batches / accumulation[start]) for start in starts]
        return list(zip(starts, [*starts[1:], math.inf], in_epoch, strict=True))

    def _epochs(self) -> int | None:
        """Return the epochs of the run, limited by `max_epochs` or `max_steps`; None if it is open-ended."""
        trainer = self.trainer
        epochs = None if trainer.max_epochs is None or trainer.max_epochs < 0 else trainer.max_epochs
        if trainer.max_steps < 0:
            return epochs
        if trainer.train_dataloader is None:  # as Lightning's estimated_stepping_batches does
            trainer.fit_loop.setup_data()
        batches = trainer.num_training_batches
        if not 0 < batches < math.inf:
            return epochs
        left: float = trainer.max_steps
        for start, stop, in_epoch in self._stretches(int(batches)):
            begun = start + math.ceil(left / in_epoch)
            if begun <= stop:
                break
            left -= in_epoch * (stop - start)
        return int(begun if epochs is None else min(epochs, begun))

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer with its groups, without a schedule."""
        groups = parameter_groups(
            self, self.architecture.parameter_groups(), lr=self._probe().defaults["lr"], lr_scales=self.lr_scales
        )
        return fuse(self._optimizer_of(parts.with_learning_rates(groups, self, self.learning_rates)))

    def _optimizer_of(self, parameters: list[Any]) -> torch.optim.Optimizer:
        try:
            return self._make_optimizer(parameters)
        except ValueError as error:
            raise BadInput(f"The optimizer of --model.optimizer cannot be made for this model: {error}") from error


def _check_eps(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an `eps` that is 0 in the dtype of the weights: Adam would divide by a root that may be 0.

    With `--trainer.precision 16-true` weights are float16, whose smallest number is 6e-8; Adam's eps is 1e-8.
    """
    for group in optimizer.param_groups:
        eps, types = group.get("eps"), {one.dtype for one in group["params"]}
        for kind in types if isinstance(eps, float) and eps > 0 else ():
            if not torch.tensor(eps, dtype=kind):
                raise BadInput(
                    f"--model.optimizer.eps is {eps:g}, which is 0 in {str(kind).removeprefix('torch.')}, the type of "
                    f"the weights. Use at least {torch.finfo(kind).tiny:.0e}, or another --trainer.precision: "
                    "16-mixed keeps weights in float32, bf16-true has the exponents of float32."
                )
