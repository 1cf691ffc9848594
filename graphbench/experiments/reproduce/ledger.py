"""Write the ledger: a line for every printed value, with the obtained one, its cost and its command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.cost import Costs
from graphbench.experiments.reproduce.obtained import Obtained
from graphbench.experiments.reproduce.recipes import expected
from graphbench.experiments.reproduce.rendering import markdown_table, span, spread
from graphbench.experiments.reproduce.tables import Cell, Table
from graphbench.registry.expected import stands_for

#: Statuses of lines, in summary order.
STATUSES = (
    "met", "better", "not met", "no spread", "short", "protocol differs", "not run", "script", "quoted", "no code",
)  # fmt: skip
#: Ways without training -> their status.
_CLOSED = {"missing": "no code", "unwritten": "no code", "quoted": "quoted", "script": "script"}
_MEANING = {
    "met": "at full length, within two standard deviations, or equal as printed",
    "better": "at full length, more than two standard deviations better",
    "not met": "at full length, more than two standard deviations worse",
    "no spread": "at full length; neither paper nor seeds have a spread to judge by",
    "short": "trained for less than published, or altered: neither meets nor misses",
    "protocol differs": "trained on other graphs or by another protocol than the paper's: neither meets nor misses",
    "not run": "there is a recipe, but no record of it",
    "script": "measured or drawn by a script of the repository, without a record",
    "quoted": "only quoted by the paper",
    "no code": "the model or its recipe is missing",
}
_HEAD = """# Ledger of printed values

Written by `graphbench reproduce --records ... --ledger LEDGER.md` from the tables of the plug-ins and {records:,}
records of runs; nothing here is typed by hand. One line for each of the {values:,} scores and measurements that the
papers print; settings, sizes and numbers of parameters, which `graphbench reproduce TABLE --no-train` compares with the
printed ones without training, have none.
Hours are for one processor core of the machines in RESULTS.md and all seeds of the paper: the time of full trainings,
else the steps of the recipe times the median time of a step of the same model on the same batches. A depth that was not
measured is on the line through at least two that were. There are none without a record.

Best known is a better value of the same model that was published elsewhere, with its source; {best} of the values have
one. It does not affect the status: a recipe is that of the printed value.
"""
_ROW = (
    "row", "column", "printed", "best known", "obtained", "seeds", "trained", "status", "hours", "command or reason",
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One printed value."""

    table: Table  # of the value
    cell: Cell  # the value and how to obtain it
    status: str  # one of `STATUSES`
    obtained: str = ""  # mean and standard deviation in the unit of the table; "" without runs
    seeds: tuple[int, ...] = ()  # of the runs
    trained: str = ""  # length of the runs
    hours: float | None = None  # estimated cost of the recipe and all seeds on one core, if there are measurements

    @property
    def command(self) -> str:
        """Return the command that obtains the value, or the reason if there is none."""
        if self.cell.way in ("missing", "unwritten", "quoted", "script"):
            return self.cell.what
        return f"`graphbench reproduce {self.table.name} --only {self.cell.row} --columns {self.cell.column}`"


