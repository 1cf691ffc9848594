"""Write a table with printed and obtained values side by side, as Markdown, CSV and HTML, or list its values."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment

from graphbench.data.files.writing import write_text
from graphbench.experiments import write_csv
from graphbench.experiments.reproduce.drawing import draw
from graphbench.experiments.reproduce.obtained import Obtained
from graphbench.experiments.reproduce.plan import Request
from graphbench.experiments.reproduce.recipes import availability, benchmark_of, can_be_offline, cost_of
from graphbench.experiments.reproduce.tables import WAYS, Cell, Table

_TEMPLATE = Path(__file__).parent / "table.html.jinja"
_DETAILS = (
    "row", "column", "printed", "best known", "obtained", "verdict", "trained", "parameters", "data",
    "how, or why not",
)  # fmt: skip


def number(value: float | None, like: str = "") -> str:
    """Format a number with one decimal more than the printed one, or four if that has none.

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
    # Only digits, without the unit or mark after them: 421.5k, 0.07*.
    places = len(digits.partition(".")[2].rstrip("kM%s*")) + 1 if "." in digits else 4
    return f"{value:.{places}f}" if abs(value) < 1e6 else f"{value:.6g}"


def spread(one: Obtained) -> str:
    """Format mean and standard deviation, or a text, and the number of diverged seeds."""
    like = one.cell.printed.text
    mean = number(one.mean, like) or one.text
    mean += f" ± {number(one.sd, like)}" if one.sd is not None else ""
    return mean + (f" ({len(one.diverged)} diverged)" if one.diverged and one.seeds else "")


def _reason(one: Obtained) -> str:
    """Describe how a value is obtained, or why not."""
    cell = one.cell
    names = " + ".join(cell.recipe)
    way = {
        "recipe": names,
        "count": f"parameters of {names}",
        "setting": f"{cell.what} of {names}",
        "fact": f"{cell.what} of the benchmark",
        "script": cell.what,
        "quoted": f"quoted: {cell.what}",
        "missing": f"model is missing: {cell.what}",
        "unwritten": f"recipe is missing: {cell.what}",
    }[cell.way]
    differs = f"Differs from the paper: {cell.differs}" if cell.differs else ""
    return ". ".join(filter(None, (way, differs, cell.note)))


def _trained(one: Obtained) -> str:
    """Describe how long the runs were, and how many there are."""
    if not one.seeds:
        return ""
    length = several(one.steps or 0, "step") if one.epochs is None else several(one.epochs, "epoch")
    kind = "altered" if one.altered else "full" if one.full else "short"
    return f"{kind}, {length}, {several(len(one.seeds), 'seed')}"


