"""Load predictions of the test split; draw how reliable probabilities are, and the molecules predicted worst."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup
from scipy.stats import beta

from graphbench.diagnostics.figures.molecules import molecule_png
from graphbench.errors import BadInput
from graphbench.report.figures import RULE, Panel, Section, Style, panel_axes, shorten, svg
from graphbench.report.groups import Group
from graphbench.report.loading import Run, is_number
from graphbench.report.scores import ResultTable

#: Metrics that only regressions have.
REGRESSION = ("MAE", "RMSE", "MSE", "R2", "Spearman", "Pearson", "explained_variance")


@dataclass(frozen=True)
class Target:
    """One target of a regression, in the rows where it is known.

    Args:
        name: "" where there is but one.
        rows: index of these rows in the file.
        predicted: `[rows]`.
        true: `[rows]`.
        low, high: ends of the intervals `[rows]`, None without.
        label: the target's own name where intervals tell it, else `name`.
    """

    name: str
    rows: np.ndarray
    predicted: np.ndarray
    true: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    label: str = ""

    @property
    def residuals(self) -> np.ndarray:
        """Predicted less true `[rows]`."""
        return self.predicted - self.true


def scored_runs(table: ResultTable) -> Iterator[tuple[int, Group, Run]]:
    """Of every group the first run that was tested and has test predictions, with the number of the group."""
    for number, group in enumerate(table.groups):
        for run in group.runs:
            if run.predictions is not None and run.scores("test"):
                yield number, group, run
                break


def target_columns(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Name of each target, column of its predictions and column of the truth."""
    pairs = []
    for column in map(str, frame.columns):
        if column == "prediction" or column.startswith("prediction_"):
            target = column.removeprefix("prediction").removeprefix("_")
            true = f"target_{target}" if target else "target"
            if true in frame:
                pairs.append((target, column, true))
    return pairs


def targets_of(frame: pd.DataFrame) -> list[Target]:
    """Those of a regression that are known in some row."""
    names = [c.removesuffix("_low") for c in map(str, frame.columns) if c.endswith("_low")]
    intervals = [name for name in names if f"{name}_high" in frame]
    found = []
    for name, predicted, true in target_columns(frame):
        own = intervals[0] if not name and len(intervals) == 1 else name if name in intervals else None
        columns = [predicted, true] + ([f"{own}_low", f"{own}_high"] if own else [])
        known = frame[columns].apply(pd.to_numeric, errors="coerce").dropna()
        if known.empty:
            continue
        values = [known[column].to_numpy(float) for column in columns]
        low, high = values[2:] if own else (None, None)
        found.append(Target(name, known.index.to_numpy(), values[0], values[1], low, high, own or name))
    return found


