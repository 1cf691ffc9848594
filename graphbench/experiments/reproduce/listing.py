"""What `graphbench reproduce --list` says of tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

from graphbench.experiments.reproduce.recipes import availability, benchmark_of, can_be_offline, cost_of
from graphbench.experiments.reproduce.tables import WAYS, Cell, Table


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
