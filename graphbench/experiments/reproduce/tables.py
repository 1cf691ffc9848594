"""Read published tables: rows, columns, printed values, and the recipe that obtains each, or the reason without one.

A table is a YAML file in a distribution's folder `tables`, declared by an entry point of `graphbench.tables`:

    title: Long Range Arena
    paper: SFT, arXiv 2408.05822
    place: table 4
    printed: 10                              # number of values, checked against the cells
    columns:
      listops: {name: ListOps, benchmark: ListOps, metric: test/accuracy, scale: 100}
    rows:
      s4: {missing: S4, cells: {listops: 88.65}}
      sft: {name: SFT-Relative, recipe: "sft/{column}", cells: {listops: 39.95}}

The way to obtain a value is in a cell, its row, its column or the whole table; the nearest counts:

- `recipe`: a configuration and, after ` + `, its overlays. It is trained with `options`, from the best weights of the
  configurations `after`, from the best of `starts` first epochs, and scored with the column's `metric`;
- `count`: true: the trainable parameters of `recipe`;
- `setting`: the value of an option in `recipe`; `fact`: a field of the benchmark's specification;
- `script`: a script of a clone that measures or draws it. With `csv`, a file that it writes into DIR, `graphbench
  reproduce` runs it: keys of rows are in the file's column `row`, and other columns are named by keys of columns;
- `quoted`, `missing`, `unwritten`: it is not obtained, with the reason: it is only quoted, its model is missing, or the
  recipe is missing for an existing model.

A `metric` is the logged name of a score, `diagnostics/FILE.csv#COLUMN` for the mean of a column in the last epoch, or a
cost of the training: `cost/seconds_per_step`, of the fit including validation, or `cost/peak_memory_mb`.

`differs` describes a departure of the recipe from the paper's protocol (another model, split, loss or solver); the
departures of all levels are printed with the value and prevent a verdict.

`best` of a row has, by column, a better value of the same model that was published elsewhere; `best_source` of the
nearest level says where. Both are shown next to the printed value, and decide no verdict. `figure`: see `drawing`.

`{column}`, `{row}` and the names in `with` of row and column are replaced by their values. `cells: all` is a curve
without printed values, with a point in every column.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput, NameClash, UnknownName
from graphbench.experiments.reproduce.printed import Printed
from graphbench.registry import listings
from graphbench.registry.configurations import folder_of
from graphbench.registry.expected import check_keys

log = logging.getLogger(__name__)

#: Ways to obtain a value, as keys of a table file; the first one of a level counts.
WAYS = ("missing", "unwritten", "quoted", "script", "setting", "fact", "count", "recipe")
#: Training costs that a column may show.
COSTS = ("cost/seconds_per_step", "cost/peak_memory_mb")
#: Ways for values that are not obtained.
CLOSED = ("missing", "unwritten", "quoted")
_HELPERS = ("recipe", "options", "after", "starts", "csv", "note", "differs", "best_source", "with")
_TABLE_KEYS = ("title", "paper", "place", "printed", "seeds", "figure", "columns", "rows", *WAYS, *_HELPERS)
_FIGURE_KEYS = ("x", "x_label", "y", "y_label", "file", "where", "panels")
_COLUMN_KEYS = ("name", "benchmark", "metric", "scale", "better", *WAYS, *_HELPERS)
_ROW_KEYS = ("name", "cells", "best", "metric", *WAYS, *_HELPERS)
_CELL_KEYS = ("printed", "metric", *WAYS, *_HELPERS)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str  # its name in the file, the value of `{column}`
    name: str  # heading
    benchmark: str = ""  # registered name of the data, if any
    #: logged name of the score, `diagnostics/FILE.csv#COLUMN` for the mean of its last epoch, or one of `COSTS`; a row
    #: or a cell may name another.
    metric: str = ""
    scale: float = 1.0  # printed value over logged value, 100 for percentages
    better: str = ""  # `higher`, `lower` or ""
    filled: Mapping[str, Any] = field(default_factory=dict)  # names and values of its `with`


@dataclass(frozen=True)
class Cell:
    """A value of a table and how to obtain it."""

    row: str  # key of its row
    column: str  # key of its column
    row_name: str  # the row as printed
    column_name: str  # the column as printed
    printed: Printed
    source: str  # paper, table, row and column
    way: str  # one of `WAYS`
    what: str = ""  # the reason of a closed way, or the option, field or script
    recipe: tuple[str, ...] = ()  # configurations, first to last
    options: tuple[str, ...] = ()  # additional options of `graphbench fit`
    after: tuple[str, ...] = ()  # configurations of a training from whose best weights this one starts
    starts: int = 1  # number of initial weights, of which the best after one epoch are trained
    metric: str = ""  # logged name of the score
    csv: str = ""  # file of a script that has the value
    note: str = ""  # a misprint, a disagreement, or another remark
    differs: str = ""  # departures from the paper's protocol, which prevent a verdict
    best: str = ""  # a better value of the same model that was published elsewhere, if one is known
    best_source: str = ""  # where

    @property
    def best_known(self) -> str:
        """Return `best` with its source in brackets; "" without one."""
        return f"{self.best} ({self.best_source})" if self.best else ""

    @property
    def is_open(self) -> bool:
        """Return whether the value can be obtained."""
        return self.way not in CLOSED


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper."""

    name: str  # for `graphbench reproduce`, such as `sft/table-4`
    title: str  # its subject
    paper: str  # short name of the paper
    place: str  # in the paper, such as `table 4`
    columns: Mapping[str, Column]  # by key, in order
    cells: tuple[Cell, ...]  # row by row, without values missing in the paper
    seeds: int | None = None  # number of runs that the paper averages, if stated
    note: str = ""  # a remark
    distribution: str = ""  # the package that ships it
    row_names: Mapping[str, str] = field(default_factory=dict)  # by key
    #: its figure, see `drawing.py`; empty for a table without one.
    figure: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[tuple[str, str], Cell]:
        """Return row and column -> cell."""
        return {(cell.row, cell.column): cell for cell in self.cells}