def choices_of(frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Confidences and whether they were right, for classes and labels.

    Returns:
        Of every known class the probability of the predicted one, whether that is the true one, and the probability of
        the true one; of every known label the probability of yes, whether yes is true, and the probability of what is
        true: `[n]` each. None where the file holds no probabilities.
    """
    names = [column for column in map(str, frame.columns) if column.startswith("prediction_")]
    if {"head", "tail"} & set(frame.columns):
        return None
    if "target" in frame and len(names) > 1:
        rows = frame[[*names, "target"]].apply(pd.to_numeric, errors="coerce").dropna()
        probabilities, truth = rows[names].to_numpy(float), rows["target"].to_numpy(int)
        inside = (truth >= 0) & (truth < len(names))
        probabilities, truth = probabilities[inside], truth[inside]
        if not len(truth) or not _are_probabilities(probabilities):
            return None
        best = probabilities.argmax(1)
        numbers = np.arange(len(best))
        return probabilities[numbers, best], best == truth, probabilities[numbers, truth]
    found = [(target.predicted, target.true) for target in targets_of(frame)]
    if not found:
        return None
    yes, truth = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if not _are_probabilities(yes) or not np.isin(truth, (0, 1)).all():
        return None
    return yes, truth == 1, np.where(truth == 1, yes, 1 - yes)


def _are_probabilities(values: np.ndarray) -> bool:
    return bool(((values >= 0) & (values <= 1 + 1e-6)).all())


_BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Probabilities in bins of equal width, without the empty ones.

    Args:
        confidence: mean probability of each bin.
        share: how many of each bin were right.
        count: how many there are.

    Examples:
        >>> found = Reliability.of(np.array([0.61, 0.62, 0.95]), np.array([True, False, True]))
        >>> found.count.tolist(), found.share.tolist(), round(found.error, 4)
        ([2, 1], [0.5, 1.0], 0.0933)
    """

    confidence: np.ndarray
    share: np.ndarray
    count: np.ndarray

    @classmethod
    def of(cls, confidence: np.ndarray, right: np.ndarray, bins: int = _BINS) -> Reliability:
        """That of probabilities `[n]`, and whether what they are of came true `[n]`."""
        place = np.digitize(confidence, np.linspace(0, 1, bins + 1)[1:-1])
        count = np.bincount(place, minlength=bins)
        kept = count > 0
        means = [np.bincount(place, values, bins)[kept] / count[kept] for values in (confidence, right.astype(float))]
        return cls(means[0], means[1], count[kept])

    @property
    def error(self) -> float:
        """Expected calibration error: mean over all n of |share - confidence| of their bin (Guo et al. 2017)."""
        return float((self.count * np.abs(self.share - self.confidence)).sum() / self.count.sum())

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 95 % confidence interval of each share (Clopper & Pearson 1934)."""
        hits = self.share * self.count
        low = np.where(hits > 0, beta.ppf(0.025, np.maximum(hits, 1e-9), self.count - hits + 1), 0.0)
        missed = self.count - hits
        high = np.where(missed > 0, beta.ppf(0.975, hits + 1, np.maximum(missed, 1e-9)), 1.0)
        return low, high


def reliability_section(table: ResultTable, name: str) -> Section | None:
    """A reliability diagram for the runs that were tested and have probabilities; None for regressions."""
    if table.metric in REGRESSION:
        return None
    section = Section(
        name, "Are probabilities shares?",
        "Test predictions by the probability that the model gives its answer (of labels: a yes), and how many of them "
        "come true, with 95 % confidence intervals. On the line a probability of 80 % is right in 80 of 100 rows; "
        "below it the model is too sure. ECE is the mean distance from the line.",
    )  # fmt: skip
    for number, group, run in scored_runs(table):
        assert run.predictions is not None
        found = choices_of(run.predictions)
        if found is None:
            continue
        reliability = Reliability.of(*found[:2])
        style, title = Style(number), shorten(group.label)
        with panel_axes((3.7, 3.5)) as (figure, axes):
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
            axes.set_title(title)
            axes.set_xlabel("probability")
            axes.set_ylabel("share that comes true")
            drawn = svg(figure, f"Reliability of {title}: ECE {reliability.error:.4f}", f"{name}-{number}")
        total = int(reliability.count.sum())
        caption = f"Seed {run.seed}, {total:,} predictions, ECE {reliability.error:.4f} in {_BINS} bins."
        if is_number(temperature := run.results.get("temperature")):
            caption += f" Calibrated on the validation split: temperature {temperature:.4g}."
        section.panels.append(Panel(drawn, caption))
    return section if section.panels else None


#: Molecules that are drawn of each model.
SHOWN = 6


def worst_section(table: ResultTable, name: str) -> Section | None:
    """The molecules with the largest errors of every model; None where predictions come without SMILES."""
    section = Section(
        name, "Largest errors",
        "The molecules of the test split that each model predicts worst: of regressions by the error in units of the "
        "target's root mean square error, of classes by the probability of the true one.",
    )  # fmt: skip
    for _, group, run in scored_runs(table):
        frame = run.predictions
        if frame is None or "smiles" not in frame:
            continue
        rows = _worst_values(frame) if table.metric in REGRESSION else _worst_classes(frame)
        try:
            section.panels += [_drawn(frame, row, f"{group.label}, {told}", run) for row, told in rows]
        except BadInput as error:
            section.notes.append(f"The molecules are not drawn: {error}")
            break
    return section if section.panels or section.notes else None


def _worst_values(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Rows of a regression, worst first, with what was said of them."""
    found: dict[int, tuple[float, str]] = {}
    for target in targets_of(frame):
        scaled = np.abs(target.residuals) / (np.sqrt((target.residuals**2).mean()) or 1.0)
        for place in np.argsort(-scaled, kind="stable")[:SHOWN]:
            row, name = int(target.rows[place]), f"{target.name} " if target.name else ""
            told = f"{name}predicted {target.predicted[place]:.4g}, true {target.true[place]:.4g}"
            if row not in found or scaled[place] > found[row][0]:
                found[row] = (float(scaled[place]), told)
    return [(row, told) for row, (_, told) in sorted(found.items(), key=lambda item: -item[1][0])[:SHOWN]]


def _worst_classes(frame: pd.DataFrame) -> list[tuple[int, str]]:
    """Rows of a classification whose true class was thought least probable; labels have no such order."""
    names = [column for column in map(str, frame.columns) if column.startswith("prediction_")]
    if "target" not in frame or not names or choices_of(frame) is None:
        return []
    rows = frame[[*names, "target"]].apply(pd.to_numeric, errors="coerce").dropna()
    rows = rows[rows["target"].between(0, len(names) - 1)]
    probabilities, truth = rows[names].to_numpy(float), rows["target"].to_numpy(int)
    own = probabilities[np.arange(len(truth)), truth]
    classes = [name.removeprefix("prediction_") for name in names]
    return [
        (int(rows.index[place]), f"true class {classes[truth[place]]}, its probability {own[place]:.4g}")
        for place in np.argsort(own, kind="stable")[:SHOWN]
    ]


def _drawn(frame: pd.DataFrame, row: int, told: str, run: Run) -> Panel:
    smiles = str(frame["smiles"].iloc[row])
    name = f" {frame['id'].iloc[row]}" if "id" in frame else ""
    png = molecule_png(smiles)
    if png is None:
        return Panel(Markup("<code>{}</code>").format(smiles), f"Row{name} ({told}, seed {run.seed})")
    data = base64.b64encode(png).decode("ascii")
    figure = Markup('<img src="data:image/png;base64,{}" alt="{}">').format(Markup(data), smiles)
    return Panel(figure, f"Row{name} ({told}, seed {run.seed}): {smiles}")
