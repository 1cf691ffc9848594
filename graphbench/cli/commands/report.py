"""`graphbench report` compares runs on one page, and `graphbench status` shows the progress of those in a folder."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from graphbench.cli.console import show_line
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.errors import BadInput
from graphbench.experiments.status import UnitStatus, read_status, summarize
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)


def report(arguments: Sequence[str]) -> int:
    """Write a page about runs, and the result table as Markdown, CSV and LaTeX, using only their folders."""
    parser = CommandParser(
        "report",
        description="Compare runs on one HTML page without scripts or network. Runs that differ only in their seed "
        "share a row with mean and standard deviation. DIR gets report.html, table.md, table.csv and table.tex.",
    )
    parser.add_argument(
        "run",
        nargs="+",
        metavar="RUN",
        help="folder of a run, also after --run; that of an earlier comparison is skipped",
    )
    parser.add_argument("--output", metavar="DIR", help="folder to write to; default for one run: its folder")
    # Every other command has its run after --run.
    options = parser.parse_args([word.removeprefix("--run=") for word in arguments if word != "--run"])
    runs = [RunFolder.existing(folder) for folder in options.run if not _is_comparison(folder)]
    if not runs:
        raise BadInput(
            f"{', '.join(options.run)}: this is the output of `graphbench report`; name the folder of a run."
        )
    if options.output is None and len(runs) > 1:
        raise BadInput(f"--output DIR is missing: name the folder for the comparison of {len(runs)} runs.")
    if options.output is not None and options.output.endswith(".html"):
        raise BadInput(f"--output {options.output}: name a folder, which gets report.html and the tables.")
    output = folder_to_write("--output", runs[0].path if options.output is None else options.output)
    from graphbench.report import write_comparison  # matplotlib and pandas, which `--help` does not need

    for path in write_comparison(runs, output):
        log.info("Wrote %s", path)
    return 0


def _is_comparison(folder: str) -> bool:
    """Return whether a folder has output of this command and no run, as `graphbench report runs/*` may include."""
    path, files = RunFolder(Path(folder)), ("report.html", "table.csv", "table.md", "table.tex")
    is_output = not path.config.is_file() and all((path.path / name).is_file() for name in files)
    if is_output:
        log.info("%s is skipped: it contains a comparison and no run.", folder)
    return is_output


def status(arguments: Sequence[str]) -> int:
    """Show the units of a sweep, a study, a published table or a prediction, using only their folder."""
    parser = CommandParser(
        "status",
        description="Show the progress of the trainings of a sweep or a published table, the trials of a study, or the "
        "shares of a prediction in parts: done, running, waiting, failed with the last lines of the log, or "
        "stopped. It only reads files, whoever started the work and wherever it runs.",
    )
    parser.add_argument("folder", metavar="DIR", help="folder named by --output, or by --run of a study")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    units = read_status(Path(options.folder))
    if options.json:
        print(json.dumps([asdict(unit) for unit in units], indent=2))
        return 0
    for line in _lines(units):
        show_line(line)
    return 0


def _lines(units: Sequence[UnitStatus]) -> list[str]:
    """Return an aligned line for each unit, the ends of logs, and the counts."""
    rows = [("unit", "state", "time", "epoch", "")]
    rows += [(unit.name, unit.state, _hours(unit.seconds), unit.epoch, unit.note) for unit in units]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = []
    for row, ends in zip(rows, [(), *(unit.lines for unit in units)], strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True))
        lines.append("  ".join((*cells, row[4])).rstrip())
        lines += [f"    | {line}" for line in ends]
    return [*lines, summarize(units)]


def _hours(seconds: float | None) -> str:
    """Return a time as hours, minutes and seconds.

    Examples:
        >>> _hours(3725.4), _hours(None)
        ('1:02:05', '')
    """
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