def _words(value: Any) -> Sequence[str]:
    return list(map(str, value)) if isinstance(value, list) else str(value or "").split()


def _column(key: str, content: Any, where: str) -> Column:
    column = check_keys(content or {}, _COLUMN_KEYS, f"{where}: columns.{key}")
    fields = {name: column[name] for name in ("benchmark", "metric", "better") if name in column}
    filled = column.get("with") or {}
    return Column(key, str(column.get("name", key)), scale=float(column.get("scale", 1.0)), filled=filled, **fields)


@dataclass(frozen=True)
class _Levels:
    """Keys of a cell, its row, its column and the table; the nearest counts."""

    levels: tuple[Mapping[str, Any], ...]
    names: Mapping[str, Any]  # names and values to fill into texts
    where: str  # for messages

    def nearest(self, key: str) -> Any:
        return next((level[key] for level in self.levels if level.get(key) is not None), None)

    def fill(self, text: Any) -> str:
        try:
            return str(text).format_map(self.names)
        except (KeyError, ValueError, IndexError) as error:
            names = ", ".join(self.names)
            raise BadInput(f"{self.where}: {text!r} cannot be filled in ({error}). Known: {names}.") from error

    def fill_all(self, key: str, levels: int = 4) -> list[str]:
        """Return the texts of the nearest levels that have the key."""
        return [self.fill(level[key]) for level in self.levels[:levels] if level.get(key)]

    def configs(self, key: str) -> tuple[str, ...]:
        return tuple(self.fill(self.nearest(key)).split(" + ")) if self.nearest(key) else ()

    def options(self) -> tuple[str, ...]:
        """Return the options from table to cell: of repeated options, the last on a command line counts."""
        return tuple(self.fill(word) for level in reversed(self.levels) for word in _words(level.get("options")))

    def way(self) -> tuple[str, str]:
        """Return the way at the nearest level, and its value."""
        for level in self.levels:
            for way in WAYS:
                if level.get(way) not in (None, False):
                    return way, str(level[way])
        raise BadInput(f"{self.where} does not say how to obtain its value: give one of {', '.join(WAYS)}.")


