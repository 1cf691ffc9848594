"""Regression for graphs, nodes or edges: L1, squared or Huber error, a variance or quantiles; MAE in real units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.functional.regression import explained_variance, pearson_corrcoef, r2_score, spearman_corrcoef

from graphbench.contracts.devices import NO_FLOAT64, is_apple
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import BOUNDS, WEIGHT, GraphBatch
from graphbench.errors import BadInput, listed
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks.base import Task, target_labels
from graphbench.training.tasks.defined import Need
from graphbench.training.tasks.known import KnownMeanAbsoluteError, KnownMeanSquaredError, ScaledError, TargetErrors
from graphbench.training.tasks.losses import at_least_single, cell_weights, chosen_terms, masked_terms, meet_bounds
from graphbench.training.tasks.metrics import PerTarget, RelativeAbsoluteError
from graphbench.training.tasks.spreads import LEVELS, GaussianSpread, QuantileSpread, Spread, quantile_levels

#: Losses of a difference; each target may have a different one.
_POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "L1": Tensor.abs,
    "MSE": Tensor.square,
    "Huber": lambda difference: F.huber_loss(difference, torch.zeros_like(difference), reduction="none"),
}
#: Buffers that stay in float64, whatever the precision of the weights.
_EXACT = ("offset", "scale", "deviation")
#: Offset in deviations above which predictions are returned in float64: it uses 3 of float32's 7 digits.
_DIGITS = 1e3
#: Maximum number of targets that a log line names; the others are counted.
_MAX_NAMED = 8


class Regression(Task):
    """One or several real targets per graph, node or edge, NaN where unknown.

    The head's output is `(y - offset) / scale` per target, with offset 0 and scale 1 unless `standardize` was called:
    losses are in scaled and metrics always in real units. The Huber loss of a scaled error e is `e^2 / 2` up to
    1 and `|e| - 1 / 2` above (Huber 1964). For targets in `spec.log10_targets`, y is the decimal logarithm, and
    predictions are powers of ten. Losses of cells in `y_lower` and `y_upper` are one-sided, see `meet_bounds`. With the
    losses Gaussian and Quantile the head has several outputs per target, predictions first, see `GaussianSpread` and
    `QuantileSpread`, whose levels are `quantiles`.

    Raises:
        BadInput: levels are given for another loss, or they are invalid.
    """

    kind = "regression"
    losses = ("L1", "MSE", "Huber", "Gaussian", "Quantile")
    comparable = True
    needs: ClassVar[Mapping[str, Need]] = dict.fromkeys(
        ("R2", "Spearman", "Pearson", "explained_variance", "RAE"), "contrast"
    )
    offset: Tensor
    scale: Tensor
    deviation: Tensor
    logged: Tensor | None

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        head: HeadConfig,
        quantiles: Sequence[float] | None = None,
        edge_dim: int = 0,
    ) -> None:
        super().__init__(spec, dim, head)
        if quantiles is not None and spec.loss != "Quantile":
            raise BadInput(f"quantiles is for the loss Quantile (--model.loss quantile), not for {spec.loss}.")
        if spec.loss == "Gaussian" and any(spec.log10_targets):
            raise BadInput(
                f"{spec.name}: the loss Gaussian learns a standard deviation, which a target in log10 does not have in "
                "its unit. Use --model.loss quantile, whose levels are those of the target."
            )
        #: Loss of each target, see `set_target_losses`.
        self.target_losses = (spec.loss,) * spec.num_targets
        self.spread = _spread(spec.loss, quantiles)
        self.spread_names = self.spread.names if self.spread else ()
        outputs = spec.output_dim * (self.spread.outputs if self.spread else 1)
        self.head = self.make_head(dim, outputs, head, edge_dim)
        self.register_buffer("offset", torch.zeros(spec.num_targets, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(spec.num_targets, dtype=torch.float64))
        #: Standard deviation of each training target `[T]`, by which scaled errors are divided.
        # Saved only if a scaled error reads it, since checkpoints of single targets have none.
        several = spec.num_targets > 1 or any(spec.log10_targets)
        self.register_buffer("deviation", torch.ones(spec.num_targets, dtype=torch.float64), persistent=several)
        #: Which targets are logarithms in training `[T]`; None if none is.
        logged = torch.tensor(spec.log10_targets) if any(spec.log10_targets) else None
        self.register_buffer("logged", logged, persistent=False)
        #: Whether predictions are returned in float64, because float32 has too few digits beyond the offset.
        self.wide = False

    def set_target_losses(self, losses: Mapping[str, str]) -> None:
        """Set separate losses for targets, by name; the others keep the loss of the specification.

        Raises:
            BadInput: there is no such target, a loss is not one of L1, MSE and Huber, or the specification's loss is
                neither, so that the head has further outputs.
        """
        if self.spread is not None:
            raise BadInput(
                f"--model.loss: {self.spec.name} trains on {self.spec.loss}, which is for all targets together; "
                "choose one loss for all (such as --model.loss huber)."
            )
        names = self.spec.target_names or tuple(map(str, range(self.spec.num_targets)))
        spellings = {name.casefold(): name for name in _POINTWISE}
        for name, loss in losses.items():
            if name not in names:
                raise BadInput(f"--model.loss: no target is called {name!r}; there are {', '.join(names)}.")
            if loss.casefold() not in spellings:
                raise BadInput(f"--model.loss: {name}={loss} must be one of {', '.join(_POINTWISE)}.")
        chosen = {name: spellings[loss.casefold()] for name, loss in losses.items()}
        self.target_losses = tuple(chosen.get(name, self.spec.loss) for name in names)

    def transform(self, values: Tensor) -> Tensor:
        """Take the decimal logarithm of the targets `[rows, T]` that are trained on in log10."""
        return values if self.logged is None else torch.where(self.logged, values.log10(), values)

    def restore(self, values: Tensor) -> Tensor:
        """Undo `transform`."""
        if self.logged is None:
            return values
        exponents = torch.where(self.logged, values, 0.0)  # powers that overflow would make gradients NaN
        return torch.where(self.logged, 10.0**exponents, values)

    def measure(self, targets: Tensor) -> list[int]:
        """Compute the standard deviation of each training target `[rows, T]`, and return the columns without one.

        These columns are constant, or known in no row, and keep 1.
        """
        _, deviation = _moments(self.transform(targets))
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))
        return torch.nonzero(~(deviation > 0)).flatten().tolist()

    def standardize(self, targets: Tensor) -> None:
        """Compute mean and standard deviation of the training targets `[rows, T]`; a constant target keeps scale 1."""
        mean, deviation = _moments(self.transform(targets))
        self.offset.copy_(mean)
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
        self._look()

    def deviations(self) -> Tensor:
        """Return the standard deviation of each training target `[T]`, also after the module moved to a device."""
        return self.deviation

    def _look(self) -> None:
        self.wide = bool((self.offset.abs() > _DIGITS * self.scale).any())

    def _apply(self, fn: Any, recurse: bool = True) -> Regression:
        """Move to a device; buffers that centre targets stay in float64, if supported, when weights are converted."""
        exact = {name: getattr(self, name) for name in _EXACT}  # `.half()` would round an offset of 1e4 to 8
        device = fn(torch.empty(0)).device
        if is_apple(device):
            if self.wide:
                raise BadInput(NO_FLOAT64.format(name=self.spec.name))
            for name, before in exact.items():
                setattr(self, name, before.float())
            exact = {}
        super()._apply(fn, recurse)
        for name, before in exact.items():
            if device.type != "meta":
                setattr(self, name, before.to(device).double())
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Load weights; those of earlier versions lack `deviation`, which was `scale` if that was not 1."""
        if f"{prefix}scale" in state_dict and self.spec.num_targets > 1:
            state_dict.setdefault(f"{prefix}deviation", state_dict[f"{prefix}scale"])
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if not self.offset.is_meta:
            self._look()

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Sum the errors of the loss over known and bounded targets, each row and target with its weight."""
        output = at_least_single(output)
        target = self._scaled(batch.y, output)
        predicted = output[:, : self.spec.num_targets]
        weight = cell_weights(batch.get(WEIGHT), self.target_weights, predicted)
        mask, bounds = ~target.isnan(), None
        # A number for every cell, since NaN times a mask of 0 would still make the gradient NaN.
        target = torch.where(mask, target, 0.0)
        if BOUNDS[0] in batch:
            bounds = (self._scaled(batch[BOUNDS[0]], output), self._scaled(batch[BOUNDS[1]], output))
            mask = mask | ~bounds[0].isnan() | ~bounds[1].isnan()
        if self.spread is not None:
            errors = self.spread.errors(output, target, bounds)
        else:
            target = target if bounds is None else meet_bounds(target, predicted, *bounds)
            if self.chosen_loss is not None:
                weights = None if weight is None else weight[mask]
                return chosen_terms(self.chosen_loss, predicted[mask], target[mask], weights)
            errors = self._errors(predicted - target)
        return masked_terms(errors if weight is None else errors * weight, mask)

    def _scaled(self, values: Tensor, output: Tensor) -> Tensor:
        """Scale targets or bounds `[rows, T]` like the head's output: centred in float64, then rounded."""
        return ((self.transform(values) - self.offset) / self.scale).to(output.dtype)

    def _errors(self, difference: Tensor) -> Tensor:
        """Apply the losses of the targets to differences `[rows, T]`."""
        if len(set(self.target_losses)) == 1:
            return _POINTWISE[self.target_losses[0]](difference)
        columns = zip(self.target_losses, difference.unbind(1), strict=True)
        return torch.stack([_POINTWISE[loss](column) for loss, column in columns], dim=1)

    def known_targets(self, y: Tensor) -> Tensor:
        """Return targets `[rows, T]`, NaN where unknown."""
        return y.reshape(-1, self.spec.num_targets)

    def build_metrics(self) -> dict[str, Metric]:
        """Create MAE and RMSE over all known targets, and for several targets the means of their scaled errors.

        A specification that selects by a scaled error has targets of different units, whose errors have no meaningful
        mean: `MAE` and `RMSE` are then scored on request, see `named_metrics`. Scaled errors of targets in log10 are
        those of their logarithms; a single such target also has them.
        """
        pooled, targets = self._pooled(), self.spec.num_targets
        if targets == 1 and self.logged is None:
            return pooled
        scaled: dict[str, Metric] = {
            "scaled_MAE": ScaledError(self.deviations, targets, transform=self.transform),
            "scaled_RMSE": ScaledError(self.deviations, targets, squared=True, transform=self.transform),
        }
        return scaled if self._unpooled else pooled | scaled

    @property
    def _unpooled(self) -> bool:
        """Tell whether errors of several targets are averaged only in units of their deviations."""
        return self.spec.num_targets > 1 and self.spec.metric in ("scaled_MAE", "scaled_RMSE")

    def _pooled(self) -> dict[str, Metric]:
        return {"MAE": KnownMeanAbsoluteError(), "RMSE": KnownMeanSquaredError(squared=False)}

    def metric_units(self) -> str:
        """Describe the units of scores, see `Task.metric_units`."""
        if self.spec.num_targets == 1 and self.logged is None:
            return ""
        logged = self.spec.log10_targets or (False,) * self.spec.num_targets
        names = zip(target_labels(self.spec), logged, strict=True)
        labels = [f"log10({name})" if is_logged else name for name, is_logged in names]
        shown = listed(labels, _MAX_NAMED)
        return f"MAE and RMSE are in the units of the targets, scaled errors in training deviations of {shown}."

    def target_metrics(self) -> dict[str, Metric]:
        """Create MAE and RMSE of each target, in its unit."""
        targets = self.spec.num_targets
        return {"MAE": TargetErrors(targets), "RMSE": TargetErrors(targets, squared=True)}

    def named_metrics(self) -> dict[str, Metric]:
        """Create the MSE, and means over targets of R2, correlations, explained variance and RAE."""
        metrics: dict[str, Metric] = {
            "R2": PerTarget(r2_score),
            "Spearman": PerTarget(spearman_corrcoef, varied=True),
            "Pearson": PerTarget(pearson_corrcoef, varied=True),
            "explained_variance": PerTarget(explained_variance),
            "RAE": RelativeAbsoluteError(),
            "MSE": KnownMeanSquaredError(),
        }
        return metrics | self._pooled() if self._unpooled else metrics

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the known targets of all columns, one after the other `[known]`."""
        mask = ~targets.isnan()
        return predictions[mask], targets[mask]

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return predictions and targets in real units `[rows, T]`."""
        return self.centre(output), batch.y

    def centre(self, output: Tensor) -> Tensor:
        """Return predictions in real units `[rows, T]`."""
        output = at_least_single(output)
        values = output[:, : self.spec.num_targets] * self.scale + self.offset
        return self._rounded(self.restore(values), output)

    def _rounded(self, values: Tensor, output: Tensor) -> Tensor:
        return values if self.wide else values.to(output.dtype)

    def spreads(self, output: Tensor) -> Tensor:
        """Return standard deviations or quantiles in real units, see `Spread.values`."""
        if self.spread is None:
            return super().spreads(output)
        output = at_least_single(output)
        values = self.spread.values(output, self.offset, self.scale)
        if self.logged is not None:  # quantiles, target after target
            values = self.restore(values.unflatten(1, (self.spec.num_targets, -1)).mT).mT.flatten(1)
        return self._rounded(values, output)


