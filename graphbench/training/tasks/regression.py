"""Regression of graphs, nodes or edges: L1, squared or Huber error, a variance or quantiles; MAE in real units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric
from torchmetrics.functional.regression import explained_variance, pearson_corrcoef, r2_score, spearman_corrcoef

from graphbench.contracts.architecture import Representation
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import WEIGHT, GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import EdgeHead, GraphHead, HeadConfig, NodeHead
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.defined import Need
from graphbench.training.tasks.known import KnownMeanAbsoluteError, KnownMeanSquaredError, ScaledError, TargetErrors
from graphbench.training.tasks.losses import at_least_single, chosen_terms, masked_terms, weighted
from graphbench.training.tasks.metrics import PerTarget
from graphbench.training.tasks.spreads import LEVELS, GaussianSpread, QuantileSpread, Spread, quantile_levels

#: Buffers that stay in float64 whatever the precision of the weights.
_EXACT = ("offset", "scale", "deviation")
#: Offset over deviation from which on predictions are told in float64: float32 has 7 digits, 3 of them beside these.
_DIGITS = 1e3


class Regression(Task):
    """One or several real targets per graph, node or edge, NaN where unknown.

    The head's output is `(y - offset) / scale` per target; offset 0 and scale 1 unless `standardize` was called, so
    that losses are in scaled and metrics always in real units. The Huber loss of a scaled error e is `e^2 / 2` up to
    1 and `|e| - 1 / 2` above (Huber 1964). With the losses Gaussian and Quantile the head has several outputs for each
    target, predictions first, see `GaussianSpread` and `QuantileSpread`.

    Args:
        spec: the benchmark's description.
        dim: width of the representation.
        head: options of the head.
        quantiles: levels of the loss Quantile, 0.5 among them; 0.05, 0.5 and 0.95 if None.
        of_head: what else the head takes, by name.

    Raises:
        BadInput: there are levels for another loss, or they are none.
    """

    kind = "regression"
    losses = ("L1", "MSE", "Huber", "Gaussian", "Quantile")
    comparable = True
    needs: ClassVar[Mapping[str, Need]] = dict.fromkeys(("R2", "Spearman", "Pearson", "explained_variance"), "contrast")
    #: Takes the width of the representation, the number of targets and the options of heads.
    head_class: type[GraphHead | NodeHead | EdgeHead]
    offset: Tensor
    scale: Tensor
    deviation: Tensor

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        head: HeadConfig,
        quantiles: Sequence[float] | None = None,
        of_head: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(spec, dim, head)
        if quantiles is not None and spec.loss != "Quantile":
            raise BadInput(f"quantiles is for the loss Quantile (--model.loss quantile), not for {spec.loss}.")
        self.spread = _spread(spec.loss, quantiles)
        self.spread_names = self.spread.names if self.spread else ()
        outputs = spec.output_dim * (self.spread.outputs if self.spread else 1)
        self.head = self.head_class(dim, outputs, head, **(of_head or {}))
        self.register_buffer("offset", torch.zeros(spec.num_targets, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(spec.num_targets, dtype=torch.float64))
        #: Standard deviation of each training target `[T]`, by which scaled errors are divided.
        several = spec.num_targets > 1
        self.register_buffer("deviation", torch.ones(spec.num_targets, dtype=torch.float64), persistent=several)
        #: Whether predictions are told in float64, because float32 has no digits left beside the offset.
        self.wide = False

    def measure(self, targets: Tensor) -> list[int]:
        """Take the standard deviation of each training target `[rows, T]`; a constant one keeps 1.

        Returns:
            The columns that are constant, or known in no row.
        """
        _, deviation = _moments(targets)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))
        return torch.nonzero(~(deviation > 0)).flatten().tolist()

    def standardize(self, targets: Tensor) -> None:
        """Take mean and standard deviation of the training targets `[rows, T]`; a constant target keeps scale 1."""
        mean, deviation = _moments(targets)
        self.offset.copy_(mean)
        self.scale.copy_(torch.where(deviation > 0, deviation, 1.0))
        self._look()

    def deviations(self) -> Tensor:
        """Return the standard deviation of each training target `[T]`."""
        return self.deviation

    def _look(self) -> None:
        self.wide = bool((self.offset.abs() > _DIGITS * self.scale).any())

    def _apply(self, fn: Any, recurse: bool = True) -> Regression:
        """Move to a device; what centres targets stays in float64 where weights get another precision."""
        exact = {name: getattr(self, name) for name in _EXACT}
        super()._apply(fn, recurse)
        for name, before in exact.items():
            device = getattr(self, name).device
            if device.type not in ("mps", "meta"):  # MPS has no float64
                setattr(self, name, before.to(device))
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Take weights; those of earlier versions lack `deviation`, which was `scale` where it was not 1."""
        if f"{prefix}scale" in state_dict and self.spec.num_targets > 1:
            state_dict.setdefault(f"{prefix}deviation", state_dict[f"{prefix}scale"])
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if not self.offset.is_meta:
            self._look()

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Scaled predictions `[rows, T]`, and behind them what else the loss needs."""
        output: Tensor = self.head(representation, batch)
        return output

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Errors of the specification's loss, summed over known targets; each row with its weight."""
        output = at_least_single(output)
        target = ((batch.y - self.offset) / self.scale).to(output.dtype)  # centred in float64, then rounded
        mask = ~target.isnan()
        if self.chosen_loss is not None:
            weight = batch.get(WEIGHT)
            weight = weight if weight is None else weight.reshape(-1, 1).expand_as(target)[mask]
            return chosen_terms(self.chosen_loss, output[mask], target[mask], weight)
        target = torch.where(mask, target, 0.0)
        difference = output[:, : self.spec.num_targets] - target
        if self.spread is not None:
            errors = self.spread.errors(output, target)
        elif self.spec.loss == "Huber":
            errors = F.huber_loss(difference, torch.zeros_like(difference), reduction="none")
        else:
            errors = difference.abs() if self.spec.loss == "L1" else difference.square()
        return masked_terms(weighted(errors, batch.get(WEIGHT)), mask)

    def known_targets(self, y: Tensor) -> Tensor:
        """Targets `[rows, T]`, NaN where unknown."""
        return y.reshape(-1, self.spec.num_targets)

    def build_metrics(self) -> dict[str, Metric]:
        """MAE and RMSE over all known targets; of several targets also the means of their scaled errors.

        A specification that selects by a scaled error has targets of different units, whose errors say nothing as one:
        `MAE` and `RMSE` are then scored on request, see `named_metrics`.
        """
        pooled, targets = self._pooled(), self.spec.num_targets
        if targets == 1:
            return pooled
        scaled: dict[str, Metric] = {
            "scaled_MAE": ScaledError(self.deviations, targets),
            "scaled_RMSE": ScaledError(self.deviations, targets, squared=True),
        }
        return scaled if self.spec.metric in scaled else pooled | scaled

    def _pooled(self) -> dict[str, Metric]:
        return {"MAE": KnownMeanAbsoluteError(), "RMSE": KnownMeanSquaredError(squared=False)}

    def target_metrics(self) -> dict[str, Metric]:
        """MAE and RMSE of each target, in its unit."""
        targets = self.spec.num_targets
        return {"MAE": TargetErrors(targets), "RMSE": TargetErrors(targets, squared=True)}

    def named_metrics(self) -> dict[str, Metric]:
        """Means over targets of the coefficient of determination, correlations and explained variance; the MSE."""
        metrics: dict[str, Metric] = {
            "R2": PerTarget(r2_score),
            "Spearman": PerTarget(spearman_corrcoef, varied=True),
            "Pearson": PerTarget(pearson_corrcoef, varied=True),
            "explained_variance": PerTarget(explained_variance),
            "MSE": KnownMeanSquaredError(),
        }
        return metrics if self.spec.metric not in ("scaled_MAE", "scaled_RMSE") else metrics | self._pooled()

    def compared(self, metric: Metric, predictions: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the known targets of all columns, one after the other `[known]`."""
        mask = ~targets.isnan()
        return predictions[mask], targets[mask]

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Predictions and targets in real units `[rows, T]`."""
        return self.centre(output), batch.y

    def centre(self, output: Tensor) -> Tensor:
        """Predictions in real units `[rows, T]`."""
        output = at_least_single(output)
        return self._rounded(output[:, : self.spec.num_targets] * self.scale + self.offset, output)

    def _rounded(self, values: Tensor, output: Tensor) -> Tensor:
        return values if self.wide else values.to(output.dtype)

    def spreads(self, output: Tensor) -> Tensor:
        """Return standard deviations or quantiles in real units, see `Spread.values`."""
        if self.spread is None:
            return super().spreads(output)
        output = at_least_single(output)
        return self._rounded(self.spread.values(output, self.offset, self.scale), output)


def _moments(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column over its known rows `[T]`, float64; 0 for a column without one."""
    mask = ~targets.isnan()
    count = mask.sum(0).clamp(min=1)
    values = torch.where(mask, targets, 0.0).double()
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

    head_class = GraphHead  # pools the nodes of each graph

    def __init__(
        self, spec: BenchmarkSpec, dim: int, head: HeadConfig, quantiles: Sequence[float] | None = None
    ) -> None:
        super().__init__(spec, dim, head, quantiles, {"beside": spec.graph.dense})


class NodeRegression(Regression):
    """One or several real targets per node, NaN where unknown; see `Regression`.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> task = NodeRegression(tiny_spec("node-regression"), dim=8, head=HeadConfig())
        >>> task(Representation(node=torch.ones(5, 8)), GraphBatch()).shape  # a number per target
        torch.Size([5, 2])
    """

    level = "node"

    head_class = NodeHead


class EdgeRegression(Regression):
    """One or several real targets per directed edge, NaN where unknown; see `Regression`.

    Args:
        spec: the benchmark's description.
        dim: width of nodes.
        head: options of the head, see `EdgeHead`.
        quantiles: see `Regression`.
        edge_dim: width of the architecture's representation of edges; 0 where it has none.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("edge-regression")
        >>> task, batch = EdgeRegression(spec, dim=8, head=HeadConfig()), tiny_table(spec, sizes=[5]).batch([0])
        >>> task(Representation(node=torch.ones(5, 8)), batch).shape == (batch.edge_index.shape[1], 2)
        True
    """

    level = "edge"

    head_class = EdgeHead

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        head: HeadConfig,
        quantiles: Sequence[float] | None = None,
        edge_dim: int = 0,
    ) -> None:
        super().__init__(spec, dim, head, quantiles, {"spec": spec, "edge_dim": edge_dim})
