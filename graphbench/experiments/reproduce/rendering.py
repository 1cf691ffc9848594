"""Write a table with printed and obtained values side by side, as Markdown, CSV and HTML, or list its values."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from graphbench.data.files.writing import write_text
from graphbench.experiments.reproduce.obtained import Obtained
from graphbench.experiments.reproduce.plan import Request
from graphbench.experiments.reproduce.recipes import availability, benchmark_of, can_be_offline, cost_of
from graphbench.experiments.reproduce.tables import WAYS, Cell, Table

_COLUMNS = (
    "table", "row", "column", "printed", "printed_sd", "way", "recipe", "obtained", "sd", "seeds", "verdict", "full",
    "epochs", "steps", "parameters", "data", "hardware", "commit", "altered", "why", "source",
)  # fmt: skip
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #d0d7de; padding: .3rem .7rem; text-align: right; vertical-align: top; }
th:first-child, td:first-child, td.text { text-align: left; }
small { color: #57606a; display: block; }
.met, .better { color: #1a7f37; }
.not { color: #cf222e; }
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p>{{ told }}</p>
<table>
<thead><tr>{% for name in header %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for name, cells in rows %}<tr><th scope="row">{{ name }}</th>
{%- for one in cells %}<td>{% if one %}{{ one.printed }}<small class="{{ one.mark }}">{{ one.below }}</small>
{%- endif %}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table>
<h2>Every value</h2>
<table>
<thead><tr>{% for name in details_header %}<th scope="col">{{ name }}</th>{% endfor %}</tr></thead>
<tbody>
{% for row in details %}<tr>{% for value in row %}<td class="text">{{ value }}</td>{% endfor %}</tr>
{% endfor %}</tbody>
</table>
</body>
</html>
"""
_DETAILS = ("row", "column", "printed", "obtained", "verdict", "trained", "parameters", "data", "how, or why not")


def number(value: float | None, like: str = "") -> str:
    """A number with as many places as the printed one has, and one more; four where it has none.

    Examples:
        >>> number(0.07123, "0.070 ± 0.004"), number(612705.0, "612,705"), number(None)
        ('0.0712', '612,705', '')
    """
    if value is None:
        return ""
    digits = like.partition("±")[0].strip()
    if "e" in digits:
        return f"{value:g}"
    if "." not in digits and float(value).is_integer():
        return f"{int(value):,}"
    places = len(digits.partition(".")[2].rstrip("kM%s*")) + 1 if "." in digits else 4
    return f"{value:.{places}f}" if abs(value) < 1e6 else f"{value:.6g}"


def spread(one: Obtained) -> str:
    """What was obtained: mean and standard deviation, or a text; and how many seeds beside these diverged."""
    mean = number(one.mean, one.cell.printed.text) or one.text
    mean += f" ± {number(one.sd, one.cell.printed.text)}" if one.sd is not None else ""
    return mean + (f" ({len(one.diverged)} diverged)" if one.diverged and one.seeds else "")


def _why(one: Obtained) -> str:
    """How a value is obtained, or why not."""
    cell = one.cell
    names = " + ".join(cell.recipe)
    told = {
        "recipe": names,
        "count": f"parameters of {names}",
        "setting": f"{cell.what} of {names}",
        "fact": f"{cell.what} of the benchmark",
        "script": cell.what,
        "quoted": f"quoted: {cell.what}",
        "missing": f"model is missing: {cell.what}",
        "unwritten": f"recipe is missing: {cell.what}",
    }[cell.way]
    told += f". Differs from the paper: {cell.differs}" if cell.differs else ""
    return f"{told}. {cell.note}" if cell.note else told


def _trained(one: Obtained) -> str:
    """How long the runs were, and how many."""
    if not one.seeds:
        return ""
    length = several(one.steps or 0, "step") if one.epochs is None else several(one.epochs, "epoch")
    kind = "altered" if one.altered else "full" if one.full else "short"
    return f"{kind}, {length}, {several(len(one.seeds), 'seed')}"


