"""The LightningModule: an architecture, a head for its benchmark, loss, metrics and optimizer."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pytorch_lightning.cli import OptimizerCallable
from torch import Tensor
from torch_geometric.data import Data
from torchmetrics import Metric

from graphbench.contracts.architecture import Architecture, NodeStep, PositionalEncoder, Representation
from graphbench.contracts.encoding import Encoding, add_encodings, check_encoded, declared_encodings, merge_encodings
from graphbench.contracts.pyg import batch_of, to_graph_batch
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.training import parts, targets, unread
from graphbench.training.arguments import check_options
from graphbench.training.distributed import broadcast_buffers, prepare_strategy, sum_over_ranks
from graphbench.training.hyperparameters import INSTANTIATOR, plain_arguments, rebuilding
from graphbench.training.learning import LearningModule, check_objects, make_architecture
from graphbench.training.lightning_internals import attached_trainer, average_floats_alone
from graphbench.training.optim import Schedule
from graphbench.training.starting import start_from
from graphbench.training.tasks import build_task
from graphbench.training.tasks.regression import Regression
from graphbench.training.tasks.rows import OUTPUT as OUTPUT
from graphbench.training.tasks.rows import SPREAD as SPREAD
from graphbench.training.tasks.rows import rows_of
from graphbench.training.tasks.scores import Scores
from graphbench.training.tasks.scores import SplitLoss as SplitLoss
from graphbench.training.tasks.scores import SplitScores as SplitScores


def adam_w(parameters: Any) -> torch.optim.Optimizer:
    """Create the default optimizer: AdamW with a learning rate of 1e-3 and otherwise torch's defaults."""
    return torch.optim.AdamW(parameters, lr=1e-3)


