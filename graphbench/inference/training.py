"""Facts about a run's training graphs, and a check for graphs outside of their range."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor

from graphbench.contracts import Benchmark, BenchmarkSpec, Features, GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import CorruptData
from graphbench.runs import RunFolder

#: Rows of a column to process at once: columns may be memory-mapped.
_ROWS = 1 << 20
#: Features of a graph that are named as outside the range of training.
_MOST = 10


@dataclass
class TrainingFacts:
    """Sizes and feature values of the training graphs.

    Args:
        nodes: fewest and most nodes of a graph.
        categories: column of the batch (`x`, `edge_attr`) -> the values that occur in each of its columns, ascending.
        ranges: column of the batch (`x_dense`, `edge_dense`) -> smallest and largest value of each of its columns.
        classes: names of the classes, in the order of the model's outputs; empty for other tasks.
        shares: column of the batch (`x`, `edge_attr`) -> the share of rows with each value, for each of its columns:
            the mean of the one-hot features. Empty for runs of older versions, which did not store it.
        means: column of the batch (`x_dense`, `pos`, `edge_dense`) -> mean of each of its columns; as `shares`.
    """

    nodes: tuple[int, int]
    categories: dict[str, list[list[int]]] = field(default_factory=dict)
    ranges: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    shares: dict[str, list[list[float]]] = field(default_factory=dict)
    means: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def of(cls, table: GraphTable, data: Benchmark) -> TrainingFacts:
        """Return the facts of a training table."""
        sizes, spec = table.num_nodes, data.spec
        facts = cls((int(sizes.min()), int(sizes.max())))
        for name, _, features in _categorical(spec):
            if (values := _column(table, name, len(features.vocabularies))) is not None:
                counts = _counts_of(values, features.vocabularies)
                facts.categories[name] = [count.nonzero()[:, 0].tolist() for count in counts]
                facts.shares[name] = [(count.double() / max(len(values), 1)).tolist() for count in counts]
        for name, _, features in _dense(spec):
            if (values := _column(table, name, features.dense)) is not None:
                facts.ranges[name] = _ranges_of(values, features.dense)
        for name, width in _measured(spec):
            if (values := _column(table, name, width)) is not None:
                facts.means[name] = _means_of(values)
        if spec.num_classes is not None:
            facts.classes = tuple(data.class_labels())
        return facts

    @classmethod
    def read(cls, run: RunFolder) -> TrainingFacts | None:
        """Return the facts that a fit stored in its folder; None if it stored none.

        Raises:
            CorruptData: the file was altered or damaged.
        """
        if not run.training.is_file():
            return None
        try:
            facts: dict[str, Any] = load_json(run.training)
            low, high = facts["nodes"]
            shares, means = facts.get("shares", {}), facts.get("means", {})  # missing in runs of older versions
            return cls(
                (int(low), int(high)),
                {name: [list(map(int, column)) for column in columns] for name, columns in facts["categories"].items()},
                {name: [(float(a), float(b)) for a, b in columns] for name, columns in facts["ranges"].items()},
                tuple(map(str, facts["classes"])),
                {name: [list(map(float, column)) for column in columns] for name, columns in shares.items()},
                {name: list(map(float, columns)) for name, columns in means.items()},
            )
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptData(
                f"{run.training} cannot be read ({type(error).__name__}: {error}). Remove it to continue without "
                "knowing which inputs are unlike the training graphs."
            ) from error

    @property
    def has_means(self) -> bool:
        """Return whether shares and means are known; runs of older versions did not store them."""
        return bool(self.shares or self.means)

    def write(self, run: RunFolder) -> None:
        """Store them in the folder of a run."""
        write_text(run.training, json.dumps(asdict(self), indent=1) + "\n")

    def joined(self, other: TrainingFacts) -> TrainingFacts:
        """Merge the facts of two trainings; shares and means are those of `other`, the later one."""
        pairs = {name: zip(columns, other.categories[name], strict=True) for name, columns in self.categories.items()}
        bounds = {name: zip(columns, other.ranges[name], strict=True) for name, columns in self.ranges.items()}
        return TrainingFacts(
            (min(self.nodes[0], other.nodes[0]), max(self.nodes[1], other.nodes[1])),
            {name: [sorted({*a, *b}) for a, b in columns] for name, columns in pairs.items()},
            {name: [(min(a[0], b[0]), max(a[1], b[1])) for a, b in columns] for name, columns in bounds.items()},
            other.classes,
            other.shares,
            other.means,
        )

    def outside(self, table: GraphTable, data: Benchmark) -> list[str]:
        """Describe what of each graph did not occur in training; "" for graphs like the training graphs.

        Raises:
            CorruptData: the facts have columns other than the specification's.
        """
        self.check_columns(data.spec)
        remarks: list[dict[str, None]] = [{} for _ in range(len(table))]  # as ordered sets
        spec = data.spec
        for name, axis, features in _categorical(spec):
            width = len(features.vocabularies)
            columns = _column(table, name, width) if name in self.categories else None
            if columns is None:
                continue
            for number, size in enumerate(features.vocabularies):
                values = columns[:, number].to(torch.int64)
                seen = torch.zeros(size, dtype=torch.bool)
                seen[self.categories[name][number]] = True
                label, rows = _label(features, number), (~seen[values]).nonzero()[:, 0]
                for place in _distinct(_graphs_of(table, axis, rows) * size + values[rows]):
                    remarks[place // size][data.value_words(label, place % size)] = None
        for name, axis, features in _dense(spec):
            columns = _column(table, name, features.dense)
            if columns is None:
                continue
            for number, (low, high) in enumerate(self.ranges.get(name, ())):
                column, label = columns[:, number].float(), _label(features, len(features.vocabularies) + number)
                rows = ((column < low) | (column > high)).nonzero()[:, 0]
                for graph in _distinct(_graphs_of(table, axis, rows)):
                    words = f"outside {low:.4g} to {high:.4g}" if low <= high else "had no values in training"
                    remarks[graph][f"{label} {words}"] = None
        remarks = [_shortened(words) for words in remarks]
        unit, (fewest, most) = "atom" if spec.molecules else "node", self.nodes
        for graph, count in enumerate(table.num_nodes.tolist()):
            if not fewest <= count <= most:
                bound = f"at most {most}" if count > most else f"at least {fewest}"
                remarks[graph][f"{count} {unit}{'s' if count != 1 else ''}, training had {bound}"] = None
        return ["; ".join(words) for words in remarks]

    def check_columns(self, spec: BenchmarkSpec) -> None:
        """Compare the facts with a specification.

        Raises:
            CorruptData: they have columns other than its own.
        """
        vocabularies = {name: features.vocabularies for name, _, features in _categorical(spec)}
        widths = {name: features.dense for name, _, features in _dense(spec)}
        measured = dict(_measured(spec))

        def within(columns: list[list[int]], sizes: tuple[int, ...]) -> bool:
            pairs = zip(columns, sizes, strict=False)
            return len(columns) == len(sizes) and all(0 <= value < size for values, size in pairs for value in values)

        fits = (
            all(within(columns, vocabularies.get(name, ())) for name, columns in self.categories.items())
            and all(len(columns) == widths.get(name) for name, columns in self.ranges.items())
            and all(tuple(map(len, columns)) == vocabularies.get(name) for name, columns in self.shares.items())
            and all(len(columns) == measured.get(name) for name, columns in self.means.items())
        )
        if not fits:
            raise CorruptData(
                f"The run's training.json has features unknown to {spec.name}. Remove it to continue without "
                "knowing which inputs are unlike the training graphs."
            )


class RecordTraining(pl.Callback):
    """Write the facts of the training graphs into the folder of a run, so that reading them needs no data.

    A run continued with other data also keeps its earlier facts.

    Args:
        run: the folder.
        fresh: whether the run is new; else it was trained before.
    """

    def __init__(self, run: RunFolder, fresh: bool) -> None:
        self.run, self.fresh = run, fresh

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Write the facts once the data are open."""
        data: Any = getattr(trainer, "datamodule", None)
        table = getattr(data, "tables", {}).get("train")
        if table is None or not trainer.is_global_zero:
            return
        facts = TrainingFacts.of(table, data)
        if not self.fresh and (before := TrainingFacts.read(self.run)) is not None:
            try:
                facts = before.joined(facts)
            except (LookupError, ValueError) as error:
                raise CorruptData(
                    f"{self.run.training} has columns other than the data's. Remove it to have it rewritten."
                ) from error
        facts.write(self.run)