def _cell(table: Mapping[str, Any], key: str, column: Column, content: Any, where: str) -> Cell:
    cell = check_keys(content if isinstance(content, Mapping) else {"printed": content}, _CELL_KEYS, where)
    row = table["rows"][key]
    names = {"row": key, "column": column.key}
    for level in (table["columns"][column.key] or {}, row, cell):  # the nearest last, so that it takes precedence
        names |= level.get("with", {})
    levels = _Levels((cell, row, table["columns"][column.key] or {}, table), names, where)
    way, what = levels.way()
    row_name = levels.fill(row.get("name", key))
    best = str((row.get("best") or {}).get(column.key, ""))
    if best and not levels.nearest("best_source"):
        raise BadInput(f"{where}: best: {best} needs a best_source, the paper or page that has it.")
    value = Cell(
        row=key,
        column=column.key,
        row_name=row_name,
        column_name=column.name,
        printed=Printed.read(cell.get("printed")),
        source=f"{table['paper']}, {table['place']}, {row_name}, {column.name}",
        way=way,
        what="" if way in ("recipe", "count") else levels.fill(what),
        recipe=levels.configs("recipe"),
        after=levels.configs("after"),
        options=levels.options(),
        starts=int(levels.nearest("starts") or 1),
        metric=str(levels.nearest("metric") or ""),
        csv=str(levels.nearest("csv") or "") if way == "script" else "",
        note=" ".join(levels.fill_all("note", 2)),
        differs="; ".join(levels.fill_all("differs")),
        best=best,
        best_source=levels.fill(levels.nearest("best_source")) if best else "",
    )
    return replace(value, recipe=(), after=(), options=(), differs="") if way in CLOSED else value


def read_table(path: Path, name: str, distribution: str = "") -> Table:
    """Read a table from its file."""
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {error}") from error
    content = check_keys(content, _TABLE_KEYS, str(path))
    for key in ("title", "paper", "place", "printed", "columns", "rows"):
        if key not in content:
            raise BadInput(f"{path}: {key} is missing.")
    columns = {key: _column(key, column, str(path)) for key, column in content["columns"].items()}
    cells = list(_cells(content, columns, str(path)))
    printed = sum(bool(cell.printed.text) for cell in cells)
    if printed != content["printed"]:
        raise BadInput(f"{path} has {printed} printed values, but says {content['printed']}.")
    row_names = {key: str((row or {}).get("name", key)) for key, row in content["rows"].items()}
    return Table(
        name=name,
        **{key: str(content[key]) for key in ("title", "paper", "place")},
        columns=columns,
        cells=tuple(cells),
        seeds=content.get("seeds"),
        note=str(content.get("note", "")),
        distribution=distribution,
        row_names=row_names,
        figure=check_keys(content.get("figure") or {}, _FIGURE_KEYS, f"{path}: figure"),
    )


def _cells(content: Mapping[str, Any], columns: Mapping[str, Column], path: str) -> Iterator[Cell]:
    for key, row in content["rows"].items():
        where = f"{path}: rows.{key}"
        check_keys(row, _ROW_KEYS, where)
        cells = dict.fromkeys(columns) if row.get("cells") == "all" else row.get("cells")
        check_keys(row.get("best") or {}, list(cells), f"{where}.best")
        for column, cell in check_keys(cells, list(columns), f"{where}.cells").items():
            yield _cell(content, key, columns[column], cell, f"{where}.cells.{column}")


def table_files() -> dict[str, tuple[Path, str]]:
    """Return name -> file and distribution of every installed table, sorted."""
    files: dict[str, tuple[Path, str]] = {}
    for entry in registry.table_entries():
        package, _, part = entry.target.partition(":")
        folder = folder_of(package, "tables")
        if folder is None:
            log.warning("The tables %s of %s are missing; reinstall it.", entry.prefix, entry.distribution)
            continue
        for path in sorted((folder / part).rglob("*.yaml")):
            name = f"{entry.prefix}/{path.relative_to(folder / part).with_suffix('').as_posix()}"
            if name in files:
                raise NameClash(f"The table {name!r} is shipped by {files[name][1]} and {entry.distribution}.")
            files[name] = path, entry.distribution
    return dict(sorted(files.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> tuple[Any, ...]:
    """Return a key that sorts table-2 before table-10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def tables() -> dict[str, Table]:
    """Read every installed table, by name."""
    return {name: read_table(path, name, owner) for name, (path, owner) in table_files().items()}


def find_table(name: str) -> Table:
    """Find a table by name."""
    files = table_files()
    if name not in files:
        absent = listings.absent_supplier("tables", name)
        advice = "`graphbench reproduce --list` shows what each is." if absent is None else listings.advice(absent)
        raise UnknownName("table", name, files, advice)
    path, owner = files[name]
    return read_table(path, name, owner)