def _moments(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of each column over its known rows `[T]`, float64; 0 for a column without."""
    mask = ~targets.isnan()
    count = mask.sum(0).clamp(min=1)
    values = torch.where(mask, targets, 0.0).double()
    # The first known value of each column, which is usually closer to the mean than 0 is.
    first = values[mask.long().argmax(0), torch.arange(values.shape[1])] if len(values) else values.sum(0)
    shifted = torch.where(mask, values - first, 0.0)  # sums of large offsets would round the mean
    mean = shifted.sum(0) / count
    deviation = (torch.where(mask, shifted - mean, 0.0).square().sum(0) / count).sqrt()
    return mean + first, deviation


def _spread(loss: str, quantiles: Sequence[float] | None) -> Spread | None:
    if loss == "Gaussian":
        return GaussianSpread()
    return QuantileSpread(quantile_levels(LEVELS if quantiles is None else quantiles)) if loss == "Quantile" else None


class GraphRegression(Regression):
    """One or several real targets per graph, NaN where unknown; see `Regression`.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = GraphRegression(tiny_spec(), dim=8, head=HeadConfig())
        >>> task.standardize(torch.tensor([[1.0, 5.0], [3.0, 5.0], [float("nan"), 5.0]]))
        >>> task.offset.tolist(), task.scale.tolist()
        ([2.0, 5.0], [1.0, 1.0])
    """

    level = "graph"


class NodeRegression(Regression):
    """One or several real targets per node, NaN where unknown; see `Regression`.

    Examples:
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec
        >>> task = NodeRegression(tiny_spec("node-regression"), dim=8, head=HeadConfig())
        >>> task(Representation(node=torch.ones(5, 8)), GraphBatch()).shape  # a number per target
        torch.Size([5, 2])
    """

    level = "node"


class EdgeRegression(Regression):
    """One or several real targets per directed edge, NaN where unknown; see `Regression`.

    Examples:
        >>> from graphbench.contracts import Representation
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("edge-regression")
        >>> task, batch = EdgeRegression(spec, dim=8, head=HeadConfig()), tiny_table(spec, sizes=[5]).batch([0])
        >>> task(Representation(node=torch.ones(5, 8)), batch).shape == (batch.edge_index.shape[1], 2)
        True
    """

    level = "edge"
