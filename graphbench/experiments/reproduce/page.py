"""Write the page of results: scores of all records next to those printed in papers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.rendering import markdown_table, several, span
from graphbench.experiments.reproduce.tables import Cell, Table

_HEAD = """# Results

Written by `graphbench reproduce --records ... --page RESULTS.md` from {count:,} records of runs, which are in the
repository with their curves; nothing here is typed by hand. **Short** runs were trained for less than the published
training, or with a reduced recipe: such a score is not comparable with a printed one, and one seed says nothing about
the next. Mean and standard deviation are over seeds; scores are those of the epoch with the best validation
score, or of the last epoch if the recipe says so. **Redrawn** graphs are the published ones in validation and test,
and another sample of the same set in training. Rows without a name were run by the maintainers; others were sent by the
person they name and checked by `graphbench verify`.
"""
_Printed = dict[tuple[tuple[str, ...], tuple[str, ...], str], list[tuple[Table, Cell]]]
_ROW = ("model", "data", "recipe", "parameters", "trained", "seeds", "validation", "test", "printed")


def _number(value: float | None) -> str:
    """Format with four decimals, or one for large values."""
    return "–" if value is None else f"{value:.4f}" if abs(value) < 100 else f"{value:.1f}"


def _spread(values: Sequence[float | None]) -> str:
    """Format mean and standard deviation; a dash if a value is missing."""
    scores = [value for value in values if value is not None]
    if not scores or len(scores) < len(values):
        return "–"
    return _number(fmean(scores)) + (f" ± {_number(stdev(scores))}" if len(scores) > 1 else "")


def _length(group: Sequence[Record]) -> str:
    """Describe how long runs were, and whether that is the published length."""
    counts = ([record.epochs for record in group], "epoch"), ([record.steps for record in group], "step")
    parts = [span(numbers, noun) for numbers, noun in counts if all(numbers)]
    kind = {True: ["whole"], False: ["**short**"], None: []}[group[0].full]
    return ", ".join([*kind, *parts]) or "–"


def _group(records: Iterable[Record]) -> list[list[Record]]:
    """Group runs that differ only in their seed; full ones, which a falling rate may end, may also differ in length."""
    groups: dict[tuple[object, ...], list[Record]] = {}
    for one in records:
        length = None if one.full else (one.epochs, one.steps)
        key = (
            one.name, one.column, one.benchmark, one.metric, one.recipe, one.options, one.parameters, length, one.full,
            one.data, one.altered, one.note, one.by,
        )  # fmt: skip
        groups.setdefault(key, []).append(one)
    return [sorted(group, key=lambda record: record.seed) for group in groups.values()]


def printed_values(tables: Iterable[Table]) -> _Printed:
    """Index the printed values by the training that obtains them: recipe, options and metric."""
    index: _Printed = {}
    for table in tables:
        for cell in table.cells:
            if cell.way == "recipe" and cell.printed.text and cell.metric.startswith("test/"):
                key = (cell.recipe, cell.options, cell.metric.removeprefix("test/"))
                index.setdefault(key, []).append((table, cell))
    return index


def _origin(records: Sequence[Record]) -> str:
    """Describe when, with which code and versions, and on which hardware runs were trained."""
    facts = []
    for name in ("date", "commit", "versions", "hardware"):
        values = {str(value) for record in records if (value := getattr(record, name))}
        if values and name == "commit":
            facts.append(f"commit {', '.join(sorted(set(map(_commit, values))))}")
        elif values:
            facts.append(", ".join(sorted(values)))
    seconds = [record.seconds for record in records if record.seconds is not None]
    if seconds:
        total = sum(seconds)
        time = f"{total / 3600:.1f} hours" if total >= 3600 else several(round(total / 60), "minute")
        facts.append(f"{time} of wall time in {several(len(seconds), 'run')}")
    return "; ".join(facts) + "." if facts else "How these runs were made is not recorded."


def _commit(commit: str) -> str:
    """Shorten commits, and state whether files differed from them.

    Examples:
        >>> _commit("3c6c5078cbb5-dirty")
        '3c6c507 with changes'
        >>> _commit("3c6c5078cbb5, 7e8f90a1b2c3")  # of a run that resumed with other code
        '3c6c507 and 7e8f90a'
    """
    parts = commit.split(", ")
    return " and ".join(part[:7] + (" with changes" if part.endswith("-dirty") else "") for part in parts)


def _short(option: str) -> str:
    """Drop the path of an option, which its record has.

    Examples:
        >>> _short("--model.architecture.init_args.num_layers=12")
        'num_layers=12'
    """
    name, sign, value = option.partition("=")
    return name.lstrip("-").rpartition(".")[2] + sign + value


class Page:
    """RESULTS.md, with printed values of `tables` next to the scores."""

    def __init__(self, tables: Iterable[Table]) -> None:
        self.printed = printed_values(tables)

    def text(self, records: Sequence[Record]) -> str:
        """Write the whole page: a section for each experiment, sorted by name."""
        head, names = _HEAD.format(count=len(records)), sorted({record.experiment for record in records})
        sections = [self._section(name, [record for record in records if record.experiment == name]) for name in names]
        return "\n".join([head, *sections])

    def _section(self, experiment: str, records: Sequence[Record]) -> str:
        lines = [f"## {experiment}", "", _origin(records), ""]
        for note in dict.fromkeys(record.note for record in records if record.note):
            lines += [note, ""]
        groups = _group(records)
        # Curves without printed values fit into a grid, which has no room for printed values.
        if any(record.column for record in records) and not any(self._beside(group[0]) for group in groups):
            lines += self._grid(groups)
        else:
            lines += markdown_table(_ROW, [self._row(group) for group in groups])
        return "\n".join([*lines, ""])

    def _beside(self, record: Record) -> str:
        """Return the printed values of the same recipe, in their unit."""
        if record.altered:
            return ""
        values = self.printed.get((record.recipe, record.options, record.metric), [])
        return "<br>".join(
            dict.fromkeys(f"{cell.printed.text} ({table.paper}, {table.place})" for table, cell in values)
        )

    def _row(self, group: Sequence[Record]) -> list[str]:
        one = group[0]
        recipe = _recipe(one) + "".join(f" ({text})" for text in _altered(one))
        name = ", ".join([one.name, *filter(None, (one.column, one.by and f"run by {one.by}"))])
        seeds = ", ".join(str(record.seed) for record in group)
        val, test = (_spread([getattr(record, split) for record in group]) for split in ("val", "test"))
        return [
            name, _data(one), recipe, _parameters(one), _length(group), seeds, val, f"{test} {one.metric}",
            self._beside(one),
        ]  # fmt: skip

    def _grid(self, groups: Sequence[Sequence[Record]]) -> list[str]:
        """Tabulate curves: a line for each row and a column for each point, test scores with the number of seeds.

        Points from several kinds of data name theirs, and groups of runs in one cell name what they differ in.
        """
        cells: dict[tuple[str, str], list[Sequence[Record]]] = {}
        for group in groups:
            cells.setdefault((f"{group[0].name}, {_kind(group[0])}", group[0].column), []).append(group)
        origins = {_data(group[0]) for group in groups}
        text = {cell: "<br>".join(_points(several, len(origins) > 1)) for cell, several in cells.items()}
        rows, columns = (list(dict.fromkeys(names)) for names in zip(*cells, strict=True))
        lines = [[row, *(text.get((row, column), "–") for column in columns)] for row in rows]
        head = [f"Data: {origins.pop()}.", ""] if len(origins) == 1 and all(origins) else []
        return head + markdown_table([f"test {groups[0][0].metric}", *columns], lines)


def _points(groups: Sequence[Sequence[Record]], name_data: bool) -> list[str]:
    """Format the groups of runs in one cell of a grid, each with what sets it apart from the others."""
    facts = [[_length(group), _parameters(group[0]), _recipe(group[0]), group[0].by, group[0].note] for group in groups]
    differ = [len(set(values)) > 1 for values in zip(*facts, strict=True)]
    texts = []
    for group, description in zip(groups, facts, strict=True):
        one = group[0]
        named = [several(len(group), "seed"), *([_data(one)] if name_data else []), *_altered(one)]
        named += [fact for fact, differs in zip(description, differ, strict=True) if differs and fact]
        texts.append(f"{_spread([record.test for record in group])} ({', '.join(named)})")
    return texts


def _data(record: Record) -> str:
    return " ".join(filter(None, (record.data, record.benchmark)))


def _parameters(record: Record) -> str:
    return f"{record.parameters:,}" if record.parameters else "–"


def _altered(record: Record) -> list[str]:
    """Describe alterations of the recipe in one phrase, or in none."""
    return [f"altered: {'; '.join(record.altered)}"] if record.altered else []


def _recipe(record: Record) -> str:
    return " + ".join(record.recipe) + "".join(f" `{_short(option)}`" for option in record.options)


def _kind(record: Record) -> str:
    return {True: "whole", False: "**short**", None: "length not known"}[record.full]
