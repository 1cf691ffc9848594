"""What tables of graphs are called, which columns they need, and what to say of rows that do not fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from graphbench.errors import BadInput
from graphbench.tables.frames import row_place, table_file
from graphbench.tables.layout import near

TABLES = ("graphs", "nodes", "edges", "links")
#: Column of every table that says which graph a row is of.
KEY = "graph"
NODE_NAME, ENDS = "node", ("source", "target")


def is_table_folder(folder: Path) -> bool:
    """Whether the folder holds edges and either nodes or graphs."""
    found = table_paths(folder)
    return "edges" in found and bool(found.keys() & {"nodes", "graphs"})


def table_paths(folder: Path) -> dict[str, Path]:
    """The files of the tables that are there, in the order of `TABLES`."""
    return {name: path for name in TABLES if (path := table_file(folder, name)) is not None}


def known_columns(name: str) -> tuple[str, ...]:
    """Columns of a table that have a meaning, and so may be written in another case."""
    return (*_keys(name), *{"nodes": (NODE_NAME,), "graphs": ("num_nodes",)}.get(name, ()))


def _keys(name: str) -> tuple[str, ...]:
    return (KEY, *(ENDS if name in ("edges", "links") else ()))


def first_table(names: Collection[str]) -> str:
    """The table that says which graphs there are, and their order."""
    return "graphs" if "graphs" in names else "nodes"


def is_one_graph(columns: Mapping[str, Sequence[str]]) -> bool:
    """Whether tables with these columns hold one graph, which nothing names."""
    return not any(name == "graphs" or KEY in found for name, found in columns.items())


def need(path: Path, table: str, columns: Sequence[str]) -> None:
    """Refuse a table that lacks a column.

    Raises:
        BadInput: one is missing; names near matches.
    """
    missing = [name for name in _keys(table) if name not in columns]
    if missing:
        raise BadInput(
            f"{path} needs the column{'s' if len(missing) > 1 else ''} {' and '.join(missing)}; it has "
            f"{', '.join(columns) or 'none'}.{near(missing, columns)}"
        )


def without_graph(path: Path, row: int) -> BadInput:
    """What to say of a row that names no graph."""
    return BadInput(f"{row_place(path, row)}: the column {KEY} is empty.")


def listed_twice(path: Path, row: int, name: str) -> BadInput:
    """What to say of the second row of a graph in the table `graphs`."""
    return BadInput(f"{row_place(path, row)}: the graph {name} was listed before.")


def unknown_graph(path: Path, row: int, name: object) -> BadInput:
    """What to say of a row whose graph is not there."""
    known = first_table(table_paths(path.parent))
    return BadInput(f"{row_place(path, row)}: there is no graph {name} in the table {known}.")