def _categorical(spec: BenchmarkSpec) -> list[tuple[str, str, Features]]:
    """Return (column, axis, features) of what has categories."""
    both = (("x", NODE, spec.node), ("edge_attr", EDGE, spec.edge))
    return [one for one in both if one[2].vocabularies]


def _dense(spec: BenchmarkSpec) -> list[tuple[str, str, Features]]:
    both = (("x_dense", NODE, spec.node), ("edge_dense", EDGE, spec.edge))
    return [one for one in both if one[2].dense]


def _measured(spec: BenchmarkSpec) -> list[tuple[str, int]]:
    """Return (column, width) of what has means."""
    widths = (("x_dense", spec.node.dense), ("pos", spec.coordinates), ("edge_dense", spec.edge.dense))
    return [one for one in widths if one[1]]


def _column(table: GraphTable, name: str, width: int) -> Tensor | None:
    """Return a column as `[rows, width]`; None if the table creates it only with a batch."""
    values = table.columns.get(name)
    if values is None:
        return None
    values = values[:, None] if values.dim() == 1 else values
    return values if values.shape[1] == width else None


def _label(features: Features, number: int) -> str:
    return features.names[number] if features.names else f"feature {number}"


def _shortened(words: dict[str, None]) -> dict[str, None]:
    """Keep the first words: every node of a large graph has the same ones, perhaps of hundreds of features."""
    more = len(words) - _MOST
    return words if more <= 0 else dict.fromkeys([*islice(words, _MOST), f"{more} more feature{'s' * (more > 1)}"])


