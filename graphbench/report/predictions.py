"""Draw predictions of the test split: reliability of probabilities, confused classes, and the worst molecules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.patches import Rectangle
from scipy.stats import binomtest

from graphbench.diagnostics.figures.molecules import molecule_svg
from graphbench.errors import BadInput
from graphbench.report.figures import INK, PALETTE, RULE, Panel, Section, Style, embedded, panel_axes, shorten, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number
from graphbench.report.scores import ResultTable

#: Metrics that only regressions have.
REGRESSION = ("MAE", "RMSE", "MSE", "R2", "Spearman", "Pearson", "explained_variance", "RAE")
#: Number of molecules drawn for each model.
SHOWN = 6
#: Maximum number of labels with a confusion matrix, and of classes for numbers in its cells.
_MAX_LABELS, _MAX_NUMBERED = 6, 12
_BINS = 15
#: Atomic number -> colour in the figures of the page: oxygen, nitrogen, sulphur and phosphorus, halogens.
_ELEMENTS = {
    6: INK,
    7: PALETTE[0],
    8: PALETTE[1],
    **dict.fromkeys((15, 16), PALETTE[4]),
    **dict.fromkeys((9, 17, 35, 53), PALETTE[2]),
}


@dataclass(frozen=True)
class Target:
    """One target of a regression, in the rows where it is known."""

    name: str  # "" for the only one
    rows: np.ndarray  # index of these rows in the file
    predicted: np.ndarray  # `[rows]`
    true: np.ndarray  # `[rows]`
    low: np.ndarray | None = None  # lower ends of the intervals `[rows]`, None without
    high: np.ndarray | None = None  # upper ends
    label: str = ""  # the target's name in the columns of intervals, else `name`

    @property
    def residuals(self) -> np.ndarray:
        """Return predicted minus true `[rows]`."""
        return self.predicted - self.true


def scored_runs(table: ResultTable) -> Iterator[tuple[int, Group, Run, pd.DataFrame]]:
    """Yield each group's number, its first tested run with test predictions, and these predictions."""
    for number, group in enumerate(table.groups):
        for run in group.runs:
            if run.predictions is not None and run.scores("test"):
                yield number, group, run, run.predictions
                break


def targets_of(frame: pd.DataFrame) -> list[Target]:
    """Return targets of a regression, or labels with their probabilities, that are known in at least one row."""
    names = [c.removesuffix("_low") for c in map(str, frame.columns) if c.endswith("_low")]
    intervals = [name for name in names if f"{name}_high" in frame]
    targets = []
    for predicted in map(str, frame.columns):
        name = predicted.removeprefix("prediction").removeprefix("_")
        true = f"target_{name}" if name else "target"
        if predicted not in ("prediction", f"prediction_{name}") or true not in frame:
            continue
        # Earlier versions did not name a single target, only its interval, and wrote labels' probabilities here.
        label = intervals[0] if not name and len(intervals) == 1 else name if name in intervals else None
        shown = f"probability_{name}" if f"probability_{name}" in frame else predicted
        columns = [shown, true] + ([f"{label}_low", f"{label}_high"] if label else [])
        rows = _numeric_rows(frame, columns)
        if rows.empty:
            continue
        values = [rows[column].to_numpy(float) for column in columns]
        low, high = values[2:] if label else (None, None)
        targets.append(Target(name, rows.index.to_numpy(), values[0], values[1], low, high, label or name))
    return targets