class BenchmarkModule(LearningModule):
    """Train any architecture on any benchmark.

    Args:
        spec: the benchmark's description (linked from the data on the command line).
        architecture: registered name and options of the model, or a callable `spec -> Architecture`.
        head: depth, width and pooling of the prediction head.
        optimizer: any torch optimizer with its options.
        schedule: how the learning rate changes.
        positional_encoding: a positional encoder, whose output is concatenated to the nodes' dense features: it works
            with every architecture that reads them.
        lr_scales: start of a parameter's name -> factor of the learning rate (`{positional_encoding: 10}`).
        standardize_targets: train regression on targets with zero mean and unit variance over the training split
            (default: true for regression); metrics and predictions stay in real units.
        compile: compile the architecture with torch.compile.
        init_from: checkpoint, run, folder of `graphbench export`, name of installed weights (`molecules-base`) or
            `hf:owner/name` from which to load weights whose names and shapes match, and outputs whose targets or
            classes have the same names; the log lists what was and was not loaded.
        freeze: names of parts that are not trained, as a list or separated by commas:
            `architecture.node_encoder,architecture.layers.0`; `*` matches any text. They get neither gradients nor
            weight decay, and their batch norms stay in evaluation mode.
        freeze_epochs: number of epochs after which these parts are trained like the others; by default never.
            `freeze: architecture` and `freeze_epochs: 5` train only the head for 5 epochs, then everything.
        learning_rates: part -> learning rate (`head=1e-3,architecture.layers.*=1e-4`, or a mapping), named as in
            `freeze`; the longest match wins, and overrides `lr_scales`. The schedule also multiplies these rates.
        loss: a loss that replaces the benchmark's: the dotted path of a class or function `(prediction, target)`, such
            as `torch.nn.SmoothL1Loss`, or a name: L1, MSE, Huber, Gaussian (learns a variance) or Quantile for
            regression, cross_entropy, weighted_cross_entropy or focal for classes, BCE or focal for labels. Each of
            several targets may have its own L1, MSE or Huber: `logS=Huber,pKa=L1`; others keep the benchmark's.
        metrics: further metrics: names, such as R2, Spearman, Pearson and MCC (an unknown name lists all), or class
            paths of torchmetrics.
        select_by: name of the metric that selects the best epoch, instead of the benchmark's.
        class_weights: weights of classes in the loss of a classification: a number for each class, or `balanced` for
            numbers inversely proportional to the training rows of each. For labels: a number for each, the weight of
            its 1s relative to its 0s, or `balanced` for equal sums. Only ratios count: they are scaled to a mean of 1
            over the training rows (of each label). Losses of all splits are weighted, metrics are not.
        quantiles: levels of the loss Quantile, which include 0.5 (the prediction); by default 0.05, 0.5 and 0.95.
        label_smoothing: s: a classification of C classes trains on `1 - s + s / C` for the label's class and `s / C`
            for the others, like torch's CrossEntropyLoss. Losses in evaluation and metrics use the original labels.
        matmul_precision: precision of float32 matrix products while a trainer runs, as in
            `torch.set_float32_matmul_precision`: `high` and `medium` are TF32 on GPUs that support it. By default
            torch's setting is kept, which is `highest` unless a program changed it.

    Raises:
        BadInput: the architecture cannot be used on this benchmark, or an option is invalid.
        UnknownName: there is no such loss or metric.
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
        standardize_targets: bool | None = None,
        compile: bool = False,  # noqa: A002 - the name users know
        init_from: str | None = None,
        freeze: str | list[str] | None = None,
        freeze_epochs: int | None = None,
        learning_rates: dict[str, float] | str | None = None,
        loss: str | None = None,
        metrics: Sequence[str | Metric] | None = None,
        select_by: str | None = None,
        class_weights: Literal["balanced"] | list[float] | None = None,
        quantiles: list[float] | None = None,
        label_smoothing: float = 0.0,
        matmul_precision: Literal["highest", "high", "medium"] | None = None,
    ) -> None:
        # First: at this point `locals()` contains only the arguments.
        arguments = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        check_objects(arguments)
        super().__init__()
        # Only plain values, so that the checkpoint can be read with `weights_only=True`.
        self.save_hyperparameters(plain_arguments(arguments) | {"_instantiator": INSTANTIATOR})
        self.positional_encoding = positional_encoding
        columns = 0 if positional_encoding is None else positional_encoding.dim  # added to the dense columns
        node = dataclasses.replace(spec.node, dense=spec.node.dense + columns)
        self.architecture = make_architecture(architecture, dataclasses.replace(spec, node=node))
        dim, edge_dim = self.architecture.dim, self.architecture.edge_dim
        choices = (loss, metrics or (), select_by, class_weights, quantiles, label_smoothing)
        self.task = build_task(spec, dim, head, *choices, edge_dim=edge_dim)
        # Not the argument: the task's specification has the chosen loss and metric.
        self.spec = self.task.spec
        self.init_from = init_from
        #: Undefined scores, with the reason, that have been logged.
        self.logged_undefined: set[tuple[str, str]] = set()
        #: Whether the features that the model does not read have been logged.
        self.logged_unread = False
        regression = isinstance(self.task, Regression)
        if standardize_targets and not regression:
            raise BadInput(f"standardize_targets is for regression; {spec.name} is {spec.task}.")
        self._standardizes_by_option = standardize_targets is not None
        self.standardize_targets = regression if standardize_targets is None else standardize_targets
        self.class_weights = class_weights
        self.compile_architecture = compile
        self.matmul_precision = matmul_precision
        self._matmul_precision_before: str | None = None
        self.scores = Scores(self.task)
        #: Whether steps of validation and test return what `predict_step` returns.
        self.keeps_predictions = False
        #: Whether `predict_step` also returns the head's output.
        self.predicts_outputs = False
        # Last: patterns of `freeze` and `learning_rates` name parameters of all parts.
        self.choose_learning(optimizer, schedule, lr_scales, learning_rates, freeze, freeze_epochs)

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]
        cls,
        checkpoint_path: str | Path,
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = True,
        trust: bool = False,
        **options: Any,
    ) -> BenchmarkModule:
        """Load the module of a checkpoint: rebuild it from its hyper-parameters, and load its weights.

        Arguments are Lightning's, except that `options` of the module also replace those in the checkpoint, and that
        `trust` imports any named class; else only those registered, imported or admitted by `graphbench.runs.trust`.

        Raises:
            BadInput: there is no such file, it does not say how its module was created, or names a class that may not
                be imported; or an option has the wrong type.
            UnknownName: there is no such option.
            CorruptData: the file is damaged.
        """
        from graphbench.runs.checkpoints import load_checkpoint

        check_options("load_from_checkpoint", cls, {name: one for name, one in options.items() if name != "spec"})
        # Plain values, since these are what a checkpoint contains and the parser reads.
        options |= plain_arguments({name: one for name, one in options.items() if dataclasses.is_dataclass(one)})
        with rebuilding(load_checkpoint(checkpoint_path), hparams_file, options, checkpoint_path, trust):
            return super().load_from_checkpoint(
                checkpoint_path, map_location, hparams_file, strict, weights_only, **options
            )

    @property
    def hparams_initial(self) -> Any:
        """Return the options for trackers, with the benchmark's name instead of its specification."""
        options = dict(super().hparams_initial) | {"spec": self.spec.name}
        return {name: value for name, value in options.items() if name != "_instantiator"}

    def required_encodings(self) -> tuple[Encoding, ...]:
        """List the encodings that the data must prepare for this model."""
        positional = () if self.positional_encoding is None else declared_encodings(self.positional_encoding)
        return merge_encodings((*self.architecture.required_encodings(), *positional))

    # -- setting up ----------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        """Learn from targets and load starting weights at the start of a fit; prepare the strategy; compile."""
        trainer = attached_trainer(self)
        self.scores.reset()  # an interrupted loop leaves its rows behind
        targets.check_data(self)
        if stage == "fit" and self.init_from and not getattr(trainer, "ckpt_path", None):  # else a run resumes
            start_from(self, self.init_from)
        if stage == "fit":
            targets.learn(self)  # after loading weights of another run, whose targets have other moments
            targets.check_selection(self)
            targets.check_metrics(self)
        if trainer is not None:
            average_floats_alone(trainer)  # callbacks are set up before modules
            prepare_strategy(self, lambda batch: self.task.loss(self(batch), batch), trainer, stage)
        if self.matmul_precision is not None:
            # Not `torch.backends.cuda.matmul.fp32_precision`: after setting it `get_float32_matmul_precision`, which
            # Lightning calls on every GPU with TF32, raises an error (torch 2.13, Lightning 2.6).
            self._matmul_precision_before = torch.get_float32_matmul_precision()
            torch.set_float32_matmul_precision(self.matmul_precision)
        if self.compile_architecture and self.architecture._compiled_call_impl is None:
            self.architecture.compile(dynamic=True)

    def teardown(self, stage: str) -> None:
        """Restore torch's precision of matrix products."""
        if self._matmul_precision_before is not None:
            torch.set_float32_matmul_precision(self._matmul_precision_before)
            self._matmul_precision_before = None

    def on_fit_start(self) -> None:
        """Reset the scores, since Lightning's finders train for some steps."""
        self.scores.of("train").reset()
        super().on_fit_start()

    # -- forward -------------------------------------------------------------------------------------------------

    def represent(self, batch: GraphBatch) -> Representation:
        """Run the positional encoding and the architecture, unless the batch has nodes that they have represented."""
        if "represented" in batch:
            return Representation(node=batch.represented)
        return self.architecture(self._add_position(batch))

    def _add_position(self, batch: GraphBatch) -> GraphBatch:
        """Concatenate the positional encoding to the dense features."""
        if self.positional_encoding is None:
            return batch
        position = self.positional_encoding(batch)
        # A shallow copy: the batch may be used again, and `clone` would copy every tensor in each step.
        batch = copy.copy(batch)
        dense = batch.get("x_dense")
        batch.x_dense = position if dense is None else torch.cat((dense, position), 1)
        return batch

    def node_steps(self) -> list[NodeStep]:
        """Return the steps of `represent` over the nodes of one large graph, see `Architecture.node_steps`.

        Raises:
            BadInput: the architecture, or a positional encoder, reads more than a node and its incoming edges.
        """
        steps = self.architecture.node_steps()
        encoders = [part for part in self.modules() if isinstance(part, PositionalEncoder) and not part.by_node]
        if not steps or encoders:
            name = type(encoders[0] if encoders else self.architecture).__name__
            raise BadInput(
                f"data.eval_sampler layers: {name} has no steps from "
                "nodes to nodes (node_steps); attention among all nodes and states of edges have none. Use "
                "data.eval_sampler full, or neighbors, with which attention sees only the nodes of a batch."
            )

        def precomputed(step: NodeStep) -> NodeStep:  # on a batch with the fields of `Architecture.precompute`
            return lambda batch, state: step(self.architecture.precomputed(batch), state)

        first, *others = map(precomputed, steps)
        return [lambda batch, state: first(self._add_position(batch), state), *others]

    def forward(self, batch: Data) -> Tensor:
        """Return the raw outputs of the head, a row for each graph, node or edge, depending on the task.

        Args:
            batch: of the benchmark; or a PyG `Batch` or `Data` with the fields of `add_encodings(batch, module)`.

        Raises:
            BadInput: features or encodings of the model are missing.
        """
        batch = self.read_batch(batch)
        return self.task(self.represent(batch), batch)

    def read_batch(self, batch: Data) -> GraphBatch:
        """Return a PyG batch as a `GraphBatch`, checked for the fields that the model reads."""
        if isinstance(batch, GraphBatch):
            return batch
        graphs = to_graph_batch(batch, self.spec)
        check_encoded(graphs, self)
        return graphs

    @torch.no_grad()
    def predict(self, batch: Data | Sequence[Data]) -> Tensor:
        """Predict in the units of the targets, or probabilities: a row for each graph, node or edge `[rows, C]`.

        It runs in evaluation mode and without gradients. `module(batch)` returns the inputs of the loss instead, which
        are standardised if targets are.

        Args:
            batch: as for `forward`; or a list of PyG graphs, whose encodings are computed here.
        """
        if not isinstance(batch, Data):
            batch = add_encodings(batch_of(batch), self)
        batch = self.read_batch(batch).to(self.device)
        with parts.evaluating(self):
            return self.task.predict(self(batch), batch)[0]

    # -- steps ---------------------------------------------------------------------------------------------------

    def evaluate(self, batch: Data, split: str) -> Tensor:
        """Run a forward pass on a batch and add it to the scores of `split`; return the batch's loss."""
        batch = self.read_batch(batch)
        return self.task.combine(*self.scores.of(split).update(self.task, self(batch), batch))

    @property
    def train_scores(self) -> SplitScores:
        """Return the metrics of the training split, which checkpoints within an epoch contain."""
        return self.scores.of("train")

    def training_step(self, batch: Data, batch_idx: int) -> Tensor:
        """Compute the loss of a batch, and add the batch to the training metrics, in training mode.

        Several processes train on the loss of all their rows, like one process on the same graphs. Strategies average
        gradients, so on W processes the loss of process r is `W * combine(sums_r, sum of counts)`. The logged loss
        does not include the penalty of a representation.
        """
        batch = self.read_batch(batch)
        self.task.step = self.global_step
        with unread.warn_of_unread(self, batch):
            representation = self.represent(batch)
            sums, counts = self.scores.of("train").update(self.task, self.task(representation, batch), batch)
        # Detached: `all_reduce` has no gradient, and DDP averages the gradients of the processes anyway.
        all_sums, all_counts, num_ranks = sum_over_ranks(sums.detach(), counts)
        epoch = torch.full((), self.epoch_number, device=self.device)  # copying a float would force a sync
        logged = {"train/loss_step": self.task.combine(all_sums, all_counts), "epoch": epoch}
        self.log_dict(logged, batch_size=batch.num_graphs)
        # `combine` is linear in the sums, so the average over W ranks of W times their shares is the whole loss.
        loss = num_ranks * self.task.combine(sums, all_counts)
        return loss if representation.penalty is None else loss + representation.penalty

    def validation_step(self, batch: Data, batch_idx: int) -> dict[str, Tensor] | None:
        """Add a batch to the validation metrics; see `keeps_predictions`."""
        return self._evaluation_step(batch, "val")

    def test_step(self, batch: Data, batch_idx: int) -> dict[str, Tensor] | None:
        """Add a batch to the test metrics; see `keeps_predictions`."""
        return self._evaluation_step(batch, "test")

    def _evaluation_step(self, batch: Data, split: str) -> dict[str, Tensor] | None:
        batch = self.read_batch(batch)
        output = self(batch)
        self.scores.of(split).update(self.task, output, batch)
        return self._prediction_columns(output, batch) if self.keeps_predictions else None

    def predict_step(self, batch: Data, batch_idx: int) -> dict[str, Tensor]:
        """Return predictions, targets and the rows they belong to (see `rows_of`), on the CPU."""
        batch = self.read_batch(batch)
        return self._prediction_columns(self(batch), batch)

    def _prediction_columns(self, output: Tensor, batch: GraphBatch) -> dict[str, Tensor]:
        predictions, targets = self.task.predict(output, batch)
        columns = rows_of(self.task.level, batch) | {"prediction": predictions, "target": targets}
        columns |= {f"{SPREAD}{name}": values for name, values in self.task.named_spreads(output).items()}
        columns |= {OUTPUT: output[:, : self.spec.output_dim]} if self.predicts_outputs else {}
        if "asked" in batch:  # part of one graph: its other nodes are neighbours, which other batches predict
            columns = {name: values[batch.asked] for name, values in columns.items()}
        return {name: values.cpu() for name, values in columns.items()}

    @property
    def epoch_number(self) -> float:
        """Return the number of the epoch, from 1, as shown by progress bar, log lines and loggers."""
        return float(self.current_epoch + 1)

    def on_train_epoch_end(self) -> None:
        """Log the scores of the training split."""
        self.log_dict(targets.finish(self, "train")[0] | {"epoch": torch.tensor(self.epoch_number)})

    def on_validation_start(self) -> None:
        """Broadcast buffers, so that all ranks score the checkpoint's model; DDP does this itself, FSDP does not."""
        broadcast_buffers(self)

    def on_validation_epoch_end(self) -> None:
        """Log the scores of the validation split."""
        scores, of_targets = targets.finish(self, "val")
        self.log_dict(scores, prog_bar=True)
        self.log_dict(of_targets)
        if self.trainer.state.fn == "fit":  # a separate validation belongs to no epoch
            self.log("epoch", self.epoch_number)
            if not self.trainer.sanity_checking:
                self.follow(scores)

    def on_test_epoch_end(self) -> None:
        """Log the scores of the test split."""
        scores, of_targets = targets.finish(self, "test")
        self.log_dict(scores | of_targets)
