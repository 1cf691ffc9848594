"""Published tables as data: rows, columns, every printed value, and by which recipe it is obtained here, or why not.

A table is a YAML file in a distribution's folder `tables`, found through the entry points `graphbench.tables` as
configurations are through theirs:

    title: Long Range Arena
    paper: SFT, arXiv 2408.05822
    place: table 4
    printed: 10                              # values in it, held against the cells by the reader of the file
    columns:
      listops: {name: ListOps, benchmark: ListOps, metric: test/accuracy, scale: 100}
    rows:
      s4: {missing: S4, cells: {listops: 88.65}}
      sft: {name: SFT-Relative, recipe: "sft/{column}", cells: {listops: 39.95}}

How a value is obtained is said for a cell, its row, its column or the whole table; the nearest counts:

- `recipe`: a configuration and, after ` + `, its overlays. It is trained with `options`, from the best weights of the
  configurations `after`, from the best of `starts` first epochs, and scored by the column's `metric`;
- `count`: true: the trainable parameters of `recipe`;
- `setting`: the value of an option in `recipe`; `fact`: a field of the benchmark's specification;
- `script`: a script of a clone that measures or draws it. With `csv`, a file that it writes into DIR, `graphbench
  reproduce` runs it: keys of rows stand in the file's column `row`, and every other column has the key of one;
- `quoted`, `missing`, `unwritten`: nothing obtains it, with the reason: it is only quoted, which model is missing, or
  which recipe of a model that is here.

`differs` says in which point the recipe departs from the paper's protocol (another model, split, loss or solver); those
of all levels are printed with the value and bar a verdict.

`{column}`, `{row}` and the names in `with` of row and column are replaced by their values. `cells: all` stands for a
curve without printed values, with a point in every column.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from graphbench import registry
from graphbench.errors import BadInput, NameClash, UnknownName
from graphbench.files.safe_yaml import load_yaml
from graphbench.registry import plugins
from graphbench.registry.configurations import folder_of

log = logging.getLogger(__name__)

#: Ways to a value, as keys of a table file; the first that a cell, row, column or table names counts.
WAYS = ("missing", "unwritten", "quoted", "script", "setting", "fact", "count", "recipe")
#: Ways by which nothing is obtained.
CLOSED = ("missing", "unwritten", "quoted")
_HELPERS = ("recipe", "options", "after", "starts", "csv", "note", "differs", "with")
_TABLE_KEYS = ("title", "paper", "place", "printed", "seeds", "columns", "rows", *WAYS, *_HELPERS)
_COLUMN_KEYS = ("name", "benchmark", "metric", "scale", "better", *WAYS, *_HELPERS)
_ROW_KEYS = ("name", "cells", "metric", *WAYS, *_HELPERS)
_CELL_KEYS = ("printed", "metric", *WAYS, *_HELPERS)
_NUMBER = re.compile(r"^(-?[\d,]*\.?\d+(?:e-?\d+)?)\s*([kM%]?)(?:\s*±\s*(\d*\.?\d+))?(?![\w.])")
_UNITS = {"": 1.0, "%": 1.0, "k": 1e3, "M": 1e6}


@dataclass(frozen=True)
class Printed:
    """A value as it is printed.

    Args:
        text: as printed; "" where the paper has a curve alone.
        value: the number in it, None where there is none.
        sd: its printed standard deviation.
        unit: half of the last printed digit.
    """

    text: str
    value: float | None = None
    sd: float | None = None
    unit: float = 0.0

    @classmethod
    def read(cls, text: Any) -> Printed:
        """From a printed text.

        Examples:
            >>> Printed.read("0.3774 ± 0.0150").sd
            0.015
            >>> Printed.read("421k")
            Printed(text='421k', value=421000.0, sd=None, unit=500.0)
            >>> Printed.read("GatedGCN").value is None
            True
        """
        text = "" if text is None else str(text)
        found = _NUMBER.match(text)
        if found is None:
            return cls(text)
        digits, unit, deviation = found.groups()
        digits = digits.replace(",", "")
        mantissa, _, exponent = digits.partition("e")
        places = len(mantissa.partition(".")[2])
        step = 0.5 * 10.0 ** (int(exponent or 0) - places) * _UNITS[unit]
        return cls(text, float(digits) * _UNITS[unit], float(deviation) if deviation else None, step)


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        key: its name in the file, which `{column}` stands for.
        name: heading.
        benchmark: registered name of the data, "" where there are none.
        metric: what is scored, as it is logged, or `diagnostics/FILE.csv#COLUMN` for the mean of the last epoch there;
            a row or a cell may name another.
        scale: printed value over logged value, 100 for per cents.
        better: `higher` or `lower`, "" where neither is.
    """

    key: str
    name: str
    benchmark: str = ""
    metric: str = ""
    scale: float = 1.0
    better: str = ""


