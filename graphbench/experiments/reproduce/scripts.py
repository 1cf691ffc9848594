"""Run a clone's scripts that measure values of a table, and read the values from the CSV that each writes."""

from __future__ import annotations

import logging
import os
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
from graphbench.runs.holding import InUse, claimed

log = logging.getLogger(__name__)

#: Placeholder for the output folder in a script's command.
_FOLDER = "DIR"
#: Column of the CSV with the keys of the table's rows.
_ROW = "row"


@dataclass(frozen=True)
class Script:
    """A command that measures cells of a table."""

    command: str  # with `DIR` for its output folder and `python` for the running interpreter
    csv: str  # its output file, with the keys of rows in the column `row`, and a column for each column of the table
    table: str  # name of the table

    def folder(self, output: Path) -> Path:
        """Return its output folder."""
        return output / "scripts" / self.table.replace("/", "-")

    def is_finished(self, output: Path) -> bool:
        """Return whether its CSV exists."""
        return (self.folder(output) / self.csv).is_file()

    @property
    def root(self) -> Path | None:
        """Return the clone with the script; None if the table was installed without one."""
        path = table_files()[self.table][0]
        words = [word for word in shlex.split(self.command) if word.endswith(".py")]
        return next((one for one in path.parents if words and (one / words[0]).is_file()), None)

    def run(self, output: Path) -> None:
        """Run it in the clone, unless another process has just run it.

        Raises:
            CommandFailed: it failed, or wrote no CSV.
            InUse: another process is running it.
        """
        with claimed(self.folder(output)):
            if not self.is_finished(output):
                self._run(output)

    def _run(self, output: Path) -> None:
        folder = self.folder(output).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        words = [{_FOLDER: str(folder), "python": sys.executable}.get(word, word) for word in shlex.split(self.command)]
        # A script imports files next to it.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
        code = subprocess.run(words, cwd=self.root, env=environment, check=False).returncode
        if code or not self.is_finished(output):
            raise CommandFailed(self.command, code)

    def value(self, cell: Cell, output: Path) -> float | None:
        """Return the value measured for a cell, if there is one."""
        rows = read_csv(self.folder(output) / self.csv)
        value = next((row.get(cell.column) for row in rows if row.get(_ROW) == cell.row), None)
        return float(value) if value else None


def script_of(table: Table, cell: Cell) -> Script | None:
    """Return the script behind a cell, if there is one that writes a CSV."""
    return Script(cell.what, cell.csv, table.name) if cell.way == "script" and cell.csv else None


def scripts(table: Table, cells: Iterable[Cell]) -> list[Script]:
    """List the scripts behind cells, without repetition."""
    return list(dict.fromkeys(one for cell in cells if (one := script_of(table, cell)) is not None))


def run_missing(chosen: Iterable[Script], output: Path) -> list[Script]:
    """Run scripts without output, and return those that failed, or that another process is running.

    A warning names those that the installation lacks.
    """
    failed = []
    for script in chosen:
        if script.is_finished(output):
            continue
        if script.root is None:
            log.warning("%s: only a clone of the repository has this script: %s", script.table, script.command)
            continue
        log.info("%s: %s", script.table, script.command)
        try:
            script.run(output)
        except (CommandFailed, InUse) as error:
            log.error("%s: %s", script.command, error)
            failed.append(script)
    return failed


def measured(table: Table, cells: Iterable[Cell], output: Path) -> list[Record]:
    """Create records of the values that scripts measured, in the order of the cells."""
    now = describe_environment()
    fields = {
        "hardware": f"{now['processor']}, {now['torch_threads']} threads",
        "versions": f"torch {now['packages']['torch']}",
        "commit": now["commit"] or None,
        "date": now["started"][:10],
    }
    records = []
    for cell in cells:
        script = script_of(table, cell)
        value = None if script is None else script.value(cell, output)
        if value is not None:
            names = (f"{table.paper}: {table.title}", cell.row_name, (cell.what,), 0, "value", value)
            records.append(Record(*names, column=cell.column_name, full=True, **fields))
    return records
