"""`graphbench list`: what is installed, read without importing any of it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from graphbench import registry
from graphbench.cli.parsers import CommandParser, file_to_write
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.errors import BadInput, BrokenPlugin, UnknownName
from graphbench.registry import Group, Record
from graphbench.registry.configurations import Configuration, Facts, configurations, facts, missing, resolve
from graphbench.registry.expected import Expected

_FILE_WIDTH = 200  # columns of a table that goes to a file or a pipe, where nothing is gained by wrapping
_GENERATED = "*"  # stands behind sizes of graphs that are generated here
_NUMBERS = ("graphs", "mean nodes", "mean edges", "on disk")
_GROUPS = (*registry.GROUPS, "configs")
_BENCHMARK_HEADER = ("name", "task", "graphs", "mean nodes", "mean edges", "metric", "on disk", "offline", "licence")


def _parser() -> CommandParser:
    parser = CommandParser(
        "list",
        description="Show what is installed. Nothing is imported, so a broken plug-in is listed like any other.",
    )
    parser.add_argument("group", nargs="?", help=f"one of {', '.join(_GROUPS)}; all but the last when left out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--check", action="store_true", help="import every class and list the broken ones; exit code 1")
    return parser


def list_installed(arguments: Sequence[str]) -> int:
    """Print what is registered.

    Returns:
        0; with `--check` 1 when something is broken or clashes.

    Raises:
        UnknownName: there is no such group.
    """
    options = _parser().parse_args(arguments)
    if options.group is not None and options.group not in _GROUPS:
        raise UnknownName("group of plug-ins", options.group, _GROUPS)
    if options.group == "configs":
        return show_configs(options.json, options.check)
    groups = registry.GROUPS if options.group is None else (options.group,)
    clashes = [found for group in groups for found in registry.clashes(group).values()]
    unreadable = registry.unreadable()
    broken = _broken(groups) if options.check else None
    if options.json:
        print(json.dumps(_as_json(groups, clashes, unreadable, broken), indent=2))
    else:
        _show(groups)
        for line in _problems(clashes, unreadable, broken):
            print(line)
    return 1 if options.check and (broken or clashes or unreadable) else 0


def _broken(groups: Iterable[Group]) -> list[tuple[Record, str]]:
    """Records that cannot be loaded, with the reason."""
    checked = [(record, _fault(record)) for group in groups for record in registry.records(group).values()]
    return [(record, fault) for record, fault in checked if fault is not None]


def _fault(record: Record) -> str | None:
    try:
        record.load()
    except BrokenPlugin as error:
        return str(error)
    return None


def _problems(
    clashes: list[tuple[Record, ...]], unreadable: dict[str, str], broken: list[tuple[Record, str]] | None
) -> list[str]:
    """One line a problem; with a last word when everything was checked and is well."""
    lines = []
    for records in clashes:
        owners = " and ".join(map(_owner, records))
        lines.append(f"Clash: {records[0].name} ({records[0].group}) is registered by {owners}; neither can be used.")
    lines += [f"Unreadable: the entry points in {folder}: {reason}" for folder, reason in unreadable.items()]
    lines += [f"Broken: {reason}" for _, reason in broken or ()]
    if broken is not None and not lines:
        lines.append("All classes load.")
    return lines


def _show(groups: Iterable[Group]) -> None:
    """One table per group; the distribution is a column only where there are several."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False, markup=False, emoji=False)
    for group in groups:
        records = list(registry.records(group).values())
        if not records:
            console.print(f"{group}: none installed\n")
            continue
        owners = sorted({_owner(record) for record in records})
        several = len(owners) > 1
        title = group if several else f"{group} from {owners[0]}"
        table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        header = _BENCHMARK_HEADER if group == "benchmarks" else ("name", "what it is")
        for name in (*header, *(("from",) if several else ())):
            numeric = name in _NUMBERS
            table.add_column(name, justify="right" if numeric else "left", no_wrap=name == "name", overflow="fold")
        for record in records:
            facts = _facts(record.spec) if group == "benchmarks" else (record.summary,)
            table.add_row(record.name, *facts, *((_owner(record),) if several else ()))
        console.print(table)
        if group == "benchmarks" and any(_is_generated(record.spec) for record in records):
            console.print(f"{_GENERATED} of the graphs that are generated here, all of them, as they are by default")
        console.print()


def _facts(spec: BenchmarkSpec | None) -> tuple[str, ...]:
    """Task, graphs, mean nodes, mean edges, metric, size on disk, offline, licence."""
    if spec is None:
        return ("depends on options", *[""] * (len(_BENCHMARK_HEADER) - 2))
    mark = _GENERATED if _is_generated(spec) else ""
    return (
        spec.task,
        _known(spec.num_graphs, "{:,}"),
        _known(spec.mean_nodes, "{:.1f}" + mark),
        _known(spec.mean_edges, "{:.1f}" + mark),
        f"{spec.metric} {'↑' if spec.higher_is_better else '↓'}",
        _known(spec.disk_mb, "{:,.1f} MB"),
        "yes" if spec.offline else "no",
        spec.licence or "-",
    )