def _graphs_of(table: GraphTable, axis: str, rows: Tensor) -> Tensor:
    # right=True: graphs without a row share their pointer with the next one, which has the row.
    return torch.searchsorted(table.ptr[axis], rows, right=True) - 1


def _distinct(numbers: Tensor) -> list[int]:
    """Return each number once, in order of first occurrence: a large graph has one for each of its nodes."""
    firsts = np.sort(np.unique(numbers.numpy(), return_index=True)[1])
    distinct: list[int] = numbers[torch.from_numpy(firsts)].tolist()
    return distinct


def _counts_of(values: Tensor, vocabularies: tuple[int, ...]) -> list[Tensor]:
    """Count how often each value occurs, int64 `[size]` for each column of `[rows, columns]`."""
    counts = [torch.zeros(size, dtype=torch.int64) for size in vocabularies]
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS].to(torch.int64)
        for number, count in enumerate(counts):
            count += torch.bincount(part[:, number], minlength=len(count))
    return counts


def _means_of(values: Tensor) -> list[float]:
    """Return the mean of each column `[rows, columns]` over rows with finite numbers; 0 without any."""
    # In float64: a sum of millions of rows in float32 stops growing.
    total, count = torch.zeros(2, values.shape[1], dtype=torch.float64)
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS].double()
        total += part.nan_to_num(0.0, 0.0, 0.0).sum(0)
        count += part.isfinite().sum(0)
    means: list[float] = (total / count.clamp(min=1)).tolist()
    return means


def _ranges_of(values: Tensor, width: int) -> list[tuple[float, float]]:
    """Return the smallest and largest value of each column `[rows, columns]`, without NaN; inf and -inf if none."""
    low, high = torch.full((width,), torch.inf), torch.full((width,), -torch.inf)
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS].float()
        low = torch.minimum(low, part.nan_to_num(torch.inf, posinf=torch.inf, neginf=-torch.inf).amin(0))
        high = torch.maximum(high, part.nan_to_num(-torch.inf, posinf=torch.inf, neginf=-torch.inf).amax(0))
    return list(zip(low.tolist(), high.tolist(), strict=True))