def several(count: int, noun: str) -> str:
    """Format a count with its noun, singular or plural."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def span(counts: Sequence[int | None], noun: str) -> str:
    """Format the range of some counts with their noun.

    Examples:
        >>> span([150, 170], "epoch"), span([1, 1], "epoch")
        ('150 to 170 epochs', '1 epoch')
    """
    numbers = sorted({count or 0 for count in counts})
    largest = several(numbers[-1], noun)
    return f"{numbers[0]:,} to {largest}" if len(numbers) > 1 else largest


def csv_rows(table: Table, values: Sequence[Obtained]) -> list[dict[str, Any]]:
    """Return one row per value, with everything recorded about it."""
    return [
        {
            "table": table.name,
            "row": one.cell.row_name,
            "column": one.cell.column_name,
            "printed": one.cell.printed.text,
            "printed_sd": one.cell.printed.sd,
            "best_known": one.cell.best,
            "best_source": one.cell.best_source,
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
            "why": _reason(one),
            "source": one.cell.source,
        }
        for one in values
    ]


def _lead(table: Table, values: Sequence[Obtained], request: Request) -> str:
    """Describe what the table shows, and how its runs were trained."""
    scale = {
        "full": "the whole recipes",
        "short": "short runs",
        "smoke": "validation after two steps, no score",
    }
    altered = [one for one in values if one.altered]
    whole = [one for one in values if one.seeds and not one.altered]
    kind = "altered recipes" if altered and not whole else scale[request.scale]
    seeds = several(len(request.seeds), "seed")
    lead = f"{table.paper}, {table.place}. Printed values above, obtained ones below: {kind}, {seeds}."
    if altered:
        changes = "; ".join(dict.fromkeys(text for one in altered for text in one.altered))
        lead += f" {several(len(altered), 'value')} of altered runs, which meet or miss nothing: {changes}."
    return f"{lead} {table.note}".strip()


def _detail_rows(values: Sequence[Obtained]) -> list[list[str]]:
    return [
        [
            one.cell.row_name, one.cell.column_name, one.cell.printed.text, one.cell.best_known, spread(one),
            one.verdict, _trained(one), number(one.parameters, "1"), one.data, _reason(one),
        ]
        for one in values
    ]  # fmt: skip


def _grid(table: Table, values: Sequence[Obtained]) -> tuple[list[str], list[tuple[str, list[Obtained | None]]]]:
    """Return the names of columns, and the name and cells of each row, without empty ones."""
    by_place = {(one.cell.row, one.cell.column): one for one in values}
    columns = [key for key in table.columns if any(place[1] == key for place in by_place)]
    rows = [key for key in table.row_names if any(place[0] == key for place in by_place)]
    names = {one.cell.row: one.cell.row_name for one in values}
    grid = [(names[row], [by_place.get((row, column)) for column in columns]) for row in rows]
    return [table.columns[key].name for key in columns], grid


def _below(one: Obtained) -> str:
    """Return the text below a printed value."""
    return spread(one) or {"missing": "no model", "unwritten": "no recipe", "quoted": "quoted"}.get(one.cell.way, "–")


def markdown(table: Table, values: Sequence[Obtained], request: Request, figure: str = "") -> str:
    """Write the grid, then every value with its details; `figure` is the name of a file next to it."""
    header, grid = _grid(table, values)
    lines = [f"# {table.name}: {table.title}", "", _lead(table, values, request), ""]
    lines += [f"![{table.title}]({figure})", ""] if figure else []
    rows = [[name, *(f"{one.cell.printed.text}<br>{_below(one)}" if one else "" for one in row)] for name, row in grid]
    lines += markdown_table(["", *header], rows)
    lines += ["", "## Every value", "", *markdown_table(list(_DETAILS), _detail_rows(values)), ""]
    return "\n".join(lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, with vertical bars in cells escaped."""

    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"

    return [line(header), f"|{'|'.join('---' for _ in header)}|", *map(line, rows)]


def html(table: Table, values: Sequence[Obtained], request: Request, figure: str = "") -> str:
    """Render one page without scripts or network, with `figure`, an SVG."""

    def shown(one: Obtained) -> dict[str, str]:
        mark = one.verdict.partition(" ")[0]  # a class of the style sheet
        return {"printed": one.cell.printed.text, "below": _below(one), "mark": mark}

    header, grid = _grid(table, values)
    rows = [(name, [one and shown(one) for one in cells]) for name, cells in grid]
    template = Environment(autoescape=True).from_string(_TEMPLATE.read_text(encoding="utf-8"))
    return template.render(
        title=f"{table.name}: {table.title}", lead=_lead(table, values, request), header=["", *header], rows=rows,
        details_header=_DETAILS, details=_detail_rows(values), alt=table.title,
        figure=base64.b64encode(figure.encode()).decode(),
    )  # fmt: skip


def write_table(table: Table, values: Sequence[Obtained], request: Request, output: Path) -> list[Path]:
    """Write the table as HTML, Markdown and CSV next to the runs, and its figure as SVG; return the paths."""
    stem = table.name.replace("/", "-") + ("" if request.scale == "full" else f".{request.scale}")
    paths = [output / f"{stem}.{suffix}" for suffix in ("html", "md", "csv", "svg")]
    figure = draw(table, values, request, output)
    write_text(paths[0], html(table, values, request, figure))
    write_text(paths[1], markdown(table, values, request, paths[3].name if figure else ""))
    write_csv(paths[2], csv_rows(table, values))
    if not figure:
        return paths[:3]
    write_text(paths[3], figure)
    return paths


def data_of(table: Table) -> dict[str, str]:
    """Return the origin of the data of every benchmark in a table."""
    names = [table.columns[cell.column].benchmark or benchmark_of(cell.recipe) for cell in table.cells]
    return {name: availability(name) for name in dict.fromkeys(names) if name}


def summary(table: Table) -> dict[str, Any]:
    """Summarize a table: how many values are obtained in each way, and how many can be trained offline."""
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
    """Return everything about a value that needs no training."""
    column = table.columns[cell.column]
    record: dict[str, Any] = {
        "row": cell.row,
        "row_name": cell.row_name,
        "column": cell.column,
        "column_name": cell.column_name,
        "printed": cell.printed.text,
        "value": cell.printed.value,
        "sd": cell.printed.sd,
        "best": cell.best,
        "best_source": cell.best_source,
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
    """Summarize a table and list all of its values."""
    return summary(table) | {"cells": [cell_record(table, cell) for cell in table.cells]}