class Ledger:
    """Lines for the printed values of tables, with the records of finished runs."""

    def __init__(self, tables: Iterable[Table], records: Sequence[Record]) -> None:
        self.records = records
        self._costs = Costs(records)
        self._by_recipe: dict[tuple[str, ...], list[Record]] = {}
        for record in records:
            self._by_recipe.setdefault(record.recipe, []).append(record)
        self.lines = [self._line(table, cell) for table in tables for cell in table.cells if _is_measured(cell)]

    def _line(self, table: Table, cell: Cell) -> Line:
        value = self._measured(cell)
        if value is not None:
            measured = Obtained(cell, mean=value, full=True)
            return Line(table, cell, _status(measured), spread(measured))
        if cell.way in _CLOSED:
            return Line(table, cell, _CLOSED[cell.way])
        hours = self._hours(table, cell)
        records = self._longest(cell)
        if not records:
            return Line(table, cell, "not run", hours=hours)
        one, column = records[0], table.columns[cell.column]
        scores = [record.test * column.scale for record in records if record.test is not None]
        obtained = Obtained(
            cell,
            tuple(sorted(record.seed for record in records)),
            fmean(scores),
            stdev(scores) if len(scores) > 1 else None,
            full=_is_whole(one),
            data=one.data or "",
            better=column.better or ("higher" if one.higher_is_better else "lower"),
            data_wanted=expected(cell.recipe).data or "",
            altered=one.altered,
        )
        return Line(table, cell, _status(obtained), spread(obtained), obtained.seeds, _trained(records), hours)

    def _measured(self, cell: Cell) -> float | None:
        """Return the value that a script measured for a cell, if there is a record."""
        for one in self._by_recipe.get((cell.what,), ()) if cell.csv else ():
            if (one.name, one.column) == (cell.row_name, cell.column_name):
                return one.test
        return None

    def _longest(self, cell: Cell) -> list[Record]:
        """Return a cell's longest trainings with all seeds, unaltered ones if any; RESULTS.md has every record."""
        groups: dict[tuple[Any, ...], list[Record]] = {}
        wanted = expected(cell.recipe).data
        for one in self._by_recipe.get(cell.recipe, ()):
            same = one.options == cell.options and f"test/{one.metric}" == cell.metric
            if same and one.test is not None:
                whole = _is_whole(one)  # if the rate ends a run, seeds differ in the number of epochs
                length = (0, 0) if whole else (one.epochs or 0, one.steps or 0)
                published, comparable = one.data == "published", stands_for(one.data or "", wanted)
                key = (whole, not one.altered, *length, published, comparable, one.data or "", one.altered)
                groups.setdefault(key, []).append(one)
        # Full runs before short ones, those of the recipe before altered ones, then by length and data.
        return groups[max(groups)] if groups else []

    def _hours(self, table: Table, cell: Cell) -> float | None:
        """Estimate the core hours of all seeds."""
        hours = self._costs.hours(cell)
        return None if hours is None else hours * (table.seeds or 1)

    def counts(self) -> dict[str, Counter[str]]:
        """Count lines by paper and status."""
        counts: dict[str, Counter[str]] = {}
        for line in self.lines:
            counts.setdefault(line.table.paper, Counter())[line.status] += 1
        return counts

    def text(self) -> str:
        """Write the page."""
        counts = self.counts()
        used = [status for status in STATUSES if any(one[status] for one in counts.values())]
        total = sum(counts.values(), Counter())
        best = sum(bool(line.cell.best) for line in self.lines)
        lines = [_HEAD.format(records=len(self.records), values=len(self.lines), best=best)]
        rows = [[one, *(str(by[one]) for by in counts.values()), str(total[one]), _MEANING[one]] for one in used]
        lines += markdown_table(["status", *counts, "all", "what it means"], rows)
        for table in dict.fromkeys(line.table.name for line in self.lines):
            of_table = [line for line in self.lines if line.table.name == table]
            one = of_table[0].table
            lines += ["", f"## {table}: {one.title} ({one.paper}, {one.place})", ""]
            lines += markdown_table(_ROW, [_cells(line) for line in of_table])
        return "\n".join([*lines, ""])


def _is_whole(record: Record) -> bool:
    return record.full is True and not record.altered


def _trained(records: Sequence[Record]) -> str:
    """Describe how long the runs of a line were, whether their training set is redrawn, and what was altered."""
    name = "epoch" if records[0].epochs is not None else "step"
    length = span([one.epochs if name == "epoch" else one.steps for one in records], name)
    data = ", training set redrawn" if records[0].data == "redrawn" else ""
    return length + data + "".join(f", altered: {one}" for one in records[0].altered)


def _is_measured(cell: Cell) -> bool:
    """Return whether a value is printed and comes from training or measuring, not from a look-up."""
    return bool(cell.printed.text) and (cell.way in ("recipe", "script") or cell.metric.startswith("test/"))


def _status(obtained: Obtained) -> str:
    verdict = obtained.verdict
    if verdict in ("met", "better", "not met"):
        return verdict
    if verdict.startswith("not comparable"):
        return "protocol differs" if obtained.full else "short"
    return "no spread"


def _cells(line: Line) -> list[str]:
    hours = "" if line.hours is None else f"{line.hours:.1f}" if line.hours < 100 else f"{line.hours:,.0f}"
    reason = f"{line.command} {line.cell.differs}".strip() if line.status != "not run" else line.command
    return [
        line.cell.row_name, line.cell.column_name, line.cell.printed.text, line.cell.best_known, line.obtained,
        ", ".join(map(str, line.seeds)), line.trained, line.status, hours, reason,
    ]  # fmt: skip
