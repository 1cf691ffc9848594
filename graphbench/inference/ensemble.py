"""Predict with one or several trained models together: mean and spread, intervals, calibrated probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from graphbench.contracts import Encoded, Encoding, InputPart
from graphbench.contracts.benchmark import Wanted
from graphbench.data.encode import encode_in_memory, spans_in_memory, with_encoding
from graphbench.data.progress import progress
from graphbench.errors import BadInput, GraphbenchError, check_choice
from graphbench.inference.answers import Answers, agreed, answer_table
from graphbench.inference.calibration import Temperature, log_probabilities, pooled, predicted_values
from graphbench.inference.class_sets import ClassSets
from graphbench.inference.distance_bins import Conformal, DistanceBins
from graphbench.inference.intervals import Intervals, parse_coverage, spread_floors
from graphbench.inference.predictor import (
    Predictor,
    Quantity,
    as_sequence,
    join_frames,
    missing_encodings,
    parts_of_split,
    readers_of,
    side_by_side,
    targets_of,
)

SPREAD = "spread"
#: What intervals may depend on -> supported kinds of tasks.
INTERVALS_BY = {"distance": ("regression", "classification"), "spread": ("regression",), "class": ("classification",)}
#: Tasks whose outputs are logits.
_WITH_LOGITS = ("classification", "multilabel")


@dataclass(frozen=True)
class _Validation:
    """Means, spreads and targets of the predicted rows of the validation split, and their row numbers."""

    means: np.ndarray
    spreads: np.ndarray
    targets: np.ndarray
    rows: np.ndarray


class Ensemble:
    """Trained models that predict the same targets, such as runs of several seeds.

    Predictions are means of the models' predictions, of probabilities for classes and labels; geometric means for
    targets in log10. The spread is the standard deviation between the models (n - 1) in the target's unit: how far they
    disagree, which is not an interval for the truth.

    Args:
        members: one or several, as `load` returns them.
        names: their names in messages; their numbers if None.

    Raises:
        BadInput: there are none, or they predict different benchmarks, targets or classes.
    """

    def __init__(self, members: Sequence[Predictor], names: Sequence[str] | None = None) -> None:
        members = [members] if isinstance(members, Predictor) else list(members)
        if not members:
            raise BadInput("An ensemble needs at least one model.")
        if wrong := [type(member).__name__ for member in members if not isinstance(member, Predictor)]:
            raise BadInput(f"Members of an ensemble must come from `graphbench.load`, but got {wrong[0]}.")
        self.members = list(members)
        self.names = [f"member {number}" for number in range(len(members))] if names is None else list(names)
        self.first = self.members[0]
        self._readers, self._reader_of = readers_of(self.members)
        self.intervals: Intervals | ClassSets | DistanceBins | None = None
        self.temperature: Temperature | None = None
        self._check_members()
        self.first.check_task()

    def _check_members(self) -> None:
        """Refuse members that do not predict the same."""
        expected = _shared_facts(self.first)
        for member, name in zip(self.members[1:], self.names[1:], strict=True):
            for what, value in _shared_facts(member).items():
                if value != expected[what]:
                    raise BadInput(
                        f"An ensemble needs one {what}: {self.names[0]} has {_listed(expected[what])}, {name} has "
                        f"{_listed(value)}."
                    )

    # -- predictions ---------------------------------------------------------------------------------------------

    def predict(self, inputs: Any) -> pd.DataFrame:
        """Predict inputs as `Predictor.predict` does; several models add `spread_<target>`, or one for each class.

        Raises:
            BadInput: the benchmark does not accept such inputs.
        """
        sequence = as_sequence(inputs)
        parts = self._for_members([reader.data.read_objects(sequence) for reader in self._readers])
        return join_frames(self.predict_parts(parts, "smiles"), inputs)

    def predict_input(self, source: str, column: str | None = None) -> Iterator[pd.DataFrame]:
        """Predict a file, part by part; models with the same input recipe read it once."""
        return self.predict_parts(self.read_input(source, column), column)

    def read_input(
        self, source: str, column: str | None = None, wanted: Wanted | None = None
    ) -> Iterator[list[InputPart]]:
        """Read a file in parts, once for each model; models with the same `Benchmark.input_recipe` share a reading.

        Arguments and errors are those of `Benchmark.read_chosen`; all graphs are needed if `wanted` is None.
        """
        readers = [member.data for member in self._readers]
        if wanted is None:
            return self._for_members([data.read_input(source, column) for data in readers])
        return self._for_members([data.read_chosen(source, column, wanted) for data in readers])

    @property
    def readings(self) -> int:
        """Return how often an input is read: once for all models with the same recipe."""
        return len(self._readers)

    def _for_members(self, readings: Sequence[Iterator[InputPart]]) -> Iterator[list[InputPart]]:
        """Yield the parts of all readers, one for each model."""
        return ([views[reader] for reader in self._reader_of] for views in side_by_side(readings))

    def predict_parts(self, parts: Iterable[Sequence[InputPart]], column: str | None = None) -> Iterator[pd.DataFrame]:
        """Predict parts of an input, each as every model reads it; `column` is that of `read_input`."""
        for views in parts:
            means, spreads, answers = self.answers(views)
            distances = self._distances(views[0], answers, column)
            answers.values = np.concatenate((means, spreads, distances), 1)
            columns = partial(self._columns, widths=(means.shape[1], spreads.shape[1]))
            yield answer_table(views[0], answers, columns, self.first.level)

    def _distances(self, view: InputPart, answers: Answers, column: str | None) -> np.ndarray:
        """Return distances of predicted rows to the training set `[rows, 1]`; no column unless intervals need it."""
        if not isinstance(self.intervals, DistanceBins):
            return np.empty((len(answers.values), 0), dtype=answers.values.dtype)
        text_of = dict(zip(view.rows, self.first.data.input_texts(view, column) or (), strict=True))
        distances = self.first.data.training_distances([text_of[row] for row in answers.rows])
        assert distances is not None, "add_intervals refuses benchmarks without"
        return distances[:, None]

    def answers(self, views: Sequence[InputPart]) -> tuple[np.ndarray, np.ndarray, Answers]:
        """Predict a part, given as each model reads it, with every model.

        Returns:
            Means `[values, width]`, predictions first; standard deviations of the predictions (no columns for one
            model); and the answers of the first model, restricted to the rows that all models predict.
        """
        values, answers = self._common_answers(views, self.quantity)
        return *self.combine(values), answers

    def _common_answers(self, views: Sequence[InputPart], quantity: Quantity) -> tuple[np.ndarray, Answers]:
        views = self._encode_once(views)
        return agreed([member.answers(view, quantity) for member, view in zip(self.members, views, strict=True)])

    def _encode_once(self, views: Sequence[InputPart]) -> Sequence[InputPart]:
        """Compute encodings shared by several models only once.

        Each model itself encodes a part with a failing graph, or whose encodings would not fit into memory.
        """
        # By the table's identity: models with the same recipe share the object, see `readers_of`.
        done: dict[tuple[int, Encoding], Encoded] = {}
        tables = [view.table for view in views]
        if len(views) == 1 or not all(map(len, tables)):
            return views
        try:
            for place, (member, view) in enumerate(zip(self.members, views, strict=True)):
                for encoding in missing_encodings(view.table, member.data):
                    key = id(view.table), encoding
                    if len(spans_in_memory(view.table, [encoding])) > 1:
                        return views
                    if key not in done:
                        done[key] = encode_in_memory(view.table, encoding, member.data.spec.name)
                    tables[place] = with_encoding(tables[place], encoding, done[key])
        except GraphbenchError:
            return views
        return [replace(view, table=table) for view, table in zip(views, tables, strict=True)]

    @property
    def quantity(self) -> Quantity:
        """Return the quantity that `combine` expects: logits if there is a temperature, else predictions."""
        return "prediction" if self.temperature is None else "output"

    def combine(self, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return means and spreads over models, as `answers` does.

        Args:
            values: predictions followed by the task's spreads, or logits, see `quantity` `[models, rows, width]`.
        """
        if self.temperature is None:
            means = values[0] if len(values) == 1 else self.first.pooled(values)
        else:
            logs = np.stack([log_probabilities(one, self.first.data.spec) for one in values])
            values = np.stack([predicted_values(one) for one in logs])
            means = predicted_values(self.temperature.applied(pooled(logs)))
        if len(values) > 1:
            # Only of predictions, without the spreads that each model has learned.
            return means, values[..., : self.first.predicted].std(0, ddof=1, dtype=np.float64)
        return means, np.empty((len(means), 0), dtype=means.dtype)

    def _columns(self, values: np.ndarray, present: np.ndarray, widths: tuple[int, int]) -> dict[str, Any]:
        means, spreads, distances = np.split(values, np.cumsum(widths), axis=1)
        return self.first.columns(means, present) | self.further_columns(means, spreads, distances[:, :1].reshape(-1))

    def further_columns(
        self, means: np.ndarray, spreads: np.ndarray, distances: np.ndarray | None = None
    ) -> dict[str, Any]:
        """Return spreads, and intervals or sets, by name, to add to the predictions.

        Means and spreads are those of `answers`; distances to the training set `[rows]` are read by `DistanceBins`.
        """
        spec, data = self.first.data.spec, self.first.data
        names = data.target_labels() if spec.num_classes is None else self.first.classes
        columns = {f"{SPREAD}_{name}": spreads[:, n] for n, name in enumerate(names) if spreads.shape[1]}
        values = means[:, : len(names)]
        if isinstance(self.intervals, DistanceBins):
            assert distances is not None
            return columns | self.intervals.columns(values, spreads, distances)
        return columns if self.intervals is None else columns | self.intervals.columns(values, spreads)

    def covered(self, means: np.ndarray, spreads: np.ndarray, targets: np.ndarray, split: str) -> np.ndarray:
        """Return which targets of an open split are in their intervals or sets, for `answers` in the split's order.

        Unknown targets `[rows, T]` are NaN, or negative for classes. The result `[rows, T]` is 1 if a target is
        covered, 0 if not, and NaN if it is unknown.
        """
        assert self.intervals is not None
        values = means[:, : self.first.predicted]
        if isinstance(self.intervals, DistanceBins):
            return self.intervals.covers(values, targets, spreads, self.split_distances(split))
        return self.intervals.covers(values, targets, spreads)

    def split_distances(self, split: str) -> np.ndarray:
        """Return the distance of each graph of an open split to the training set.

        Raises:
            BadInput: the benchmark has no distances.
        """
        distances = self.first.data.training_distances(split)
        if distances is None:
            raise BadInput(
                f"--interval-by distance: {self.first.data.spec.name} has no SMILES to compare with those of training."
            )
        return distances

    # -- learned from the validation split -----------------------------------------------------------------------

    def add_intervals(self, coverage: str | float, by: Sequence[str] = ()) -> Intervals | ClassSets | DistanceBins:
        """Add an interval, or a set of classes, with this coverage to every prediction, using the validation split.

        The members' data must be open, with the same validation split. See `intervals` and `class_sets`.

        Args:
            coverage: stated probability.
            by: what widths or thresholds depend on: "distance" to the training set (for molecules, see
                `distance_bins`), "spread" between several models (for regressions), "class" (for classifications).

        Raises:
            BadInput: the coverage is invalid, the task is not a regression or classification of graphs, `by` does not
                apply to it, or the members validate on different graphs or too few.
        """
        stated, spec = self.check_intervals(coverage, by), self.first.data.spec
        seen = self._answer_validation("--interval")
        names = self.first.data.target_labels()
        floors: tuple[float, ...] = ()
        if "spread" in by:
            # From training: a floor that depends on the validation targets would void the guarantee.
            trained = self.first.data.tables["train"].columns["y"].numpy()
            floors = spread_floors(trained.reshape(len(trained), -1), spec.log10_targets)

        def fit(mask: np.ndarray, rows: str) -> Conformal:
            values, targets = seen.means[mask], seen.targets[mask]
            if spec.num_classes is not None:
                return ClassSets.fit(stated, values, targets, names[0], self.first.classes, "class" in by, rows)
            spreads = seen.spreads[mask]
            return Intervals.fit(stated, values, targets, names, spec.log10_targets, spreads, floors, rows)

        if "distance" in by:
            # Distances are to the first member's training set, so the others must share it.
            self.require_one_split("train", "--interval-by distance")
            self.intervals = DistanceBins.fit(stated, self.split_distances("val")[seen.rows], fit)
        else:
            self.intervals = fit(np.ones(len(seen.means), dtype=bool), "the validation split")
        return self.intervals

    def _answer_validation(self, option: str) -> _Validation:
        """Predict the validation split, for an option that learns from it."""
        parts, start = [], 0
        for views in self._validation(option):
            means, spreads, answers = self.answers(views)
            targets = targets_of(views[0], answers, self.first.level)
            rows = np.array(answers.rows, dtype=np.int64) + start
            parts.append((means[:, : self.first.predicted], spreads, targets, rows))
            start += len(views[0].frame)
        return _Validation(*map(np.concatenate, zip(*parts, strict=True)))

    def check_intervals(self, coverage: str | float, by: Sequence[str] = ()) -> Fraction:
        """Refuse intervals that the task or the models do not support, before data are opened; return the coverage.

        Arguments and errors are those of `add_intervals`.
        """
        stated, spec = parse_coverage(coverage), self.first.data.spec
        kinds = ("regression", "classification")
        if spec.level != "graph" or spec.kind not in kinds:
            parts = {"node": "nodes", "edge": "edges"}.get(self.first.level)
            why = f"the {parts} of a graph depend on each other" if parts else "labels have no intervals"
            raise BadInput(
                f"--interval is for regressions and classifications of whole graphs; {spec.name} is {spec.task}, and "
                f"{why}."
            )
        for name in by:
            check_choice("--interval-by", name, INTERVALS_BY)
            if spec.kind not in INTERVALS_BY[name]:
                fitting = [one for one, tasks in INTERVALS_BY.items() if spec.kind in tasks]
                raise BadInput(f"--interval-by {name}: {spec.name} is {spec.task}; use {' or '.join(fitting)}.")
        if "spread" in by and len(self.members) == 1:
            raise BadInput("--interval-by spread: one model has no spread. Name several runs (--run R1 R2 R3).")
        return stated

    def calibrate(self) -> Temperature:
        """Calibrate probabilities with one temperature for the mean of the members' probabilities.

        The members' data must be open, with the same validation split.

        Raises:
            BadInput: the task has no probabilities, the members validate on different graphs, or no temperature can be
                fitted to them, see `Temperature.fit`.
        """
        self.check_calibration()
        spec = self.first.data.spec
        outputs, targets = [], []
        for views in self._validation("--calibrate"):
            logits, answers = self._common_answers(views, "output")
            outputs.append(pooled(np.stack([log_probabilities(one, spec) for one in logits])))
            targets.append(targets_of(views[0], answers, self.first.level))
        self.temperature = Temperature.fit(np.concatenate(outputs), np.concatenate(targets))
        return self.temperature

    def check_calibration(self) -> None:
        """Refuse a task without probabilities, before data are opened."""
        spec = self.first.data.spec
        if spec.kind not in _WITH_LOGITS:
            raise BadInput(f"--calibrate is for classes and labels; {spec.name} is {spec.task}.")

    def _validation(self, option: str) -> Iterator[list[InputPart]]:
        """Yield the parts of the validation split, for an option that needs all members to share it."""
        for member, name in zip(self.members, self.names, strict=True):
            if "val" not in getattr(member.data, "tables", {}):
                raise BadInput(f"{option}: the data of {name} are not open; call setup() of its `data` first.")
        self.require_one_split("val", option)
        total = len(self.first.data.tables["val"])
        with progress(f"{option}: predicting the validation split", total, "graphs") as advance:
            for views in self.parts_of("val"):
                yield views
                advance(len(views[0].frame))

    def parts_of(self, split: str) -> Iterator[list[InputPart]]:
        """Return the graphs of a split of the members' open data; see `require_one_split`."""
        return side_by_side([parts_of_split(member.data, split) for member in self.members])

    def require_one_split(self, split: str, purpose: str) -> None:
        """Refuse members whose open data have different graphs in a split that `purpose` needs.

        Raises:
            BadInput: two differ; the message names them.
        """
        contents = [member.data.fingerprint().get("splits", {}).get(split) for member in self.members]
        for name, content in zip(self.names, contents, strict=True):
            if content != contents[0] or (content is None and len(contents) > 1):
                raise BadInput(
                    f"{purpose} of several runs needs the same {split} split in all of them: that of {name} differs "
                    f"from that of {self.names[0]}."
                )


def _shared_facts(member: Predictor) -> dict[str, Any]:
    """Return the facts that members must share, by their names in messages."""
    spec = member.data.spec
    return {
        "benchmark": spec.name,
        "task": spec.task,
        "list of targets": member.data.target_labels(),
        "list of units": spec.target_units,
        "list of classes": tuple(member.classes) if spec.num_classes is not None else (),
        "list of spreads": member.module.task.spread_names,
    }


def _listed(value: Any) -> str:
    return (", ".join(map(str, value[:8])) or "none") if isinstance(value, tuple) else str(value)
