"""Predict and embed inputs with a trained model, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import zip_longest
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.contracts import Benchmark, Column, GraphBatch, GraphTable, InputPart
from graphbench.contracts.benchmark import PART_ROWS
from graphbench.contracts.spec import Level as TaskLevel
from graphbench.contracts.table import EDGE, GRAPH
from graphbench.contracts.table import NODE as NODE_AXIS
from graphbench.data.columns import from_log10, to_log10
from graphbench.data.encode import encoded_here, spans_in_memory
from graphbench.data.sampler import SizeBucketSampler
from graphbench.errors import BadInput, GraphbenchError, check_choice, check_range
from graphbench.inference.answers import Answers, answer_table
from graphbench.inference.columns import prediction_columns
from graphbench.inference.training import TrainingFacts
from graphbench.training.module import BenchmarkModule
from graphbench.training.parts import evaluating

Level = Literal["graph", "node"]
Quantity = Literal["prediction", "output"]
#: Kinds of tasks that cannot predict new inputs -> why.
_UNPREDICTABLE = {
    "ranking": "it ranks pairs of nodes that are known",
    "recovery": "its predictions are scaled by the truth",
}


class Predictor:
    """Predict inputs with a trained module, as its benchmark reads them; `graphbench.load` creates one from a run.

    The prediction for an input does not depend on the other inputs, up to rounding. `data` need not be open.

    Args:
        module: with its trained weights.
        data: the benchmark it was trained on, for its features and names.
        facts: sizes and feature values of training, to compare inputs with; None if unknown.
        trainer: device and precision.
        batch_size: graphs per batch; that of the benchmark's evaluation if None.

    Raises:
        BadInput: the batch size is not a positive integer.
    """

    def __init__(
        self,
        module: BenchmarkModule,
        data: Benchmark,
        facts: TrainingFacts | None,
        trainer: pl.Trainer,
        batch_size: int | None = None,
    ) -> None:
        size = getattr(data, "eval_batch_size", 32) if batch_size is None else batch_size
        check_range("batch_size", size, at_least=1, whole=True)
        data.require(module.required_encodings())
        self.data, self.facts, self.batch_size = data, facts, size
        self.device = trainer.strategy.root_device
        self._precision = trainer.precision_plugin
        self.module = cast(BenchmarkModule, self._precision.convert_module(module.eval()).to(self.device))

    # -- Python --------------------------------------------------------------------------------------------------

    def predict(self, inputs: Any) -> pd.DataFrame:
        """Predict inputs: a row for each, or for each of its nodes or edges, depending on the task.

        Args:
            inputs: one or several inputs that the benchmark accepts: SMILES and RDKit molecules, PyG's `Data`, networkx
                graphs.

        Returns:
            `node` for a task on nodes, `source` and `destination` for one on edges; `prediction_<target>` in real
            units, and for classes `probability_<class>`; `outside_training` names what of the input did not occur in
            training, and `problem` why there is no prediction, else "". The index is the number of the input, or its
            label in a pandas column; all rows of one graph share it.

        Raises:
            BadInput: the benchmark does not accept such inputs.
        """
        return join_frames(self.predict_parts(self.data.read_objects(as_sequence(inputs))), inputs)

    def embed(self, inputs: Any, level: Level = "graph") -> pd.DataFrame:
        """Embed inputs: columns `embedding_0`, ... for every graph or every node, indexed as in `predict`.

        Raises:
            BadInput: as for `predict`.
        """
        return join_frames(self.embed_parts(self.data.read_objects(as_sequence(inputs)), level), inputs)

    # -- parts ---------------------------------------------------------------------------------------------------

    def predict_parts(self, parts: Iterable[InputPart]) -> Iterator[pd.DataFrame]:
        """Predict part by part, for inputs larger than memory; see `predict`.

        Raises:
            BadInput: the task ranks pairs or recovers maps; the input has a column that predictions need.
        """
        self.check_task()
        return (answer_table(part, self.answers(part), self.columns, self.level) for part in parts)

    def check_task(self) -> None:
        """Refuse tasks that cannot predict new inputs.

        Raises:
            BadInput: the task is one of them; the message names it.
        """
        spec = self.data.spec
        if spec.kind in _UNPREDICTABLE:
            raise BadInput(
                f"{spec.name} cannot predict new inputs: {spec.task} is its task, and {_UNPREDICTABLE[spec.kind]}."
            )

    @property
    def level(self) -> TaskLevel:
        """Return whether graphs, nodes or edges are predicted."""
        return self.data.spec.level or "graph"

    @property
    def classes(self) -> Sequence[str]:
        """Return the names of the classes, in the order of the outputs; none for other tasks."""
        return (self.facts.classes if self.facts else ()) or self.data.class_labels()

    def columns(self, values: np.ndarray, present: np.ndarray) -> dict[str, Any]:
        """Return columns of predictions `[rows, width]`, see `prediction_columns`, and of the task's spreads."""
        return prediction_columns(self.data, values, self.classes, present) | self.spread_columns(values)

    @property
    def predicted(self) -> int:
        """Return how many columns of `answers` are predictions; the task's spreads follow them."""
        spec = self.data.spec
        return spec.num_targets if spec.num_classes is None else spec.num_classes

    def spread_columns(self, values: np.ndarray) -> dict[str, Any]:
        """Return `<target>_std`, or `<target>_q0.05` and so on, for losses that learn them; see `Task.spreads`."""
        names = [f"{target}_{name}" for target in self.data.target_labels() for name in self.module.task.spread_names]
        return {name: values[:, self.predicted + number] for number, name in enumerate(names)}

    def pooled(self, values: np.ndarray) -> np.ndarray:
        """Pool `answers` of several models `[models, rows, width]` to `[rows, width]`.

        Use the mean, geometric for targets in log10 and their quantiles; see `Spread.pooled` for others.
        """
        spread, targets = getattr(self.module.task, "spread", None), self.module.spec.log10_targets
        logged = (*targets, *np.repeat(targets, len(self.module.task.spread_names)).tolist())
        values = to_log10(values.astype(np.float64), logged)
        pooled = values.mean(0) if spread is None else spread.pooled(values, self.predicted)
        return from_log10(np.asarray(pooled), logged)

    def embed_parts(self, parts: Iterable[InputPart], level: Level = "graph") -> Iterator[pd.DataFrame]:
        """Embed part by part, see `embed`."""
        check_choice("level", level, ("graph", "node"))

        def answer(batch: GraphBatch) -> Tensor:
            representation = self.module.represent(batch)
            if level == "node":
                return representation.node
            if representation.graph is not None:
                return representation.graph
            # Pool as the head does, so that embeddings of graphs are what it predicts from.
            pooling = getattr(getattr(self.module.task, "head", None), "pooling", None)
            if pooling is None:
                raise BadInput(
                    f"{self.data.spec.name}: its task has no representation of whole graphs. Use --level node."
                )
            pooled: Tensor = pooling(representation.node, batch.batch, batch.num_graphs)
            return pooled

        def columns(values: np.ndarray, present: np.ndarray) -> dict[str, Any]:
            return {f"embedding_{number}": values[:, number] for number in range(values.shape[1])}

        width = self.module.architecture.dim
        return (answer_table(part, self._answer(part, answer, width, level), columns, level) for part in parts)

    def answers(self, part: InputPart, quantity: Quantity = "prediction") -> Answers:
        """Return predictions for the rows of a part in real units or probabilities, followed by the task's spreads.

        The quantity "output" returns raw outputs of the head, such as logits.
        """
        task = self.module.task

        def predicted(batch: GraphBatch) -> Tensor:
            output = self.module(batch)
            return torch.cat([task.predict(output, batch)[0], task.spreads(output)], dim=1)

        def raw(batch: GraphBatch) -> Tensor:
            output: Tensor = self.module(batch)
            return output[:, : self.data.spec.output_dim]

        if quantity == "output":
            return self._answer(part, raw, self.data.spec.output_dim, self.level)
        width = self.predicted + self.data.spec.num_targets * len(task.spread_names)
        return self._answer(part, predicted, width, self.level)

    def _answer(self, part: InputPart, answer: Callable[[GraphBatch], Tensor], width: int, level: TaskLevel) -> Answers:
        encodings = missing_encodings(part.table, self.data)
        problems, outside, rows = dict(part.problems), dict[int, str](), list[int]()
        values, counts = [], []
        for start, stop in spans_in_memory(part.table, encodings):
            table, encoded, failed = encoded_here(part.table.slice(start, stop), encodings, self.data.spec.name)
            here = [part.rows[start + graph] for graph in encoded]
            answered, missing = self._values(table, answer, width, level)
            sizes = table.lengths(axis_of(level)).numpy()
            missing |= dict.fromkeys(np.flatnonzero(sizes == 0).tolist(), f"the graph has no {level}s")
            problems |= {part.rows[start + graph]: why for graph, why in failed.items()}
            problems |= {here[graph]: why for graph, why in missing.items()}
            if self.facts is not None:
                outside |= zip(here, self.facts.outside(table, self.data), strict=True)
            rows += here
            values.append(answered)
            counts.append(sizes)
        answers = Answers(np.concatenate(values), rows, np.concatenate(counts), {}, self._remarks(part, outside))
        answers = answers.only([row for row in rows if row not in problems])
        answers.problems = problems
        return answers

    def _remarks(self, part: InputPart, outside: dict[int, str]) -> list[str] | None:
        """Return what of each row did not occur in training, and the remarks of the part; None if unknown."""
        notes = [] if self.facts is None else [outside]
        notes += [] if part.remarks is None else [part.remarks]
        if not notes:
            return None
        return ["; ".join(filter(None, (one.get(row) for one in notes))) for row in range(len(part.frame))]

    def _values(
        self, table: GraphTable, answer: Callable[[GraphBatch], Tensor], width: int, level: TaskLevel
    ) -> tuple[np.ndarray, dict[int, str]]:
        """Run the model over a table in batches of graphs of similar sizes.

        Returns:
            Values of graphs, nodes or edges `[rows, width]` in the order of the table; and graph -> why it has none.
        """
        axis = torch.arange(len(table) + 1) if level == "graph" else table.ptr[axis_of(level)]
        output = np.full((int(axis[-1]), width), np.nan, dtype=np.float32)
        missing: dict[int, str] = {}
        if not len(table):
            return output, missing
        table = _with_unknown_targets(table, self.data)
        waiting = list(SizeBucketSampler(table.num_nodes, self.batch_size, shuffle=False))[::-1]  # a stack
        # The module may be in training mode again: dropout would make answers random, and batch norms would make them
        # depend on the rest of the batch.
        with torch.inference_mode(), evaluating(self.module):
            while waiting:
                graphs = waiting.pop()
                try:
                    values = self._forward(table.batch(graphs), answer)
                except (MemoryError, RuntimeError) as error:
                    if not _is_out_of_memory(error):
                        raise
                    if len(graphs) > 1:
                        # Halved until it fits, since the memory of a batch is only known by trying.
                        waiting += [graphs[len(graphs) // 2 :], graphs[: len(graphs) // 2]]
                    else:
                        size = int(table.num_nodes[graphs[0]])
                        missing[graphs[0]] = f"too large for the memory of {self.device}: {size} nodes"
                    continue
                places = [np.arange(int(axis[graph]), int(axis[graph + 1])) for graph in graphs]
                # float64 as soon as an answer of the model is
                output = output.astype(np.promote_types(output.dtype, values.dtype), copy=False)
                output[np.concatenate(places)] = values
                for graph, place in zip(graphs, places, strict=True):
                    if not np.isfinite(output[place]).all():
                        missing[graph] = "the model's answer is not a finite number"
        return output, missing

    def _forward(self, batch: GraphBatch, answer: Callable[[GraphBatch], Tensor]) -> np.ndarray:
        """Compute the values of one batch `[rows, width]` with Lightning's hooks and precision conversion."""
        batch = self._precision.convert_input(on_device(self.data, batch, self.device))
        context: AbstractContextManager[None] = self._precision.predict_step_context()
        with context:
            values = answer(batch)
            return (values if values.dtype == torch.float64 else values.float()).cpu().numpy()


def _is_out_of_memory(error: Exception) -> bool:
    # On a CPU torch raises a plain RuntimeError.
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)


def on_device(data: Benchmark, batch: GraphBatch, device: torch.device) -> GraphBatch:
    """Move a batch to a device with Lightning's hooks, which only its loops call."""
    batch = data.transfer_batch_to_device(data.on_before_batch_transfer(batch, 0), device, 0)
    ready: GraphBatch = data.on_after_batch_transfer(batch, 0)
    return ready


def parts_of_split(data: Benchmark, split: str, size: int = PART_ROWS) -> Iterator[InputPart]:
    """Yield the graphs of an open benchmark's split as an input, in order, with their names in the column `id`."""
    data.require_rows(split)
    table, ids = data.tables[split], data.ids(split)
    for start in range(0, len(table), size):
        part = table.slice(start, min(start + size, len(table)))
        assert part.graph_ids is not None
        names = [ids[graph] for graph in part.graph_ids.tolist()]
        yield InputPart(pd.DataFrame({"id": names}), part, list(range(len(part))))


def readers_of(members: Sequence[Predictor]) -> tuple[list[Predictor], list[int]]:
    """Return one model per input recipe, and for each model the index of the one that reads for it."""
    readers: list[Predictor] = []
    recipes: list[tuple[Any, ...]] = []
    places = []
    for member in members:
        # A benchmark without a recipe does not share its reading.
        recipe = member.data.input_recipe() or (id(member),)
        if recipe not in recipes:
            readers.append(member)
            recipes.append(recipe)
        places.append(recipes.index(recipe))
    return readers, places


def side_by_side(readings: Sequence[Iterator[InputPart]]) -> Iterator[list[InputPart]]:
    """Zip the parts of one input as several models read it; refuse an input that changes in the meantime."""
    for views in zip_longest(*readings):
        if len({-1 if view is None else len(view.frame) for view in views}) > 1:
            raise GraphbenchError("The models of the ensemble read different rows from one input.")
        yield list(views)


def missing_encodings(table: GraphTable, data: Benchmark) -> list[Any]:
    """List the encodings that a table does not have yet."""
    return [encoding for encoding in data.encodings if not set(encoding.layout) <= set(table.columns)]


def _with_unknown_targets(table: GraphTable, data: Benchmark) -> GraphTable:
    """Add unknown targets to a table without targets: tasks return targets with predictions."""
    if "y" in table.columns:
        return table
    spec = data.spec
    axis = axis_of(spec.level or GRAPH)
    rows = int(table.lengths(axis).sum())
    unknown = torch.full((rows, spec.num_targets), torch.nan)
    y = torch.zeros(rows, 1, dtype=torch.int64) if spec.num_classes is not None else unknown
    return table.with_columns({"y": y}, {"y": Column(axis)})


def axis_of(level: str) -> str:
    """Return the axis of a level."""
    return {"node": NODE_AXIS, "edge": EDGE}.get(level, GRAPH)


def targets_of(part: InputPart, answers: Answers, level: str) -> np.ndarray:
    """Return the targets of the answered rows, or of their nodes or edges, by level `[values, T]`."""
    counts = part.table.lengths(axis_of(level)).numpy()
    answered = np.isin(part.rows, answers.rows)
    y: np.ndarray = part.table.columns["y"].numpy().reshape(int(counts.sum()), -1)
    return y[np.repeat(answered, counts)]


def as_sequence(inputs: Any) -> Sequence[Any]:
    """Return inputs as a sequence, a single one as a list; refuse a table, which iterates over its column names."""
    if isinstance(inputs, (pd.DataFrame, dict)):
        kind = type(inputs).__name__
        raise BadInput(f"predict and embed need a list of inputs, such as frame['smiles'], not a whole {kind}.")
    if isinstance(inputs, (str, Data)) or hasattr(inputs, "number_of_nodes") or not isinstance(inputs, Iterable):
        return [inputs]
    dimensions = getattr(inputs, "ndim", 1)
    if dimensions == 2:  # an array with a row per point of one cloud
        return [inputs]
    values = [np.asarray(inputs).item()] if dimensions == 0 else inputs
    # Empty cells of a table are NA or NaN in its columns.
    return [None if one is pd.NA or (isinstance(one, float) and one != one) else one for one in values]


def join_frames(frames: Iterable[pd.DataFrame], inputs: Any) -> pd.DataFrame:
    """Join the tables of parts, indexed by the input's number, or its label in a pandas column."""
    tables, first = [], 0
    for frame in frames:  # each is indexed from 0
        tables.append(frame.set_axis(frame.index + first))
        first = int(tables[-1].index[-1]) + 1
    if not tables:
        raise BadInput("There is no input to predict: the list is empty.")
    table = pd.concat(tables)
    return table.set_axis(inputs.index.take(table.index)) if isinstance(inputs, pd.Series) else table
