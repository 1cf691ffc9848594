"""Choose the features of nodes and edges: integers and texts are categories, real numbers stay numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphbench.benchmarks.graphs.raw import RawGraphs, as_rows
from graphbench.benchmarks.graphs.splits.masks import counted_mask, split_masks
from graphbench.benchmarks.graphs.target_columns import split_name
from graphbench.benchmarks.graphs.targets import Target
from graphbench.contracts import Features
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.columns import to_float32
from graphbench.errors import BadInput

POSITION = "pos"
MAX_CATEGORIES = 65_536  # maximum vocabulary of a column of integers


@dataclass(frozen=True)
class FeatureColumn:
    """One named column (or matrix of columns) of features.

    Args:
        name: name in the source.
        width: number of columns.
        sizes: vocabulary of each column if they are categorical; empty if they are dense.
        values: texts of the categories 0, 1, ..., if they are text.
    """

    name: str
    width: int
    sizes: tuple[int, ...] = ()
    values: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return one name for each column."""
        return (self.name,) if self.width == 1 else tuple(f"{self.name}_{number}" for number in range(self.width))


@dataclass(frozen=True)
class FeaturePlan:
    """The features of one level.

    Args:
        level: "node", "edge" or "graph".
        columns: columns in the order of the source.
        left_out: unused columns with the reasons.
        normalized: divide the real numbers of a row by the larger of their sum and 1, as PyG's `NormalizeFeatures`.
    """

    level: str
    columns: tuple[FeatureColumn, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    normalized: bool = False

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> FeaturePlan:
        """Build a plan from its fields in the store."""
        columns = tuple(
            FeatureColumn(one["name"], one["width"], tuple(one["sizes"]), tuple(one["values"]))
            for one in record["columns"]
        )
        left_out = tuple((name, why) for name, why in record["left_out"])
        return cls(record["level"], columns, left_out, record.get("normalized", False))

    @property
    def features(self) -> Features:
        """Return the features for the specification, categorical columns first."""
        coded = [column for column in self.columns if column.sizes]
        dense = [column for column in self.columns if not column.sizes]
        words = tuple(column.values for column in coded for _ in column.sizes)
        return Features(
            vocabularies=tuple(size for column in coded for size in column.sizes),
            dense=sum(column.width for column in dense),
            names=tuple(name for column in (*coded, *dense) for name in column.names),
            words=words if any(words) else (),
        )

    @property
    def as_numbers(self) -> Features:
        """Return the features with categories as columns of 0 and 1, followed by the real numbers."""
        names: list[str] = []
        for column in self.columns:
            for name, size in zip(column.names, column.sizes, strict=False):  # real numbers have no sizes
                names += [f"{name}={value}" for value in column.values or range(size)]
        names += [name for column in self.columns if not column.sizes for name in column.names]
        return Features(dense=len(names), names=tuple(names))


@dataclass(frozen=True)
class FeatureRequest:
    """Options that choose features: the `columns` of each level, None for the default."""

    columns: Mapping[str, Sequence[str] | None]
    categorical: Sequence[str]
    continuous: Sequence[str]
    normalized: bool
    positions: bool | None

    def as_json(self) -> list[Any]:
        """Return the options for the key of the store; those added later have names in it."""
        return [self.columns[NODE], self.columns[EDGE], self.categorical, self.continuous, self.positions]

    def coordinates(self, raw: RawGraphs) -> int:
        """Return the width of positions; 0 without them."""
        values = raw.columns[NODE].get(POSITION)
        if values is not None and values.ndim == 2 and values.dtype.kind == "f":
            return 0 if self.positions is False else int(values.shape[1])
        if self.positions:
            raise BadInput(f"positions: {raw.origin} has no column {POSITION} of real numbers, [nodes, width].")
        return 0

    def plans(self, raw: RawGraphs, target: Target, other: Mapping[str, Sequence[str]]) -> dict[str, FeaturePlan]:
        """Choose the features of nodes, edges and graphs, except for the `other` columns of each level, already in use.

        Raises:
            BadInput: a requested column has another use or is both categorical and continuous; a column named in either
                option is not a feature; columns of graphs are requested although whole graphs have no target.
            UnknownName: there is no such column.
        """
        for name in (*self.categorical, *self.continuous):
            if name not in raw.columns[EDGE] and name not in raw.columns[GRAPH]:
                raw.column(NODE, name)  # raises, with near matches
        both = sorted(set(self.categorical) & set(self.continuous))
        if both:
            raise BadInput(f"{', '.join(both)} cannot be both categorical and continuous.")
        if self.columns[GRAPH] and target.level != GRAPH:
            raise BadInput(
                f"graph_features belong to the whole graph, but the target here is of {target.level}s. "
                "Repeat them in a column of nodes."
            )
        taken: dict[str, set[str]] = {
            GRAPH: _masks(raw, GRAPH),
            NODE: _masks(raw, NODE),
            EDGE: _masks(raw, EDGE) if target.level == EDGE else set(),
        }
        if self.coordinates(raw):
            taken[NODE].add(POSITION)
        for column in (split_name(raw, name)[0] for name in target.names):
            # A graph may have as many targets as nodes, in a column of nodes.
            taken[target.level if column in raw.columns[target.level] else NODE].add(column)
        plans = {}
        for level in (NODE, EDGE, GRAPH):
            wanted = self.columns[level]
            taken[level].update(other.get(level, ()))
            if wanted is not None and (leak := [name for name in wanted if name in taken[level]]):
                raise BadInput(
                    f"{level}_features: {leak[0]} is the target, a split, a weight or a position, not a feature."
                )
            plans[level] = self._plan(raw, level, taken[level])
        used = {column.name for plan in plans.values() for column in plan.columns}
        if idle := [name for name in (*self.categorical, *self.continuous) if name not in used]:
            raise BadInput(
                f"categorical and continuous say how features are read, but {idle[0]} is none here. Also name it in "
                "node_features, edge_features or graph_features."
            )
        return plans

    def _plan(self, raw: RawGraphs, level: str, taken: Collection[str]) -> FeaturePlan:
        """Choose among the columns of a level that are not `taken`."""
        wanted = self.columns[level]
        chosen = raw.features.get(level) if wanted is None else wanted
        present = (*raw.columns[level], *(name for at, name in raw.faults if at == level))
        names = [name for name in present if name not in taken] if chosen is None else list(chosen)
        columns, left_out = [], []
        for name in names:
            values = _column_values(raw, level, name)
            # Texts that hardly repeat are names: as categories they would be useless for a new graph.
            if chosen is None and values.dtype == object:
                distinct = len({value for value in values.reshape(-1) if value is not None})
                if distinct > max(2, len(values) // 2):
                    left_out.append((name, f"{distinct:,} different texts in {len(values):,} rows"))
                    continue
            columns.append(self._column(raw, level, name, values))
        unread = f"not asked for; --data.{level}_features"
        left_out += [(name, raw.faults.get((level, name), unread)) for name in present if name not in (*names, *taken)]
        plan = FeaturePlan(level, tuple(columns), tuple(left_out), self.normalized and level == NODE)
        if plan.normalized:
            feature_arrays(raw, plan)  # raises if they cannot be normalized
        return plan

    def _column(self, raw: RawGraphs, level: str, name: str, values: np.ndarray) -> FeatureColumn:
        if values.ndim > 2:
            raise BadInput(f"{raw.origin}: {name} has {values.ndim} dimensions; features have one row per {level}.")
        width = 1 if values.ndim == 1 else values.shape[1]
        if values.dtype == object:
            if name in self.continuous or values.ndim > 1:
                raise BadInput(f"{raw.origin}: {name} is text, which cannot be read as numbers.")
            _refuse(raw, level, name, np.array([value is None for value in values], dtype=bool), "is missing")
            vocabulary = tuple(sorted(set(values.tolist())))
            return FeatureColumn(name, 1, (len(vocabulary),), vocabulary)
        if name in self.continuous or (values.dtype.kind == "f" and name not in self.categorical):
            _refuse_infinite(raw, level, name, values)
            return FeatureColumn(name, width)
        if values.dtype.kind == "f":
            _refuse(raw, level, name, ~(np.isfinite(values) & (values % 1 == 0)), "is not an integer")
        _refuse(
            raw, level, name, values < 0, "is negative; categories count from 0. Read it as a number with "
            f"--data.continuous '[{name}]'",
        )  # fmt: skip
        tops = as_rows(values).max(0, initial=0).astype(np.int64)
        if len(tops) and int(tops.max()) >= MAX_CATEGORIES:
            raise BadInput(
                f"{raw.origin}: {name} of {level}s reaches {int(tops.max()):,}, which is too many for categories. Read "
                f"it as a number with --data.continuous '[{name}]', or leave it out with --data.{level}_features."
            )
        return FeatureColumn(name, width, tuple(2 if values.dtype == bool else int(top) + 1 for top in tops))


def _masks(raw: RawGraphs, level: str) -> set[str]:
    return {*split_masks(raw, level).values(), *filter(None, (counted_mask(raw, level),))}


def _column_values(raw: RawGraphs, level: str, name: str) -> np.ndarray:
    """Return a column `[rows]` or `[rows, width]`; texts of whole graphs, one in a row of values, are `[rows]`."""
    values = raw.column(level, name)
    return values[:, 0] if values.dtype == object and values.ndim == 2 and values.shape[1] == 1 else values


def _refuse(raw: RawGraphs, level: str, name: str, wrong: np.ndarray, fault: str) -> None:
    wrong = as_rows(wrong)
    if not wrong.any():
        return
    row, column = np.argwhere(wrong)[0].tolist()
    value = as_rows(raw.columns[level][name])[row, column]
    which = f", column {column}" if wrong.shape[1] > 1 else ""
    raise BadInput(f"{raw.place(level, row)}: {name}{which} is {value}, which {fault}.")


def _refuse_infinite(raw: RawGraphs, level: str, name: str, values: np.ndarray) -> None:
    # the extremes of a column with NaN are NaN, so a valid column needs no mask of all values
    if values.size and not (np.isfinite(values.min()) and np.isfinite(values.max())):
        others = f"leave the column out: --data.{level}_features names those to read"
        _refuse(raw, level, name, ~np.isfinite(values), f"is not finite. Fill in such features, or {others}")


def feature_arrays(raw: RawGraphs, plan: FeaturePlan) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return categories `[rows, k]` (int64) and real numbers `[rows, d]` (float32) of a level; None for no columns.

    Raises:
        BadInput: new graphs have a category that is not in the plan, or a column of another width.
    """
    coded, dense = [], []
    if plan.level == EDGE and not len(raw.edges):  # such graphs need no columns
        coded = [np.empty((0, column.width), dtype=np.int64) for column in plan.columns if column.sizes]
        dense = [np.empty((0, column.width), dtype=np.float32) for column in plan.columns if not column.sizes]
        return _side_by_side(coded), _side_by_side(dense)
    for column in plan.columns:
        values = _column_values(raw, plan.level, column.name)
        width = 1 if values.ndim == 1 else values.shape[1]
        if width != column.width:
            raise BadInput(
                f"{raw.origin}: {column.name} of {plan.level}s has {width} columns instead of {column.width}."
            )
        if column.values:
            code = {value: number for number, value in enumerate(column.values)}
            values = np.array([code.get(value, len(code)) for value in values], dtype=np.int64)  # refused below
        rows = as_rows(values)
        if column.sizes:
            if rows.dtype.kind == "f":
                _refuse(raw, plan.level, column.name, ~(np.isfinite(rows) & (rows % 1 == 0)), "is not an integer")
            unknown = (rows < 0) | (rows >= np.array(column.sizes))
            _refuse(raw, plan.level, column.name, unknown, "is none of the known categories")
            coded.append(rows.astype(np.int64, copy=False))
        else:
            _refuse_infinite(raw, plan.level, column.name, rows)
            dense.append(to_float32(rows, f"{raw.origin}: {column.name} of {plan.level}s"))
    numbers = _side_by_side(dense)
    return _side_by_side(coded), _normalized(raw, plan, numbers) if plan.normalized else numbers


def number_array(raw: RawGraphs, plan: FeaturePlan) -> np.ndarray | None:
    """Return the features as numbers `[rows, d]` (float32), named by `FeaturePlan.as_numbers`; None for no columns."""
    coded, dense = feature_arrays(raw, plan)
    parts = [] if dense is None else [dense]
    if coded is not None:
        sizes = plan.features.vocabularies
        parts = [np.eye(size, dtype=np.float32)[coded[:, number]] for number, size in enumerate(sizes)] + parts
    return _side_by_side(parts)


def _normalized(raw: RawGraphs, plan: FeaturePlan, numbers: np.ndarray | None) -> np.ndarray:
    if numbers is None:
        raise BadInput(
            f"normalize_features is set, but {raw.origin} has no real numbers for features of {plan.level}s."
        )
    if numbers.size and numbers.min() < 0:
        row = int(np.argwhere((numbers < 0).any(1))[0, 0])
        raise BadInput(
            f"{raw.place(plan.level, row)}: a feature is {numbers[row].min():g}; normalize_features needs features of "
            "0 or more."
        )
    return numbers / numbers.sum(1, keepdims=True).clip(min=1)


def _side_by_side(columns: list[np.ndarray]) -> np.ndarray | None:
    """Join columns; a single one is not copied, since that of a large graph may take gigabytes."""
    if not columns:
        return None
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
