"""Values that a script of a clone measures: it is run once, and a CSV that it writes fills the cells of a table."""

from __future__ import annotations

import logging
import shlex
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from graphbench.experiments import CommandFailed, read_csv
from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.tables import Cell, Table, table_files
from graphbench.runs.environment import describe_environment

log = logging.getLogger(__name__)

#: Stands in a script's command for the folder that it writes to.
_FOLDER = "DIR"
#: Column of the CSV that names a row of the table.
_ROW = "row"


@dataclass(frozen=True)
class Script:
    """A command that measures cells of a table.

    Args:
        command: with `DIR` for the folder of its output; `python` is the running interpreter.
        csv: the file that it writes there, with the keys of rows in a column `row`, and a column for each key of one.
        table: name of the table.
    """

    command: str
    csv: str
    table: str

    def folder(self, output: Path) -> Path:
        """Where it writes."""
        return output / "scripts" / self.table.replace("/", "-")

    def is_finished(self, output: Path) -> bool:
        """Whether its CSV is there."""
        return (self.folder(output) / self.csv).is_file()

    @property
    def root(self) -> Path | None:
        """The clone that has the script; None where the table was installed without one."""
        path = table_files()[self.table][0]
        words = [word for word in shlex.split(self.command) if word.endswith(".py")]
        return next((one for one in path.parents if words and (one / words[0]).is_file()), None)

    def run(self, output: Path) -> None:
        """Run it in the clone.

        Raises:
            CommandFailed: it ended with an error, or wrote no CSV.
        """
        folder = self.folder(output).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        words = [{_FOLDER: str(folder), "python": sys.executable}.get(word, word) for word in shlex.split(self.command)]
        code = subprocess.run(words, cwd=self.root, check=False).returncode
        if code or not self.is_finished(output):
            raise CommandFailed(self.command, code)

    def value(self, cell: Cell, output: Path) -> float | None:
        """What it measured for a cell; None where it has not run, or has no such row."""
        rows = read_csv(self.folder(output) / self.csv)
        found = next((row.get(cell.column) for row in rows if row.get(_ROW) == cell.row), None)
        return float(found) if found else None


def script_of(table: Table, cell: Cell) -> Script | None:
    """The script behind a cell; None where it is obtained otherwise, or by a script that writes no CSV."""
    return Script(cell.what, cell.csv, table.name) if cell.way == "script" and cell.csv else None


def scripts(table: Table, cells: Iterable[Cell]) -> list[Script]:
    """The scripts behind cells, each once."""
    return list(dict.fromkeys(one for cell in cells if (one := script_of(table, cell)) is not None))


def run_missing(wanted: Iterable[Script], output: Path) -> list[Script]:
    """Run those that have not ended; a table that was installed without its clone is left as it is, with a line.

    Returns:
        Those that failed.
    """
    failed = []
    for script in wanted:
        if script.is_finished(output):
            continue
        if script.root is None:
            log.warning("%s: only a clone of the repository has this script: %s", script.table, script.command)
            continue
        log.info("%s: %s", script.table, script.command)
        try:
            script.run(output)
        except CommandFailed as error:
            log.error("%s: %s", script.command, error)
            failed.append(script)
    return failed


def measured(table: Table, cells: Iterable[Cell], output: Path) -> list[Record]:
    """Records of the values that scripts measured, in the order of the cells."""
    told = describe_environment()
    fields = {
        "hardware": f"{told['processor']}, {told['torch_threads']} threads",
        "versions": f"torch {told['packages']['torch']}",
        "commit": told["commit"] or None,
        "date": told["started"][:10],
    }
    found = []
    for cell in cells:
        script = script_of(table, cell)
        value = None if script is None else script.value(cell, output)
        if value is not None:
            names = (f"{table.paper}: {table.title}", cell.row_name, (cell.what,), 0, "value", value)
            found.append(Record(*names, column=cell.column_name, full=True, **fields))
    return found