def _numeric_rows(frame: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    return frame[columns].apply(pd.to_numeric, errors="coerce").dropna()


class _Classes(NamedTuple):
    """Predicted probabilities of rows with a known class."""

    names: list[str]  # of the classes
    rows: pd.Index  # index of the rows in the file
    probabilities: np.ndarray  # `[rows, classes]`
    truth: np.ndarray  # index of the true class `[rows]`


def _classes_of(frame: pd.DataFrame) -> _Classes | None:
    """Return classes with their probabilities; None for other tasks, and if no class is known."""
    columns = list(map(str, frame.columns))
    targets = [column.removeprefix("target_") for column in columns if column.startswith("target_")]
    prefix, labels = "probability_", [f"target_{name}" for name in targets if f"prediction_{name}" in frame]
    if "target" in frame:  # from an earlier version, which wrote probabilities as predictions, and class numbers
        prefix, labels = "prediction_", ["target"]
    shares = [column for column in columns if column.startswith(prefix)]
    names = [column.removeprefix(prefix) for column in shares]
    are_labels = prefix == "probability_" and all(f"prediction_{name}" in frame for name in names)
    if len(names) < 2 or len(labels) != 1 or are_labels:
        return None
    words = pd.Series(range(len(names)) if labels == ["target"] else names)
    # As pandas reads them from the file: numbers, or True and False.
    label = frame[labels[0]].map(lambda word: str(word) if isinstance(word, (bool, np.bool_)) else word)
    if pd.api.types.is_numeric_dtype(label):
        words = pd.to_numeric(words, errors="coerce")
    numbers = {word: number for number, word in enumerate(words)}
    rows = _numeric_rows(frame[shares].assign(target=label.map(numbers)), [*shares, "target"])
    probabilities, truth = rows[shares].to_numpy(float), rows["target"].to_numpy(int)
    return _Classes(names, rows.index, probabilities, truth) if len(rows) and _are_shares(probabilities) else None


def _are_shares(values: np.ndarray) -> bool:
    # a softmax in float32 may exceed 1 by rounding
    return bool(((values >= 0) & (values <= 1 + 1e-6)).all())


def confidences_of(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray] | None:
    """Return confidences `[n]`, and whether each came true `[n]`; None if the file has no probabilities.

    The confidence is the probability of the predicted class, or that of yes for a label.
    """
    if {"head", "tail"} & set(frame.columns):  # predictions of links
        return None
    if (classes := _classes_of(frame)) is not None:
        return classes.probabilities.max(1), classes.probabilities.argmax(1) == classes.truth
    labels = targets_of(frame)
    if not labels:
        return None
    yes, truth = (np.concatenate([getattr(label, name) for label in labels]) for name in ("predicted", "true"))
    return (yes, truth == 1) if _are_shares(yes) and np.isin(truth, (0, 1)).all() else None


@dataclass(frozen=True)
class Reliability:
    """Probabilities in bins of equal width, without empty bins.

    Examples:
        >>> reliability = Reliability.of(np.array([0.61, 0.62, 0.95]), np.array([True, False, True]))
        >>> reliability.count.tolist(), reliability.share.tolist(), round(reliability.error, 4)
        ([2, 1], [0.5, 1.0], 0.0933)
        >>> Reliability.of(np.array([0.64, 0.6666667]), np.array([True, False]), bins=15).count.tolist()
        [2]
    """

    confidence: np.ndarray  # mean probability of each bin
    share: np.ndarray  # share of each bin that came true
    count: np.ndarray  # number of probabilities in each bin

    @classmethod
    def of(cls, confidence: np.ndarray, correct: np.ndarray, bins: int = _BINS) -> Reliability:
        """Sort probabilities `[n]` into bins; `correct` `[n]` states which came true."""
        # Only inner borders, so that 0 and 1, and what rounds beyond them, fall into the outer bins.
        # In float32, in which models predict: 2 / 3 is written as 0.6666667, which is no more than the border 10 / 15.
        borders = (np.arange(1, bins) / bins).astype(np.float32)
        place = np.digitize(confidence.astype(np.float32), borders, right=True)
        count = np.bincount(place, minlength=bins)
        mask = count > 0
        means = [np.bincount(place, values, bins)[mask] / count[mask] for values in (confidence, correct.astype(float))]
        return cls(means[0], means[1], count[mask])

    @property
    def error(self) -> float:
        """Return the expected calibration error: mean over all n of |share - confidence| of their bin (Guo 2017)."""
        return float((self.count * np.abs(self.share - self.confidence)).sum() / self.count.sum())

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of the 95 % confidence interval of each share (Clopper & Pearson 1934)."""
        # Back to integers: a share times its count may not be one because of rounding.
        hits = np.rint(self.share * self.count).astype(int)
        ends = [binomtest(k, n).proportion_ci(0.95, "exact") for k, n in zip(hits, self.count, strict=True)]
        return np.array([interval.low for interval in ends]), np.array([interval.high for interval in ends])


def reliability_section(table: ResultTable, name: str) -> Section | None:
    """Draw a reliability diagram for tested runs with probabilities; None for regressions."""
    if table.metric in REGRESSION:
        return None
    section = Section(
        name, "Are probabilities shares?",
        "Test predictions by the probability that the model gives its answer (for labels: yes), and how many of them "
        "come true, with 95 % confidence intervals. On the line a probability of 80 % is right in 80 of 100 rows; "
        "below it the model is overconfident. ECE is the mean distance from the line.",
    )  # fmt: skip
    for number, group, run, frame in scored_runs(table):
        if (confidences := confidences_of(frame)) is None:
            continue
        reliability = Reliability.of(*confidences)
        style, title = Style(number), shorten(group.label)
        with panel_axes(title, "probability", "share that comes true", (3.7, 3.5)) as (figure, axes):
            axes.axline((0, 0), slope=1, color=RULE, linewidth=1.2)
            low, high = reliability.bounds
            ends = np.abs(np.stack((reliability.share - low, high - reliability.share)))
            axes.errorbar(
                reliability.confidence, reliability.share, ends, color=style.colour, marker=style.marker, linestyle="",
                capsize=2, elinewidth=1,
            )  # fmt: skip
            axes.set_xlim(0, 1.02)
            axes.set_ylim(-0.02, 1.02)
            axes.set_aspect("equal")
            drawing = svg(figure, f"Reliability of {title}: ECE {reliability.error:.4f}", f"{name}-{number}")
        total = int(reliability.count.sum())
        caption = f"Seed {run.seed}, {total:,} predictions, ECE {reliability.error:.4f} in {_BINS} bins."
        if is_number(temperature := run.results.get("temperature")):
            caption += f" Calibrated on the validation split: temperature {temperature:.4g}."
        section.panels.append(Panel(drawing, caption))
    return section if section.panels else None


def confusion_section(table: ResultTable, name: str) -> Section | None:
    """Draw a confusion matrix for tested runs on classes and labels; None for regressions."""
    if table.metric in REGRESSION:
        return None
    section = Section(
        name, "What is taken for what",
        "Rows are the true classes of the test split, columns the classes with the highest predicted probability "
        "(for a label: yes above one half). A cell is a share of its row, so those on the diagonal are the "
        "recalls; its number counts test rows if there is room.",
        wide=True,
    )  # fmt: skip
    for number, group, run, frame in scored_runs(table):
        for place, (title, names, counts) in enumerate(_confusions(frame)):
            if place == _MAX_LABELS:
                section.notes.append(f"{group.label}: only the first {_MAX_LABELS} labels are drawn.")
                break
            label = f"{shorten(group.label)}{f': {title}' if title else ''}"
            drawing = _draw_confusion(label, names, counts, f"{name}-{number}-{place}")
            right, total = int(np.trace(counts)), int(counts.sum())
            section.panels.append(Panel(drawing, f"Seed {run.seed}: {right:,} of {total:,} rows are correct."))
    return section if section.panels else None


def _confusions(frame: pd.DataFrame) -> Iterator[tuple[str, list[str], np.ndarray]]:
    """Yield the name of a label ("" for classes), names of classes, and counts `[true, predicted]`."""
    if {"head", "tail"} & set(frame.columns):  # predictions of links
        return
    if (classes := _classes_of(frame)) is not None:
        yield "", classes.names, confusion(classes.truth, classes.probabilities.argmax(1), len(classes.names))
        return
    for label in targets_of(frame):
        if _are_shares(label.predicted) and np.isin(label.true, (0, 1)).all():
            yield label.name, ["no", "yes"], confusion(label.true.astype(int), (label.predicted > 0.5).astype(int), 2)


def confusion(truth: np.ndarray, predicted: np.ndarray, classes: int) -> np.ndarray:
    """Count rows `[classes, classes]` by true and predicted class, both given as indices `[rows]`.

    Examples:
        >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
        [[1, 0], [1, 1]]
    """
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def _draw_confusion(title: str, names: Sequence[str], counts: np.ndarray, name: str) -> Markup:
    total = counts.sum(1, keepdims=True)
    shares = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    size = min(2.2 + 0.42 * len(names), 6.5)
    with panel_axes(title, "predicted", "true", (size + 0.6, size)) as (figure, axes):
        axes.grid(False)
        for (row, column), share in np.ndenumerate(shares):
            if share:  # most of the cells of many classes are empty, and each square is an element of the page
                # squares in the page's text colour: an image would keep its colours in dark mode
                axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=PALETTE[0], alpha=0.85 * share))
            if len(names) <= _MAX_NUMBERED:
                axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center")
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_aspect("equal")
        step = max(1, len(names) // 20)
        places = range(0, len(names), step)
        axes.set_xticks(places, [shorten(names[place]) for place in places], rotation=90)
        axes.set_yticks(places, [shorten(names[place]) for place in places])
        return svg(figure, f"Confusion matrix of {title}", name)


def worst_section(table: ResultTable, name: str) -> Section | None:
    """Show the rows with the largest errors of every model, molecules as drawings; None if errors cannot be ordered."""
    section = Section(
        name, "Largest errors",
        "What each model predicts worst in the test split: for regressions by the error in units of the target's root "
        "mean square error, for classes by the probability of the true one.",
    )  # fmt: skip
    for number, group, run, frame in scored_runs(table):
        rows = _worst_values(frame) if table.metric in REGRESSION else _worst_classes(frame)
        if "smiles" not in frame:
            section.lines += [[_row_name(frame, row), f"{group.label}, seed {run.seed}", text] for row, text in rows]
            continue
        try:
            section.panels += [
                _molecule(frame, row, f"{group.label}, {text}", run, f"{name}-{number}-{place}")
                for place, (row, text) in enumerate(rows)
            ]
        except BadInput as error:
            section.notes.append(f"The molecules are not drawn: {error}")
            break
    if section.lines:
        section.lines.insert(0, ["row", "model", "error"])
    return section if section.lines or section.panels or section.notes else None


def _row_name(frame: pd.DataFrame, row: int) -> str:
    """Name the graph, node or edge of a row."""
    places = {column: frame[column].iloc[row] for column in ("id", "node", "source", "destination") if column in frame}
    return ", ".join(f"{column} {place}" for column, place in places.items()) or f"{row + 1}"


def _worst_values(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Return rows of a regression with a description, worst first."""
    worst: dict[int, tuple[float, str]] = {}
    for target in targets_of(frame):
        scaled = np.abs(target.residuals) / (np.sqrt((target.residuals**2).mean()) or 1.0)
        for place in np.argsort(-scaled, kind="stable")[:SHOWN]:
            row, name = int(target.rows[place]), f"{target.name} " if target.name else ""
            text = f"{name}predicted {target.predicted[place]:.4g}, true {target.true[place]:.4g}"
            if row not in worst or scaled[place] > worst[row][0]:
                worst[row] = (float(scaled[place]), text)
    return [(row, text) for row, (_, text) in sorted(worst.items(), key=lambda item: -item[1][0])[:SHOWN]]


def _worst_classes(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Return rows with the lowest probability of the true class; none for labels, whose errors have no common order."""
    if (classes := _classes_of(frame)) is None:
        return []
    probability = classes.probabilities[np.arange(len(classes.truth)), classes.truth]
    worst = np.argsort(probability, kind="stable")[:SHOWN]
    texts = (f"true class {classes.names[classes.truth[n]]}, its probability {probability[n]:.4g}" for n in worst)
    return list(zip(map(int, classes.rows[worst]), texts, strict=True))


def _molecule(frame: pd.DataFrame, row: int, text: str, run: Run, name: str) -> Panel:
    smiles = str(frame["smiles"].iloc[row])
    called = f" {frame['id'].iloc[row]}" if "id" in frame else ""
    drawing = molecule_svg(smiles, _ELEMENTS)
    if drawing is None:
        return Panel(Markup("<code>{}</code>").format(smiles), f"Row{called} ({text}, seed {run.seed})")
    return Panel(embedded(drawing, smiles, name), f"Row{called} ({text}, seed {run.seed}): {smiles}")
