"""The LightningModule: an architecture, a head for its benchmark, loss, metrics and optimizer."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytorch_lightning as pl
import torch
from pytorch_lightning.cli import OptimizerCallable
from pytorch_lightning.strategies import DDPStrategy
from torch import Tensor, nn
from torchmetrics import Metric

from graphbench.contracts.architecture import (
    Architecture,
    PositionalEncoder,
    Representation,
    declared_encodings,
    merge_encodings,
)
from graphbench.contracts.benchmark import Benchmark
from graphbench.contracts.encoding import Encoding
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.distributed import expect_idle, over_processes
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.optim import Schedule, parameter_groups
from graphbench.tasks import Task, build_task
from graphbench.tasks.regression import GraphRegression

SPLITS = ("train", "val", "test")


def adam_w(parameters: Any) -> torch.optim.Optimizer:
    """The optimizer when none is configured: AdamW at 1e-3 with torch's own defaults."""
    return torch.optim.AdamW(parameters, lr=1e-3)


class SplitLoss(Metric):
    """The loss over all rows of a split, whatever batches they came in.

    Sums are compensated (Kahan 1965), because float64 is not to be had on every device.

    Args:
        task: whose loss it is.
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False
    sums: Tensor
    lost: Tensor
    counts: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._combine = task.combine
        self.add_state("sums", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("lost", default=torch.zeros(task.groups), dist_reduce_fx="sum")
        self.add_state("counts", default=torch.zeros(task.groups, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, sums: Tensor, counts: Tensor) -> None:
        """Add the terms of a batch, both `[groups]`."""
        part = sums.float() - self.lost
        total = self.sums + part
        self.lost = (total - self.sums) - part
        self.sums = total
        self.counts = self.counts + counts

    def compute(self) -> Tensor:
        """The loss; NaN before any row."""
        sums, lost, counts = (state.cpu() for state in (self.sums, self.lost, self.counts))
        loss = self._combine(sums.double() - lost, counts) if counts.any() else torch.tensor(torch.nan)
        return loss.float().to(self.sums.device)


class SplitScores(nn.Module):
    """Metrics and mean loss of one split.

    While training, only the score that selects the model is tracked: it is for watching, not for reporting.

    Args:
        task: builds the metrics.
        split: train, val or test; the prefix of the logged names.
    """

    def __init__(self, task: Task, split: str) -> None:
        super().__init__()
        self.split = split
        metrics = task.build_metrics()
        if split == "train":
            metrics = {task.spec.metric: metrics[task.spec.metric]}
        self.metrics = nn.ModuleDict(metrics)
        self.loss = SplitLoss(task)

    def update(self, task: Task, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Add a batch and its raw `output`; returns the terms of its loss."""
        task.update(cast(dict[str, Metric], dict(self.metrics.items())), output.detach(), batch)
        sums, counts = task.terms(output, batch)
        self.loss.update(sums.detach(), counts)
        return sums, counts

    def finish(self) -> dict[str, Tensor]:
        """Values by logged name, reduced over ranks by torchmetrics; starts afresh."""
        values = {f"{self.split}/loss": self.loss.compute()}
        self.loss.reset()
        for name, metric in self.metrics.items():
            values[f"{self.split}/{name}"] = cast(Metric, metric).compute()
            cast(Metric, metric).reset()
        return values


def _with_position_features(spec: BenchmarkSpec, dim: int) -> BenchmarkSpec:
    node = dataclasses.replace(spec.node, dense=spec.node.dense + dim)
    return dataclasses.replace(spec, node=node)