def _is_generated(spec: BenchmarkSpec | None) -> bool:
    """Whether the sizes that a specification says are those of graphs that are generated, not of published ones."""
    return spec is not None and spec.source.startswith("generated")


def _owner(record: Record) -> str:
    return f"{record.distribution} {record.version}"


def _known(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _as_json(
    groups: Iterable[Group],
    clashes: list[tuple[Record, ...]],
    unreadable: dict[str, str],
    broken: list[tuple[Record, str]] | None,
) -> dict[str, Any]:
    """`{group: [record, ...], "clashes": [...], "unreadable": {...}}`, and "broken" when it was checked."""
    listed: dict[str, Any] = {
        group: [_record_as_json(record) for record in registry.records(group).values()] for group in groups
    }
    listed["clashes"] = [[dataclasses.asdict(record) for record in records] for records in clashes]
    listed["unreadable"] = unreadable
    if broken is not None:
        listed["broken"] = [dataclasses.asdict(record) | {"reason": reason} for record, reason in broken]
    return listed


def _record_as_json(record: Record) -> dict[str, Any]:
    entry = dataclasses.asdict(record) | {"summary": record.summary}
    if record.group == "benchmarks":
        spec: BenchmarkSpec | None = record.spec
        entry["spec"] = None if spec is None else dataclasses.asdict(spec)
    return entry


_CONFIG_WIDTH = 240  # columns of a table that goes to a file or a pipe
_CONFIG_HEADER = ("name", "benchmark", "model", "expected", "source", "hardware", "cost")


def show_configs(as_json: bool, check: bool = False) -> int:
    """Print what is installed.

    Args:
        as_json: JSON instead of a table.
        check: the exit code says whether something is wrong.

    Returns:
        0; with `check` 1 where names clash or an entry point leads nowhere.

    Raises:
        BadInput: a configuration is damaged.
    """
    known, lost = configurations(), missing()
    clashing = {name: found for name, found in known.items() if len(found) > 1}
    listed = [(found[0], facts(found[0], known)) for name, found in known.items() if name not in clashing]
    if as_json:
        entries = [_config_as_json(configuration, said) for configuration, said in listed]
        print(json.dumps({"configs": entries, "clashes": list(clashing), "missing": lost}, indent=2))
    else:
        _show_table_of_configs(listed)
        for name, found in clashing.items():
            print(
                f"Clash: {name} is shipped by {' and '.join(one.distribution for one in found)}; name the file instead."
            )
        for line in lost:
            print(f"Missing: the configurations {line} are not where that distribution says; reinstall it.")
    return 1 if check and (clashing or lost) else 0


def _show_table_of_configs(listed: list[tuple[Configuration, Facts]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _CONFIG_WIDTH, highlight=False, markup=False, emoji=False)
    table = Table(
        title="configs, for --config NAME", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for name in _CONFIG_HEADER:
        table.add_column(name, no_wrap=name == "name", overflow="fold")
    for configuration, said in listed:
        expected = said.expected
        where = said.benchmark or (f"over {said.over}" if said.over else said.kind)
        table.add_row(
            configuration.name,
            where,
            said.model,
            _score(expected),
            expected.source or "",
            expected.hardware or "",
            expected.cost or "",
        )
    console.print(table)


def _score(expected: Expected) -> str:
    """`test/MAE 0.07 ± 0.004`, or the parameters where no score is known."""
    if expected.value is None:
        return "" if expected.parameters is None else f"{expected.parameters:,} parameters"
    sd = "" if expected.sd is None else f" ± {expected.sd:g}"
    return f"{expected.metric or ''} {expected.value:g}{sd}".strip()


def _config_as_json(configuration: Configuration, said: Facts) -> dict[str, Any]:
    return {
        "name": configuration.name,
        "kind": said.kind,
        "over": said.over,
        "benchmark": said.benchmark,
        "model": said.model,
        "expected": dataclasses.asdict(said.expected),
        "summary": configuration.summary,
        "distribution": configuration.distribution,
        "version": configuration.version,
        "path": str(configuration.path),
    }


def show_config(arguments: Sequence[str]) -> int:
    """Print a configuration, or write it into a file.

    Raises:
        BadInput: no configuration has the name, or the file to write exists.
    """
    parser = CommandParser(
        "config",
        description="Print an installed configuration. `graphbench list configs` shows their names.",
    )
    parser.add_argument("name", help="such as quickstart or gps/zinc")
    parser.add_argument(
        "--copy", nargs="?", const=".", metavar="FILE", help="write it to a file, in this folder where none is named"
    )
    options = parser.parse_args(arguments)
    path = resolve(options.name)
    text = path.read_text(encoding="utf-8")
    if options.copy is None:
        sys.stdout.write(text)
        return 0
    target = Path(options.copy)
    if target.is_dir():
        target = target / path.name
    if file_to_write("--copy", target).exists():
        raise BadInput(f"--copy {target}: this file exists already, and nothing is overwritten. Name another.")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    print(f"Wrote {target}. Next: graphbench fit --config {target}")
    return 0