def several(count: int, noun: str) -> str:
    """A number and its noun, in the singular or the plural."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def span(counts: Sequence[int | None], noun: str) -> str:
    """The least and the most of some numbers, and their noun.

    Examples:
        >>> span([150, 170], "epoch"), span([1, 1], "epoch")
        ('150 to 170 epochs', '1 epoch')
    """
    known = sorted({count or 0 for count in counts})
    told = several(known[-1], noun)
    return f"{known[0]:,} to {told}" if len(known) > 1 else told


def csv_rows(table: Table, found: Sequence[Obtained]) -> list[dict[str, Any]]:
    """One row a value, with all that is known of it."""
    return [
        {
            "table": table.name,
            "row": one.cell.row_name,
            "column": one.cell.column_name,
            "printed": one.cell.printed.text,
            "printed_sd": one.cell.printed.sd,
            "way": one.cell.way,
            "recipe": " + ".join(one.cell.recipe),
            "obtained": one.mean if one.mean is not None else one.text,
            "sd": one.sd,
            "seeds": len(one.seeds) or None,
            "verdict": one.verdict,
            "full": one.full,
            "epochs": one.epochs,
            "steps": one.steps,
            "parameters": one.parameters,
            "data": one.data,
            "hardware": one.hardware,
            "commit": one.commit,
            "altered": "; ".join(one.altered),
            "why": _why(one),
            "source": one.cell.source,
        }
        for one in found
    ]


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _told(table: Table, found: Sequence[Obtained], request: Request) -> str:
    """What the table says, and how its runs were asked for."""
    scale = {"full": "the whole recipes", "short": "short runs", "smoke": "a few steps each, which no score says"}
    seeds = several(len(request.seeds), "seed")
    altered = [one for one in found if one.altered]
    whole = [one for one in found if one.seeds and not one.altered]
    kind = "altered recipes" if altered and not whole else scale[request.scale]
    told = f"{table.paper}, {table.place}. Printed values above, obtained ones below: {kind}, {seeds}."
    if altered:
        which = "; ".join(dict.fromkeys(text for one in altered for text in one.altered))
        told += f" {several(len(altered), 'value')} of altered runs, which meet or miss nothing: {which}."
    return f"{told} {table.note}".strip()


def _detail_rows(found: Sequence[Obtained]) -> list[list[str]]:
    return [
        [
            one.cell.row_name, one.cell.column_name, one.cell.printed.text, spread(one), one.verdict, _trained(one),
            number(one.parameters, "1"), one.data, _why(one),
        ]
        for one in found
    ]  # fmt: skip


def _grid(table: Table, found: Sequence[Obtained]) -> tuple[list[str], list[tuple[str, list[Obtained | None]]]]:
    """Names of columns, and per row its name and cells, as far as they were asked for."""
    by_place = {(one.cell.row, one.cell.column): one for one in found}
    columns = [key for key in table.columns if any(place[1] == key for place in by_place)]
    rows = [key for key in table.row_names if any(place[0] == key for place in by_place)]
    names = {one.cell.row: one.cell.row_name for one in found}
    grid = [(names[row], [by_place.get((row, column)) for column in columns]) for row in rows]
    return [table.columns[key].name for key in columns], grid


def _below(one: Obtained) -> str:
    """What stands under a printed value."""
    return spread(one) or {"missing": "no model", "unwritten": "no recipe", "quoted": "quoted"}.get(one.cell.way, "–")


def markdown(table: Table, found: Sequence[Obtained], request: Request) -> str:
    """The grid, then every value with what is known of it."""
    header, grid = _grid(table, found)
    lines = [f"# {table.name}: {table.title}", "", _told(table, found, request), ""]
    lines += markdown_table(
        ["", *header],
        [
            [name, *(f"{one.cell.printed.text}<br>{_below(one)}" if one else "" for one in cells)]
            for name, cells in grid
        ],
    )
    lines += ["", "## Every value", "", *markdown_table(list(_DETAILS), _detail_rows(found)), ""]
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table; a stroke in a cell is escaped."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"

    return [line(header), f"|{'|'.join('---' for _ in header)}|", *map(line, rows)]


def html(table: Table, found: Sequence[Obtained], request: Request) -> str:
    """One page without scripts or network."""
    header, grid = _grid(table, found)
    rows = [
        (
            name,
            [
                one and {"printed": one.cell.printed.text, "below": _below(one), "mark": one.verdict.partition(" ")[0]}
                for one in cells
            ],
        )
        for name, cells in grid
    ]
    template = Environment(autoescape=True).from_string(_PAGE)
    return template.render(
        title=f"{table.name}: {table.title}", told=_told(table, found, request), header=["", *header], rows=rows,
        details_header=_DETAILS, details=_detail_rows(found),
    )  # fmt: skip


def write_table(table: Table, found: Sequence[Obtained], request: Request, output: Path) -> list[Path]:
    """Write the three files beside the runs; a reader sees each as a whole.

    Returns:
        Their paths.
    """
    stem = table.name.replace("/", "-") + ("" if request.scale == "full" else f".{request.scale}")
    texts = {
        "html": html(table, found, request),
        "md": markdown(table, found, request),
        "csv": _csv(csv_rows(table, found)),
    }
    paths = [output / f"{stem}.{ending}" for ending in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_text(path, text)
    return paths


def data_of(table: Table) -> dict[str, str]:
    """Benchmark -> where its data are from, for every benchmark of a table."""
    names = [table.columns[cell.column].benchmark or benchmark_of(cell.recipe) for cell in table.cells]
    return {name: availability(name) for name in dict.fromkeys(names) if name}


def summary(table: Table) -> dict[str, Any]:
    """A table in a line: how many values by which way, and how many can be trained without a network."""
    ways = Counter(cell.way for cell in table.cells)
    trained = [cell for cell in table.cells if cell.way == "recipe"]
    return {
        "name": table.name,
        "title": table.title,
        "paper": table.paper,
        "place": table.place,
        "values": len(table.cells),
        "printed": sum(bool(cell.printed.text) for cell in table.cells),
        "seeds": table.seeds,
        "ways": {way: ways[way] for way in WAYS if ways[way]},
        "offline": sum(can_be_offline(cell.recipe) for cell in trained),
        "data": data_of(table),
        "distribution": table.distribution,
    }


def cell_record(table: Table, cell: Cell) -> dict[str, Any]:
    """All that is known of a value before anything is trained."""
    column = table.columns[cell.column]
    record: dict[str, Any] = {
        "row": cell.row,
        "row_name": cell.row_name,
        "column": cell.column,
        "column_name": cell.column_name,
        "printed": cell.printed.text,
        "value": cell.printed.value,
        "sd": cell.printed.sd,
        "source": cell.source,
        "way": cell.way,
        "why": cell.what,
        "note": cell.note,
        "differs": cell.differs,
    }
    if cell.recipe:
        benchmark = benchmark_of(cell.recipe)
        record |= {"recipe": list(cell.recipe), "options": list(cell.options), "benchmark": benchmark}
    if cell.way == "recipe":
        record |= {
            "after": list(cell.after),
            "starts": cell.starts,
            "metric": column.metric,
            "data": availability(benchmark),
            "offline": can_be_offline(cell.recipe),
            "cost": cost_of(cell),
        }
    return record


def records(table: Table) -> dict[str, Any]:
    """A table with all of its values."""
    return summary(table) | {"cells": [cell_record(table, cell) for cell in table.cells]}