class BenchmarkModule(pl.LightningModule):
    """Trains any architecture on any benchmark.

    Args:
        spec: the benchmark's description (linked from the data on the command line).
        architecture: registered name and options of the model, or a callable `spec -> Architecture`.
        head: depth, width and pooling of the prediction head.
        optimizer: any torch optimizer with its options.
        schedule: how the learning rate changes.
        positional_encoding: a positional encoder in front of the architecture: its output joins the nodes' dense
            features, so every architecture that reads them can use it.
        lr_scales: start of a parameter's name -> factor of the learning rate (`{positional_encoding: 10}`).
        standardize_targets: train regression on targets with zero mean and unit variance over the training split;
            metrics and predictions stay in real units.
        compile: compile the architecture with torch.compile.
        init_from: checkpoint whose weights the model starts from where names and shapes agree; what was and was not
            loaded is logged.

    Raises:
        BadInput: the architecture cannot work on this benchmark, or an option does not fit.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        architecture: Callable[[BenchmarkSpec], Architecture],
        head: HeadConfig = HeadConfig(),  # noqa: B008 - frozen dataclass
        optimizer: OptimizerCallable = adam_w,
        schedule: Schedule = Schedule(),  # noqa: B008 - frozen dataclass
        positional_encoding: PositionalEncoder | None = None,
        lr_scales: dict[str, float] | None = None,
        standardize_targets: bool = False,
        compile: bool = False,  # noqa: A002 - the name users know
        init_from: str | None = None,
    ) -> None:
        super().__init__()
        self.positional_encoding = positional_encoding
        seen = spec if positional_encoding is None else _with_position_features(spec, positional_encoding.dim)
        self.architecture = architecture(seen)
        self.task = build_task(spec, self.architecture.dim, head)
        self.spec = spec
        self.schedule = schedule
        self.lr_scales = lr_scales or {}
        self.init_from = init_from
        self._make_optimizer = optimizer
        if standardize_targets and not isinstance(self.task, GraphRegression):
            raise BadInput(f"standardize_targets is for graph regression; {spec.name} is {spec.task}.")
        self.standardize_targets = standardize_targets
        self.compile_architecture = compile
        self.scores = nn.ModuleList(SplitScores(self.task, split) for split in SPLITS)

    @property
    def monitor(self) -> str:
        """Name of the validation metric that selects the best checkpoint."""
        return f"val/{self.spec.metric}"

    @property
    def monitor_mode(self) -> str:
        """Whether that metric is best at its "max" or its "min" (one of these words)."""
        return "max" if self.spec.higher_is_better else "min"

    def required_encodings(self) -> tuple[Encoding, ...]:
        """What the data must prepare for this model."""
        of_position = declared_encodings(self.positional_encoding) if self.positional_encoding is not None else ()
        return merge_encodings((*self.architecture.required_encodings(), *of_position))

    def represent(self, batch: GraphBatch) -> Representation:
        """Run the positional encoding and the architecture."""
        if self.positional_encoding is not None:
            position = self.positional_encoding(batch)
            batch = batch.clone()  # shallow enough: PyG copies the containers and the tensors that change
            dense = batch.get("x_dense")
            batch.x_dense = position if dense is None else torch.cat((dense, position), 1)
        return self.architecture(batch)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Raw outputs of the head: `[num_graphs, output_dim]`, or `[num_nodes, output_dim]` for node tasks."""
        return self.task(self.represent(batch), batch)

    # -- steps ---------------------------------------------------------------------------------------------------

    def evaluate(self, batch: GraphBatch, split: str) -> Tensor:
        """Forward a batch and add it to the scores of `split`; returns the batch's loss."""
        return self.task.combine(*self._scores_of(split).update(self.task, self(batch), batch))

    @property
    def train_scores(self) -> SplitScores:
        """Metrics of the training split, which a checkpoint within an epoch keeps."""
        return self._scores_of("train")

    def _scores_of(self, split: str) -> SplitScores:
        return cast(SplitScores, self.scores[SPLITS.index(split)])

    def training_step(self, batch: GraphBatch, batch_idx: int) -> Tensor:
        """One step; metrics of the training split are those of the moving model in training mode.

        Several processes train on the loss of all their rows, as one process would on the same graphs: strategies
        average gradients, so that of process r is `W * combine(sums_r, sum of counts)` on W processes.
        """
        self.task.step = self.global_step
        sums, counts = self._scores_of("train").update(self.task, self(batch), batch)
        all_sums, all_counts, processes = over_processes(sums.detach(), counts)
        self.log("train/loss_step", self.task.combine(all_sums, all_counts), batch_size=batch.num_graphs)
        return processes * self.task.combine(sums, all_counts)

    def validation_step(self, batch: GraphBatch, batch_idx: int) -> None:
        """Add a batch to the validation metrics."""
        self.evaluate(batch, "val")

    def test_step(self, batch: GraphBatch, batch_idx: int) -> None:
        """Add a batch to the test metrics."""
        self.evaluate(batch, "test")

    def predict_step(self, batch: GraphBatch, batch_idx: int) -> dict[str, Tensor]:
        """Predictions, targets and the rows they belong to, on the CPU."""
        predictions, targets = self.task.predict(self(batch), batch)
        return {"graph": batch.graph_id.cpu(), "prediction": predictions.cpu(), "target": targets.cpu()}

    def on_train_epoch_end(self) -> None:
        """Log the training split."""
        self.log_dict(self._scores_of("train").finish())

    def on_validation_epoch_end(self) -> None:
        """Log the validation split."""
        self.log_dict(self._scores_of("val").finish(), prog_bar=True)

    def on_test_epoch_end(self) -> None:
        """Log the test split."""
        self.log_dict(self._scores_of("test").finish())

    # -- setting up ----------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Standardise targets, load starting weights and tell DDP what to expect at the start of a fit; compile."""
        if stage == "fit" and self.standardize_targets:
            tables = getattr(self.trainer, "datamodule", None)
            if tables is None:
                raise BadInput("standardize_targets needs a graphbench benchmark as the trainer's data module.")
            assert isinstance(self.task, GraphRegression)
            self.task.standardize(tables.tables["train"].columns["y"])
        if stage == "fit" and self.init_from and not getattr(self._trainer, "ckpt_path", None):  # else a run goes on
            from graphbench.checkpoints import load_matching

            load_matching(self, self.init_from)
        if stage == "fit" and self._trainer is not None and isinstance(self.trainer.strategy, DDPStrategy):
            expect_idle(self, lambda batch: self.task.loss(self(batch), batch), self.trainer)
        if self.compile_architecture and self.architecture._compiled_call_impl is None:
            self.architecture.compile(dynamic=True)

    def configure_optimizers(self) -> Any:
        """Optimizer with its groups, and the schedule.

        Raises:
            BadInput: the optimizer does not take an option's value or the shapes of these parameters.
        """
        probe = self._optimizer_of([nn.Parameter(torch.zeros(1, 1))])  # a matrix: Muon takes nothing else
        groups = parameter_groups(
            self, self.architecture.parameter_groups(), lr=probe.defaults["lr"], lr_scales=self.lr_scales
        )
        optimizer = self._optimizer_of(groups)
        scheduler = self.schedule.configure(
            optimizer,
            steps=lambda: self.trainer.estimated_stepping_batches,
            epochs=lambda: self.trainer.max_epochs,
            monitor=self.monitor,
            mode=self.monitor_mode,
        )
        return {"optimizer": optimizer} | ({"lr_scheduler": scheduler} if scheduler else {})

    def _optimizer_of(self, parameters: list[Any]) -> torch.optim.Optimizer:
        try:
            return self._make_optimizer(parameters)
        except ValueError as error:
            raise BadInput(f"The optimizer of --model.optimizer cannot be made for this model: {error}") from error


def build(
    architecture: str | Callable[[BenchmarkSpec], Architecture], benchmark: str | Benchmark, **options: Any
) -> tuple[BenchmarkModule, Benchmark]:
    """Make a module and its data in Python, without the command line.

    Args:
        architecture: registered name, or a callable `spec -> Architecture`.
        benchmark: registered name, or a benchmark object.
        **options: of `BenchmarkModule`; `model_options` and `data_options` are mappings for the two constructors.

    Returns:
        `(module, data)`; the data know which encodings the model needs.

    Raises:
        UnknownName: no such architecture or benchmark.
    """
    from graphbench import registry

    model_options, data_options = options.pop("model_options", {}), options.pop("data_options", {})
    data = registry.load("benchmarks", benchmark)(**data_options) if isinstance(benchmark, str) else benchmark
    if isinstance(architecture, str):
        cls = registry.load("architectures", architecture)
        make: Callable[[BenchmarkSpec], Architecture] = lambda spec: cls(spec, **model_options)  # noqa: E731
    else:
        make = architecture
    module = BenchmarkModule(data.spec, make, **options)
    data.require(module.required_encodings())
    return module, data
