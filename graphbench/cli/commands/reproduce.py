"""`graphbench reproduce`: train what published tables lack, and show printed and obtained values side by side."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from rich.table import Table as Grid

from graphbench.cli.checks import check_fit_options
from graphbench.cli.command_line import CommandLine
from graphbench.cli.console import console, plain_table
from graphbench.cli.parsers import CommandParser, file_to_write, folder_to_write, near_options
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, check_range
from graphbench.experiments.commands import visible_gpus
from graphbench.experiments.launchers import Cluster, Unit, add_options, launch
from graphbench.experiments.records import Record, read_records, write_records, write_together
from graphbench.experiments.reproduce.controls import controlled
from graphbench.experiments.reproduce.obtained import obtain, records_of
from graphbench.experiments.reproduce.plan import SCALES, Job, Request, coverage, is_trained, jobs, select
from graphbench.experiments.reproduce.rendering import records, summary
from graphbench.experiments.reproduce.running import missing, planned, run_beside, run_here, units
from graphbench.experiments.reproduce.scripts import measured, run_missing, scripts
from graphbench.experiments.reproduce.tables import Cell, Table, find_table, table_files, tables
from graphbench.experiments.status import read_status, summarize, write_plan
from graphbench.experiments.trainings import write_settled

log = logging.getLogger(__name__)

_DESCRIPTION = """Train what is missing for a table of a paper, and write it with printed and obtained values side by
side (mean and standard deviation over seeds) as HTML, Markdown and CSV. Finished runs are not repeated and
interrupted ones resume, so you can stop the command at any time and run it again. Tables share common runs
if they share DIR. Options with a dot, such as --trainer.accelerator=gpu, go to every training. --records
keeps a small JSON file of every finished run, and --page writes a page from all records: graphbench reproduce --page
RESULTS.md --records FOLDER ..."""
#: Width in columns of listings that go to a file or a pipe.
_WIDTH = 200


def _parser() -> CommandParser:
    parser = CommandParser("reproduce", description=_DESCRIPTION)
    parser.add_argument("table", nargs="*", metavar="TABLE", help="such as sft/table-4, or sft for all of its tables")
    parser.add_argument("--list", action="store_true", help="show the tables, or the values of named ones")
    parser.add_argument("--json", action="store_true", help="with --list: JSON")
    several: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}  # repeated options add up
    parser.add_argument("--only", metavar="ROW", help="only these rows", **several)
    parser.add_argument("--columns", metavar="COLUMN", help="only these columns", **several)
    parser.add_argument("--scale", choices=SCALES, default="full", help="the recipe, a twentieth of it, or a few steps")
    parser.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1; by default as many as the paper")
    parser.add_argument(
        "--control",
        action="store_true",
        help="four rows of equal size of each model: only message passing, with encodings, with attention, and fused",
    )
    parser.add_argument("--offline", action="store_true", help="data from packages or generated data, not downloads")
    parser.add_argument("--output", metavar="DIR", help="folder of runs and tables; needed unless listing")
    parser.add_argument("--no-train", action="store_true", help="write the tables from finished runs")
    parser.add_argument("--job", type=int, metavar="NUMBER", help="run only this job of the plan, as on a cluster")
    parser.add_argument(
        "--records", metavar="FOLDER", help="records of finished runs go to the first of these", **several
    )
    parser.add_argument(
        "--page", metavar="FILE", help="write the page of all records in the folders, such as RESULTS.md"
    )
    parser.add_argument(
        "--ledger", metavar="FILE", help="write a line for every printed value, with the records in the folders"
    )
    add_options(parser)
    return parser


def reproduce(arguments: Sequence[str]) -> int:
    """List tables, or train what they lack and write them; return 1 if a training failed, else 0."""
    parser = _parser()
    options, rest = parser.parse_known_args(list(arguments))
    extra = []
    for one in CommandLine.parse(rest).options:
        if "." not in one.name or not one.values:
            raise BadInput(
                f"{one.words[0]}: not an option of graphbench reproduce. {near_options(one.name[2:], parser.names)}"
                "Options of each training have the form --a.b=VALUE."
            )
        extra.append(f"{one.name}{'+' * one.appends}={one.value}")
    chosen = [find_table(name) for name in _names(options.table)] if options.table else list(tables().values())
    if options.list:
        listed = [replace(one, cells=tuple(select(one, options.only, options.columns))) for one in chosen]
        _list(listed, options.json, details=bool(options.table))
        return 0
    if options.json:
        raise BadInput("--json belongs to --list, which is missing.")
    pages = {"--page": options.page, "--ledger": options.ledger}
    written = {option: path for option, path in pages.items() if path is not None}
    for option, path in written.items():
        if not options.records:
            raise BadInput(f"{option} FILE needs --records FOLDER ...: the folders with the records to write it from.")
        file_to_write(option, path)
    if written and not options.table:
        _write_pages(options)
        return 0
    if not options.table:
        raise BadInput("Name a table, such as sft/table-4; `graphbench reproduce --list` shows them.")
    if options.output is None:
        raise BadInput("--output DIR is missing: the folder of runs and tables, which is created if missing.")
    if options.job is not None and options.no_train:
        raise BadInput(f"--job {options.job} is one training, and --no-train runs none: omit one of them.")
    if options.seeds is not None:
        check_range("--seeds", options.seeds, at_least=1, whole=True)
    return _reproduce(chosen, options, tuple(extra), list(arguments))


def _names(given: Sequence[str]) -> list[str]:
    """Expand prefixes to all tables that begin with them."""
    files = table_files()
    names = [match for name in given for match in ([one for one in files if one.startswith(f"{name}/")] or [name])]
    return list(dict.fromkeys(names))


def _request(table: Table, options: argparse.Namespace, extra: tuple[str, ...]) -> Request:
    count = options.seeds if options.seeds is not None else 1 if options.scale == "smoke" else table.seeds or 1
    return Request(options.scale, tuple(range(count)), options.offline, extra)


def _reproduce(chosen: Sequence[Table], options: argparse.Namespace, extra: tuple[str, ...], given: list[str]) -> int:
    """Run missing trainings, or submit them as jobs, and write the tables."""
    cluster, output = Cluster.of(options), folder_to_write("--output", options.output)
    wanted = [(*_selected(table, options), _request(table, options, extra)) for table in chosen]
    for recipe in dict.fromkeys(cell.recipe for _, cells, _ in wanted for cell in cells if extra and is_trained(cell)):
        configs = [word for name in recipe for word in ("--config", name)]
        check_fit_options("reproduce", [*configs, *extra], (), {})  # else every training would report a misspelt option
    plans = (job for _, cells, request in wanted for job in jobs(cells, request, output))
    plan = list({job.training.folder(output): job for job in plans}.values())
    if options.job is not None:
        if not 0 <= options.job < len(plan):
            raise BadInput(f"--job {options.job}: the plan has jobs 0 to {len(plan) - 1}.")
        return 1 if run_here(plan, [options.job], output, lambda: None) else 0
    log.info("%s", coverage([cell for _, cells, _ in wanted for cell in cells], options.scale))
    lacking = missing(plan, output)
    log.info("%d of %d trainings are still to run", len(lacking), len(plan))
    # For `graphbench status`, which only reads files.
    write_plan(output, planned(plan, output), end="val" if options.scale == "smoke" else "test")
    if cluster is not None and lacking and not options.no_train:
        words = ["reproduce", *CommandLine.parse(given).without("--launcher").words]
        last = Unit("tables", (*words, "--no-train"), output / "logs" / "tables.log")
        stages = units(plan, lacking, output, words)
        unwritten = last in launch(stages, cluster, output, last, lambda: summarize(read_status(output)))
        return max(_failed(plan, missing(plan, output)), 1 if unwritten else 0)
    failed = [] if options.no_train or not lacking else _run(plan, lacking, output, given)
    measures = not options.no_train and options.scale != "smoke"
    broken = run_missing(
        [one for table, cells, _ in wanted for one in scripts(table, cells)] if measures else [], output
    )
    write_settled(lambda: missing(plan, output), lambda: _write(wanted, options, output))
    return max(_failed(plan, failed), 1 if broken else 0)


def _failed(plan: Sequence[Job], numbers: Sequence[int]) -> int:
    """Log jobs without a score, whose reasons have been logged; return the exit code."""
    for number in numbers:
        log.error("Not finished: %s, seed %d", plan[number].training.name, plan[number].training.seed)
    return 1 if numbers else 0


def _selected(table: Table, options: argparse.Namespace) -> tuple[Table, list[Cell]]:
    """Return a table and its selected cells, or its control."""
    cells = select(table, options.only, options.columns)
    return controlled(table, cells, _measure) if options.control else (table, cells)


def _run(plan: Sequence[Job], lacking: Sequence[int], output: Path, given: list[str]) -> list[int]:
    """Run jobs on all devices; return those that failed."""
    lent = visible_gpus()
    if len(lent) > 1:
        return run_beside(plan, lacking, lent, ["reproduce", *given])
    return run_here(plan, lacking, output, lambda: None)


def _write(wanted: Sequence[tuple[Table, list[Cell], Request]], options: argparse.Namespace, output: Path) -> None:
    """Write tables, records of their runs, and the pages of all records."""
    from graphbench.experiments.reproduce.rendering import write_table

    finished: dict[str, Record] = {}
    for table, cells, request in wanted:
        for path in write_table(table, obtain(table, cells, request, output, _count, _resolve), request, output):
            log.info("Wrote %s", path)
        # a run that tables share is recorded for the first one
        finished = records_of(table, cells, request, output, _resolve) | finished
    if options.records:
        write_records(finished, Path(options.records[0]))
        for table, cells, _ in wanted:
            if values := measured(table, cells, output):
                write_together(values, Path(options.records[0], f"{table.name.replace('/', '-')}.json"))
    _write_pages(options)


def _write_pages(options: argparse.Namespace) -> None:
    """Write the page of all records and the ledger, if requested."""
    from graphbench.experiments.reproduce.ledger import Ledger
    from graphbench.experiments.reproduce.page import Page

    records = read_records([Path(folder) for folder in options.records])
    if options.page is not None:
        write_text(Path(options.page), Page(tables().values()).text(records))
        log.info("Wrote %s", options.page)
    if options.ledger is not None:
        write_text(Path(options.ledger), Ledger(tables().values(), records).text())
        log.info("Wrote %s", options.ledger)


def _count(arguments: Sequence[str]) -> int:
    """Count the trainable parameters of what a command line builds."""
    from graphbench.cli.console import count_parameters
    from graphbench.cli.lightning import build

    return count_parameters(build("reproduce", arguments).model)


def _measure(arguments: Sequence[str]) -> tuple[Mapping[str, Any], int]:
    """Return every option and the number of parameters of what a command line builds."""
    from graphbench.cli.lightning import measure

    return measure("reproduce", arguments)


def _resolve(arguments: Sequence[str]) -> dict[str, Any]:
    """Return every option of a command line."""
    return _resolve_once(tuple(arguments))


@cache
def _resolve_once(arguments: tuple[str, ...]) -> dict[str, Any]:
    from graphbench.cli.lightning import resolve
    from graphbench.cli.options import own_parser, parse_request

    return resolve(parse_request(own_parser("reproduce"), arguments, None).arguments)


def _list(chosen: Sequence[Table], as_json: bool, details: bool) -> None:
    """Print a line per table, or the values of each."""
    if as_json:
        print(json.dumps([records(table) for table in chosen], indent=2))
        return
    if not details:
        console(_WIDTH).print(_overview([summary(table) for table in chosen]))
        return
    for table in chosen:
        console(_WIDTH).print(_values(records(table)))


def _overview(summaries: Sequence[dict[str, Any]]) -> Grid:
    """Return a line per table."""
    grid = plain_table(
        "tables, for graphbench reproduce NAME", ["name", "title", "values", "seeds", "ways", "offline", "data"]
    )
    for one in summaries:
        ways = ", ".join(f"{number} {way}" for way, number in one["ways"].items())
        data = ", ".join(one["data"])
        grid.add_row(
            one["name"], one["title"], str(one["values"]), str(one["seeds"] or ""), ways, str(one["offline"]), data
        )
    return grid


def _values(one: dict[str, Any]) -> Grid:
    """Return a line per value."""
    title = f"{one['name']}: {one['title']} ({one['paper']}, {one['place']})"
    grid = plain_table(title, ["row", "column", "printed", "recipe, or why not", "data", "cost"])
    for cell in one["cells"]:
        way = (
            " + ".join(cell.get("recipe", ()))
            if cell["way"] == "recipe"
            else f"{cell['way']}: {cell['why']}".rstrip(": ")
        )
        grid.add_row(cell["row"], cell["column"], cell["printed"], way, cell.get("data", ""), cell.get("cost", ""))
    return grid
