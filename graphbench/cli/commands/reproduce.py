"""`graphbench reproduce`: the tables of papers, printed and obtained side by side."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from graphbench.cli.command_line import CommandLine
from graphbench.cli.parsers import CommandParser, file_to_write, folder_to_write, near_options
from graphbench.errors import BadInput, check_range
from graphbench.experiments.records import Record, read_records, write_records, write_together
from graphbench.experiments.reproduce.listing import records, summary
from graphbench.experiments.reproduce.obtained import obtain, records_of
from graphbench.experiments.reproduce.plan import SCALES, Job, Request, coverage, jobs, select
from graphbench.experiments.reproduce.running import devices, missing, run_beside, run_here, write_slurm
from graphbench.experiments.reproduce.scripts import measured, run_missing, scripts
from graphbench.experiments.reproduce.tables import Cell, Table, find_table, table_files, tables
from graphbench.files.writing import write_text

log = logging.getLogger(__name__)

_DESCRIPTION = """Train what is missing for a table of a paper, and write it with printed and obtained values side by
side (mean and standard deviation over seeds) as HTML, Markdown and CSV. Whatever has ended is not run again and what
was interrupted goes on, so the command may be stopped at any time and given again. Tables share runs that they have in
common where they share DIR. Options with a dot, such as --trainer.accelerator=gpu, go to every training. --records
keeps a small JSON file of every finished run, and --page writes what all records say: graphbench reproduce --page
RESULTS.md --records FOLDER ..."""
_WIDTH = 200


def _parser() -> CommandParser:
    parser = CommandParser("reproduce", description=_DESCRIPTION)
    parser.add_argument("table", nargs="*", metavar="TABLE", help="such as sft/table-4; `sft` stands for all of its")
    parser.add_argument("--list", action="store_true", help="show the tables, or the values of those that are named")
    parser.add_argument("--json", action="store_true", help="with --list: JSON")
    parser.add_argument("--only", nargs="+", default=[], metavar="ROW", help="these rows alone")
    parser.add_argument("--columns", nargs="+", default=[], metavar="COLUMN", help="these columns alone")
    parser.add_argument("--scale", choices=SCALES, default="full", help="the recipe, a twentieth of it, or a few steps")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1; as many as the paper when left out")
    parser.add_argument("--offline", action="store_true", help="data of packages or generated ones, not downloads")
    parser.add_argument("--output", metavar="DIR", help="folder of runs and tables; needed unless listing")
    parser.add_argument("--slurm", action="store_true", help="write what is missing as SLURM arrays, and run nothing")
    parser.add_argument("--no-train", action="store_true", help="write the tables of what there is")
    parser.add_argument("--job", type=int, metavar="NUMBER", help="run this job of the plan alone, as an array does")
    parser.add_argument(
        "--records", nargs="+", default=[], metavar="FOLDER", help="records of finished runs go to the first of these"
    )
    parser.add_argument(
        "--page", metavar="FILE", help="write the page of all records in the folders, such as RESULTS.md"
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="write a line for every printed value, with the records in the folders"
    )
    return parser


def reproduce(arguments: Sequence[str]) -> int:
    """List tables, or train what they lack and write them.

    Returns:
        0; 1 where a training failed.

    Raises:
        BadInput: an option does not fit.
        UnknownName: there is no such table.
    """
    parser = _parser()
    own, rest = parser.parse_known_args(list(arguments))
    extra = []
    for one in CommandLine.parse(rest).options:
        if "." not in one.name or not one.values:
            raise BadInput(
                f"{one.words[0]}: no option of graphbench reproduce. {near_options(one.name[2:], parser.names)}"
                "One for each training has the form --a.b=VALUE."
            )
        extra.append(f"{one.name}{'+' * one.appends}={one.value}")
    chosen = [find_table(name) for name in _names(own.table)] if own.table else list(tables().values())
    if own.list:
        _list(chosen, own.json, details=bool(own.table))
        return 0
    pages = {"--page": own.page, "--ledger": own.ledger}
    asked = {option: path for option, path in pages.items() if path is not None}
    for option, path in asked.items():
        if not own.records:
            raise BadInput(f"{option} FILE needs --records FOLDER ...: the folders of the records it is written from.")
        file_to_write(option, path)
    if asked and not own.table:
        _write_pages(own)
        return 0
    if not own.table:
        raise BadInput("Name a table, such as sft/table-4; `graphbench reproduce --list` shows them.")
    if own.output is None:
        raise BadInput("--output DIR is missing: the folder of runs and tables, which is made where it is not there.")
    if own.seeds is not None:
        check_range("--seeds", own.seeds, at_least=1, whole=True)
    return _reproduce(chosen, own, tuple(extra), list(arguments))


def _names(given: Sequence[str]) -> list[str]:
    """The tables that are meant: a name, or a prefix for all tables that begin with it."""
    files = table_files()
    found = [match for name in given for match in ([one for one in files if one.startswith(f"{name}/")] or [name])]
    return list(dict.fromkeys(found))


def _request(table: Table, own: argparse.Namespace, extra: tuple[str, ...]) -> Request:
    count = own.seeds if own.seeds is not None else 1 if own.scale == "smoke" else table.seeds or 1
    return Request(own.scale, tuple(range(count)), own.offline, extra)


def _reproduce(chosen: Sequence[Table], own: argparse.Namespace, extra: tuple[str, ...], given: list[str]) -> int:
    """Run what is missing, one way or another, and write the tables."""
    output = folder_to_write("--output", own.output)
    asked = [(table, select(table, own.only, own.columns), _request(table, own, extra)) for table in chosen]
    planned = {job.training.folder(output): job for _, cells, request in asked for job in jobs(cells, request, output)}
    plan = list(planned.values())
    if own.job is not None:
        if not 0 <= own.job < len(plan):
            raise BadInput(f"--job {own.job}: the plan has jobs 0 to {len(plan) - 1}.")
        return 1 if run_here(plan, [own.job], output, lambda: None) else 0
    log.info("%s", coverage([cell for _, cells, _ in asked for cell in cells], own.scale))
    lacking = missing(plan, output)
    log.info("%d of %d trainings are still to run", len(lacking), len(plan))
    if own.slurm:
        for path in write_slurm(plan, lacking, output, ["reproduce", *(word for word in given if word != "--slurm")]):
            log.info("Wrote %s", path)
        return 0
    failed = [] if own.no_train or not lacking else _run(plan, lacking, output, given)
    wanted = (
        []
        if own.no_train or own.scale == "smoke"
        else [one for table, cells, _ in asked for one in scripts(table, cells)]
    )
    broken = run_missing(wanted, output)
    kept: dict[str, Record] = {}
    for table, cells, request in asked:
        _write(table, cells, request, output)
        kept = (
            records_of(table, cells, request, output, _resolve) | kept
        )  # a run that several tables share is the first one's
    if own.records:
        write_records(kept, Path(own.records[0]))
        for table, cells, _ in asked:
            if found := measured(table, cells, output):
                write_together(found, Path(own.records[0], f"{table.name.replace('/', '-')}.json"))
    _write_pages(own)
    for number in failed:
        log.error("Failed: %s, seed %d", plan[number].training.name, plan[number].training.seed)
    return 1 if failed or broken else 0


def _run(plan: Sequence[Job], lacking: Sequence[int], output: Path, given: list[str]) -> list[int]:
    """Run jobs on the devices at hand; returns those that failed."""
    lent = devices()
    if len(lent) > 1:
        return run_beside(plan, lacking, lent, ["reproduce", *given])
    return run_here(plan, lacking, output, lambda: None)


def _write(table: Table, cells: Sequence[Cell], request: Request, output: Path) -> None:
    """Write one table."""
    from graphbench.experiments.reproduce.rendering import write_table

    for path in write_table(table, obtain(table, cells, request, output, _count, _resolve), request, output):
        log.info("Wrote %s", path)


def _write_pages(own: argparse.Namespace) -> None:
    """Write the page of all records and the ledger, where they are asked for."""
    from graphbench.experiments.reproduce.ledger import Ledger
    from graphbench.experiments.reproduce.page import Page

    records = read_records([Path(folder) for folder in own.records])
    for path, page in ((own.page, lambda: Page(tables().values()).text(records)),
                       (own.ledger, lambda: Ledger(tables().values(), records).text())):  # fmt: skip
        if path is not None:
            write_text(Path(path), page())
            log.info("Wrote %s", path)


def _count(arguments: Sequence[str]) -> int:
    """Trainable parameters of what a command line builds."""
    from graphbench.cli.lightning import GraphbenchCLI
    from graphbench.cli.measures import count_parameters
    from graphbench.cli.options import own_parser, split

    return count_parameters(GraphbenchCLI(split(own_parser("params"), arguments, None).arguments).model)


def _resolve(arguments: Sequence[str]) -> dict[str, Any]:
    """Every option of a command line."""
    return _resolved(tuple(arguments))


@cache
def _resolved(arguments: tuple[str, ...]) -> dict[str, Any]:
    from graphbench.cli.lightning import resolve
    from graphbench.cli.options import own_parser, split

    return resolve(split(own_parser("params"), arguments, None).arguments)


def _list(chosen: Sequence[Table], as_json: bool, details: bool) -> None:
    """Print tables, one in a line, or the values of each."""
    if as_json:
        print(json.dumps([records(table) for table in chosen], indent=2))
        return
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, emoji=False)
    if not details:
        console.print(_overview([summary(table) for table in chosen]))
        return
    for table in chosen:
        console.print(_values(records(table)))


def _grid(title: str, header: Sequence[str]) -> Grid:
    grid = Grid(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(header):
        grid.add_column(name, no_wrap=number == 0, overflow="fold")
    return grid


def _overview(found: Sequence[dict[str, Any]]) -> Grid:
    """A line per table."""
    grid = _grid(
        "tables, for graphbench reproduce NAME", ["name", "title", "values", "seeds", "ways", "offline", "data"]
    )
    for one in found:
        ways = ", ".join(f"{number} {way}" for way, number in one["ways"].items())
        data = ", ".join(one["data"])
        grid.add_row(
            one["name"], one["title"], str(one["values"]), str(one["seeds"] or ""), ways, str(one["offline"]), data
        )
    return grid


def _values(one: dict[str, Any]) -> Grid:
    """A line per value."""
    title = f"{one['name']}: {one['title']} ({one['paper']}, {one['place']})"
    grid = _grid(title, ["row", "column", "printed", "recipe, or why not", "data", "cost"])
    for cell in one["cells"]:
        way = (
            " + ".join(cell.get("recipe", ()))
            if cell["way"] == "recipe"
            else f"{cell['way']}: {cell['why']}".rstrip(": ")
        )
        grid.add_row(cell["row"], cell["column"], cell["printed"], way, cell.get("data", ""), cell.get("cost", ""))
    return grid
