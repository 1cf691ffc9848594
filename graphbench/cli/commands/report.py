"""`graphbench report`: compare runs on one page."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

log = logging.getLogger(__name__)


def report(arguments: Sequence[str]) -> int:
    """Write a page about runs, and the result table as Markdown, CSV and LaTeX, from their folders alone.

    Raises:
        BadInput: a folder holds no run, or the output is a file.
    """
    parser = CommandParser(
        "report",
        description="Compare runs on one HTML page without scripts or network. Runs that differ only in their seed "
        "share a row with mean and standard deviation. DIR gets report.html, table.md, table.csv and table.tex.",
    )
    parser.add_argument(
        "run", nargs="+", metavar="RUN", help="folder of a run; that of an earlier comparison is skipped"
    )
    parser.add_argument("--output", metavar="DIR", help="folder to write to; that of the run where there is only one")
    options = parser.parse_args(arguments)
    runs = [RunFolder.existing(folder) for folder in options.run if not _is_comparison(folder)]
    if not runs:
        raise BadInput(
            f"{', '.join(options.run)}: this is the output of `graphbench report`; name the folder of a run."
        )
    if options.output is None and len(runs) > 1:
        raise BadInput(f"--output DIR is missing: name the folder for the comparison of {len(runs)} runs.")
    output = folder_to_write("--output", runs[0].path if options.output is None else options.output)
    from graphbench.report import write_comparison  # matplotlib and pandas, which `--help` can do without

    for path in write_comparison(runs, output):
        log.info("Wrote %s", path)
    return 0


def _is_comparison(folder: str) -> bool:
    """Return whether a folder holds output of this command and no run, as `graphbench report runs/*` may find."""
    path, files = RunFolder(Path(folder)), ("report.html", "table.csv", "table.md", "table.tex")
    is_output = not path.config.is_file() and all((path.path / name).is_file() for name in files)
    if is_output:
        log.info("%s is skipped: it holds a comparison and no run.", folder)
    return is_output