@dataclass(frozen=True)
class Cell:
    """A value of a table and the way to it.

    Args:
        row: key of its row.
        column: key of its column.
        row_name: the row as printed.
        column_name: the column as printed.
        printed: the value.
        source: paper, table, row and column.
        way: one of `WAYS`.
        what: the reason of a closed way, the option, field or script.
        recipe: configurations, first to last.
        options: further options of `graphbench fit`.
        after: configurations of a training from whose best weights this one starts.
        starts: initialisations of which the one that is best after an epoch is trained.
        metric: what is scored.
        csv: file of a script that has the value.
        note: a misprint, a disagreement, or what to know about the value.
        differs: departures from the paper's protocol, which bar a verdict.
    """

    row: str
    column: str
    row_name: str
    column_name: str
    printed: Printed
    source: str
    way: str
    what: str = ""
    recipe: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    starts: int = 1
    metric: str = ""
    csv: str = ""
    note: str = ""
    differs: str = ""

    @property
    def is_open(self) -> bool:
        """Whether something here obtains it."""
        return self.way not in CLOSED


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Args:
        name: what `graphbench reproduce` takes, such as `sft/table-4`.
        title: what it is about.
        paper: short name of the paper.
        place: where in it, such as `table 4`.
        columns: by key, in order.
        cells: row by row; values that the paper leaves out are left out here.
        seeds: runs that the paper averages; None where it does not say.
        note: what to know about it.
        distribution: what ships it.
    """

    name: str
    title: str
    paper: str
    place: str
    columns: Mapping[str, Column]
    cells: tuple[Cell, ...]
    seeds: int | None = None
    note: str = ""
    distribution: str = ""
    row_names: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def by_place(self) -> dict[tuple[str, str], Cell]:
        """Row and column -> cell."""
        return {(cell.row, cell.column): cell for cell in self.cells}


def _check_keys(content: Any, known: Sequence[str], where: str) -> Mapping[str, Any]:
    """The mapping itself; raises `BadInput` where it is none or has an unknown key."""
    if not isinstance(content, Mapping):
        raise BadInput(f"{where} must be a mapping, not {content!r}.")
    for key in content:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise BadInput(f"{where} has no key {key!r}.{hint} Known: {', '.join(dict.fromkeys(known))}.")
    return content


def _words(value: Any) -> tuple[str, ...]:
    """Options as a tuple of words."""
    return tuple(map(str, value)) if isinstance(value, list) else tuple(str(value).split()) if value else ()


def _column(key: str, content: Any, where: str) -> Column:
    given = _check_keys(content or {}, _COLUMN_KEYS, f"{where}: columns.{key}")
    own = {name: given[name] for name in ("benchmark", "metric", "better") if name in given}
    return Column(key, str(given.get("name", key)), scale=float(given.get("scale", 1.0)), **own)


def _way(levels: Sequence[Mapping[str, Any]], where: str) -> tuple[str, str]:
    """The way that the nearest level names, and what it says of it."""
    for level in levels:
        for way in WAYS:
            if level.get(way) not in (None, False):
                return way, str(level[way])
    raise BadInput(f"{where} says no way to its value: one of {', '.join(WAYS)}.")


def _cell(table: Mapping[str, Any], row: str, column: Column, content: Any, where: str) -> Cell:
    own = content if isinstance(content, Mapping) else {"printed": content}
    _check_keys(own, _CELL_KEYS, where)
    rows, columns = table["rows"][row], table["columns"][column.key] or {}
    levels = (own, rows, columns, table)
    names = {"row": row, "column": column.key, **columns.get("with", {}), **rows.get("with", {}), **own.get("with", {})}

    def filled(text: Any) -> str:
        try:
            return str(text).format_map(names)
        except (KeyError, ValueError, IndexError) as error:
            raise BadInput(f"{where}: {text!r} cannot be filled in ({error}). Known: {', '.join(names)}.") from error

    def nearest(key: str) -> Any:
        return next((level[key] for level in levels if level.get(key) is not None), None)

    way, what = _way(levels, where)
    options = [filled(word) for level in reversed(levels) for word in _words(level.get("options"))]
    configs = {key: tuple(filled(nearest(key)).split(" + ")) if nearest(key) else () for key in ("recipe", "after")}
    row_name = filled(rows.get("name", row))
    source = f"{table['paper']}, {table['place']}, {row_name}, {column.name}"
    notes = [filled(level["note"]) for level in (own, rows) if level.get("note")]
    differs = [filled(level["differs"]) for level in levels if level.get("differs")]
    closed = way in CLOSED
    return Cell(
        row, column.key, row_name, column.name, Printed.read(own.get("printed")), source, way,
        "" if way in ("recipe", "count") else filled(what),
        recipe=() if closed else configs["recipe"], after=() if closed else configs["after"],
        options=() if closed else tuple(options), starts=int(nearest("starts") or 1),
        metric=str(nearest("metric") or ""), csv=str(nearest("csv") or "") if way == "script" else "",
        note=" ".join(notes), differs="" if closed else "; ".join(differs),
    )  # fmt: skip


def read_table(path: Path, name: str, distribution: str = "") -> Table:
    """A table out of its file.

    Raises:
        BadInput: the file is no such table; the message names the place in it.
    """
    try:
        content = load_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not valid YAML: {error}") from error
    content = _check_keys(content, _TABLE_KEYS, str(path))
    for key in ("title", "paper", "place", "printed", "columns", "rows"):
        if key not in content:
            raise BadInput(f"{path}: {key} is missing.")
    columns = {key: _column(key, given, str(path)) for key, given in content["columns"].items()}
    cells = list(_cells(content, columns, str(path)))
    printed = sum(bool(cell.printed.text) for cell in cells)
    if printed != content["printed"]:
        raise BadInput(f"{path} has {printed} printed values and says {content['printed']}.")
    row_names = {key: str((row or {}).get("name", key)) for key, row in content["rows"].items()}
    told = {key: str(content[key]) for key in ("title", "paper", "place")}
    seeds = content.get("seeds")
    note = str(content.get("note", ""))
    return Table(name, **told, columns=columns, cells=tuple(cells), seeds=seeds, note=note,
                 distribution=distribution, row_names=row_names)  # fmt: skip


def _cells(content: Mapping[str, Any], columns: Mapping[str, Column], path: str) -> Iterator[Cell]:
    for row, given in content["rows"].items():
        where = f"{path}: rows.{row}"
        _check_keys(given, _ROW_KEYS, where)
        own = dict.fromkeys(columns) if given.get("cells") == "all" else given.get("cells")
        for key, cell in _check_keys(own, list(columns), f"{where}.cells").items():
            yield _cell(content, row, columns[key], cell, f"{where}.cells.{key}")


def table_files() -> dict[str, tuple[Path, str]]:
    """Name -> file and distribution of every installed table, sorted.

    Raises:
        NameClash: two distributions ship one of a name.
    """
    found: dict[str, tuple[Path, str]] = {}
    for entry in registry.table_entries():
        package, _, part = entry.target.partition(":")
        folder = folder_of(package, "tables")
        if folder is None:
            log.warning("The tables %s of %s are not where it says; reinstall it.", entry.prefix, entry.distribution)
            continue
        for path in sorted((folder / part).rglob("*.yaml")):
            name = f"{entry.prefix}/{path.relative_to(folder / part).with_suffix('').as_posix()}"
            if name in found:
                raise NameClash(f"The table {name!r} is shipped by {found[name][1]} and {entry.distribution}.")
            found[name] = path, entry.distribution
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> tuple[Any, ...]:
    """Sorts table-2 before table-10."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def tables() -> dict[str, Table]:
    """Every installed table by name."""
    return {name: read_table(path, name, owner) for name, (path, owner) in table_files().items()}


def find_table(name: str) -> Table:
    """The table of a name.

    Raises:
        UnknownName: there is none; names near matches.
    """
    files = table_files()
    if name not in files:
        absent = plugins.absent_supplier("tables", name)
        shown = "`graphbench reproduce --list` shows what each is."
        raise UnknownName("table", name, files, shown if absent is None else plugins.advice(absent))
    path, owner = files[name]
    return read_table(path, name, owner)
