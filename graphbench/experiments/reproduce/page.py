"""The page of results: what every record says, beside what papers print, written and never typed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.rendering import markdown_table, several, span
from graphbench.experiments.reproduce.tables import Cell, Table

_HEAD = """# Results

Written by `graphbench reproduce --records ... --page RESULTS.md` out of {count:,} records of runs, which are in the
repository with their curves; nothing here is typed by hand. **Short** is what was trained for less than the published
training, or by a reduced recipe: such a score does not compare with a printed one, and a row of one seed says nothing
about the next. Mean and standard deviation are over seeds; scores are those of the epoch with the best validation
score, or of the last epoch where the recipe says so. Graphs that are **redrawn** are the published ones in validation
and test, and another sample of the same set in training.
"""
_ROW = ("model", "data", "recipe", "parameters", "trained", "seeds", "validation", "test", "printed")


def _number(value: float | None) -> str:
    """Four digits after the point, fewer for large values."""
    return "–" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def _spread(values: Sequence[float | None]) -> str:
    """Mean and standard deviation; a dash where one is not known."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return "–"
    return _number(fmean(known)) + (f" ± {_number(stdev(known))}" if len(known) > 1 else "")


def _length(group: Sequence[Record]) -> str:
    """How long runs were, and whether that is what was published."""
    counts = ([record.epochs for record in group], "epoch"), ([record.steps for record in group], "step")
    parts = [span(numbers, noun) for numbers, noun in counts if all(numbers)]
    told = {True: ["whole"], False: ["**short**"], None: []}[group[0].full]
    return ", ".join([*told, *parts]) or "–"


def _group(record: Record) -> tuple[object, ...]:
    """Runs that differ in their seed alone; whole ones, which a falling rate may end, also in how long they were."""
    length = None if record.full else (record.epochs, record.steps)
    return (
        record.name, record.column, record.benchmark, record.metric, record.recipe, record.options, record.parameters,
        length, record.full, record.data, record.note,
    )  # fmt: skip


def _grouped(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[tuple[object, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(_group(record), []).append(record)
    return [sorted(group, key=lambda record: record.seed) for group in groups.values()]


def printed_values(
    tables: Iterable[Table],
) -> dict[tuple[tuple[str, ...], tuple[str, ...], str], list[tuple[Table, Cell]]]:
    """Recipe, options and metric -> the printed values that this training obtains."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...], str], list[tuple[Table, Cell]]] = {}
    for table in tables:
        for cell in table.cells:
            if cell.way == "recipe" and cell.printed.text and cell.metric.startswith("test/"):
                key = (cell.recipe, cell.options, cell.metric.removeprefix("test/"))
                found.setdefault(key, []).append((table, cell))
    return found


def _origin(records: Sequence[Record]) -> str:
    """When, where and with what the runs of a heading were made."""
    facts = []
    for name, values in (
        ("", sorted({record.date for record in records if record.date})),
        ("commit ", sorted({_commit(record.commit) for record in records if record.commit})),
        ("", sorted({record.versions for record in records if record.versions})),
        ("", sorted({record.hardware for record in records if record.hardware})),
    ):
        facts += [name + ", ".join(values)] if values else []
    seconds = [record.seconds for record in records if record.seconds is not None]
    if seconds:
        total = sum(seconds)
        told = f"{total / 3600:.1f} hours" if total >= 3600 else several(round(total / 60), "minute")
        facts.append(f"{told} of wall time in {several(len(seconds), 'run')}")
    return "; ".join(facts) + "." if facts else "How these runs were made is not recorded."


def _commit(commit: str) -> str:
    """A commit as people write it, and whether files differed from it.

    Examples:
        >>> _commit("3c6c5078cbb5-dirty")
        '3c6c507 with changes'
        >>> _commit("3c6c5078cbb5, 7e8f90a1b2c3")  # of a run that went on with other code
        '3c6c507 and 7e8f90a'
    """
    parts = commit.split(", ")
    return " and ".join(part[:7] + (" with changes" if part.endswith("-dirty") else "") for part in parts)


def _short(option: str) -> str:
    """An option without the path to it, which its record has.

    Examples:
        >>> _short("--model.architecture.init_args.num_layers=12")
        'num_layers=12'
    """
    name, sign, value = option.partition("=")
    return name.lstrip("-").rpartition(".")[2] + sign + value


class Page:
    """RESULTS.md.

    Args:
        tables: whose printed values stand beside the scores.
    """

    def __init__(self, tables: Iterable[Table]) -> None:
        self.printed = printed_values(tables)

    def text(self, records: Sequence[Record]) -> str:
        """The whole page: a section for each experiment, in their order by name."""
        head, names = _HEAD.format(count=len(records)), sorted({record.experiment for record in records})
        sections = [self._section(name, [record for record in records if record.experiment == name]) for name in names]
        return "\n".join([head, *sections])

    def _section(self, experiment: str, records: Sequence[Record]) -> str:
        lines = [f"## {experiment}", "", _origin(records), ""]
        for note in dict.fromkeys(record.note for record in records if record.note):
            lines += [note, ""]
        groups = _grouped(records)
        if any(record.column for record in records) and not any(self._beside(group[0]) for group in groups):
            lines += self._grid(groups)
        else:
            lines += markdown_table(_ROW, [self._row(group) for group in groups])
        return "\n".join([*lines, ""])

    def _beside(self, record: Record) -> str:
        """Printed values of the same recipe, in the unit in which they are printed."""
        if record.altered:
            return ""
        found = self.printed.get((record.recipe, record.options, record.metric), [])
        return "<br>".join(
            dict.fromkeys(f"{cell.printed.text} ({table.paper}, {table.place})" for table, cell in found)
        )

    def _row(self, group: Sequence[Record]) -> list[str]:
        one = group[0]
        recipe = " + ".join(one.recipe) + "".join(f" `{_short(option)}`" for option in one.options)
        recipe += f" (altered: {'; '.join(one.altered)})" if one.altered else ""
        name = f"{one.name}, {one.column}" if one.column else one.name
        seeds = ", ".join(str(record.seed) for record in group)
        data = " ".join(filter(None, (one.data, one.benchmark)))
        parameters = f"{one.parameters:,}" if one.parameters else "–"
        val, test = (_spread([getattr(record, split) for record in group]) for split in ("val", "test"))
        return [
            name, data, recipe, parameters, _length(group), seeds, val, f"{test} {one.metric}", self._beside(one),
        ]  # fmt: skip

    def _grid(self, groups: Sequence[Sequence[Record]]) -> list[str]:
        """Curves of points: a line for each row and a column for each point, test scores with the seeds behind."""
        columns = list(dict.fromkeys(group[0].column for group in groups))
        rows: dict[str, dict[str, list[str]]] = {}
        for group in groups:
            one = group[0]
            score = _spread([record.test for record in group]) + f" ({several(len(group), 'seed')})"
            name = f"{one.name}, {_kind(one)}"
            rows.setdefault(name, {}).setdefault(one.column, []).append(score)
        lines = [[name, *("<br>".join(cells.get(column, ["–"])) for column in columns)] for name, cells in rows.items()]
        return markdown_table([f"test {groups[0][0].metric}", *columns], lines)


def _kind(record: Record) -> str:
    return {True: "whole", False: "**short**", None: "length not known"}[record.full]
