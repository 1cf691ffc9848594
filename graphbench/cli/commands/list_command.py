"""`graphbench list`, `config` and `version`: show what is installed, without importing any of it."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import graphbench
from graphbench import registry
from graphbench.cli.command_line import as_word
from graphbench.cli.console import console, plain_table, show_line
from graphbench.cli.parsers import CommandParser, file_to_write
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, BrokenPlugin, UnknownName
from graphbench.registry import Group, Record
from graphbench.registry.configurations import Configuration, Facts, configurations, facts, missing, resolve
from graphbench.registry.expected import Expected
from graphbench.runs.environment import describe_kernels

#: Width in columns of tables that go to a file or a pipe.
_WIDTH, _CONFIG_WIDTH = 200, 240
DISTRIBUTION = "graphbench-lightning"
#: Shown next to it, since scores depend on them.
_BELOW = ("torch", "pytorch-lightning", "torch-geometric")

_GENERATED = "*"  # marks sizes of graphs that graphbench generates
_NUMBERS = ("graphs", "mean nodes", "mean edges", "on disk")
_GROUPS = (*registry.GROUPS, "configs", "weights")
_BENCHMARK_HEADER = ("name", "task", "graphs", "mean nodes", "mean edges", "metric", "on disk", "offline", "licence")
_WEIGHTS_HEADER = ("name", "expected", "file", "SHA-256", "page of the authors")
_CONFIG_HEADER = ("name", "benchmark", "model", "expected", "source", "hardware", "cost")


def list_installed(arguments: Sequence[str]) -> int:
    """Print registered classes, the installed configurations, or those with weights that their authors released.

    Return 1 if `--check` finds something broken or clashing, else 0.
    """
    parser = CommandParser(
        "list",
        description="Show what is installed. Nothing is imported: the source of a broken plug-in shows some faults, "
        "and --check the rest.",
    )
    parser.add_argument("group", nargs="?", help=f"one of {', '.join(_GROUPS)}; the last two only when named")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--check", action="store_true", help="import every class, list broken ones; exit code 1 if any")
    options = parser.parse_args(arguments)
    if options.group is not None and options.group not in _GROUPS:
        raise UnknownName("group of plug-ins", options.group, _GROUPS)
    if options.group == "configs":
        return _list_configs(options.json, options.check)
    if options.group == "weights":
        if options.check:
            raise BadInput("list weights --check: authors' weights are checked when read; omit --check.")
        return _list_weights(options.json)
    groups = registry.GROUPS if options.group is None else (options.group,)
    clashes = [records for group in groups for records in registry.clashes(group).values()]
    unreadable = registry.unreadable()
    broken = _broken(groups) if options.check else None
    if options.json:
        print(json.dumps(_as_json(groups, clashes, unreadable, broken), indent=2))
    else:
        _show(groups)
        for line in _problems(clashes, unreadable, broken):
            show_line(line)
    return 1 if options.check and (broken or clashes or unreadable) else 0


def _broken(groups: Iterable[Group]) -> list[tuple[Record, str]]:
    """Return the records that cannot be loaded, with the reason."""
    broken = []
    for record in (record for group in groups for record in registry.records(group).values()):
        try:
            record.load()
        except BrokenPlugin as error:
            broken.append((record, str(error)))
    return broken


def _problems(
    clashes: list[tuple[Record, ...]], unreadable: dict[str, str], broken: list[tuple[Record, str]] | None
) -> list[str]:
    """Return one line per problem, or a closing line if everything was checked and can be loaded."""
    lines = []
    for records in clashes:
        owners = " and ".join(map(_owner, records))
        lines.append(f"Clash: {records[0].name} ({records[0].group}) is registered by {owners}; neither can be used.")
    lines += [f"Unreadable: the entry points in {folder}: {reason}" for folder, reason in unreadable.items()]
    lines += [f"Broken: {reason}" for _, reason in broken or ()]
    return ["All classes load."] if broken is not None and not lines else lines


def _show(groups: Iterable[Group]) -> None:
    """Print one table per group; show the distribution only if there are several."""
    place = console(_WIDTH)
    for group in groups:
        records = list(registry.records(group).values())
        if not records:
            place.print(f"{group}: none installed\n")
            continue
        owners = sorted({_owner(record) for record in records})
        header = _BENCHMARK_HEADER if group == "benchmarks" else ("name", "what it is")
        if len(owners) > 1:
            table = plain_table(group, [*header, "from"], _NUMBERS)
        else:
            table = plain_table(f"{group} from {owners[0]}", header, _NUMBERS)
        for record in records:
            if fault := record.fault:
                cells: tuple[str, ...] = (f"cannot be loaded: {fault}", *[""] * (len(header) - 2))
            else:
                cells = _benchmark_cells(record.spec) if group == "benchmarks" else (record.summary,)
            table.add_row(record.name, *cells, *((_owner(record),) if len(owners) > 1 else ()))
        place.print(table)
        if group == "benchmarks" and any(_is_generated(record.spec) for record in records):
            place.print(f"{_GENERATED} mean of all graphs that graphbench generates with default options")
        place.print()


def _benchmark_cells(spec: BenchmarkSpec | None) -> tuple[str, ...]:
    if spec is None:
        return ("depends on options", *[""] * (len(_BENCHMARK_HEADER) - 2))
    mark = _GENERATED if _is_generated(spec) else ""
    return (
        spec.task,
        _format(spec.num_graphs, "{:,}"),
        _format(spec.mean_nodes, "{:.1f}" + mark),
        _format(spec.mean_edges, "{:.1f}" + mark),
        f"{spec.metric} {'↑' if spec.higher_is_better else '↓'}",
        _format(spec.disk_mb, "{:,.1f} MB"),
        "yes" if spec.offline else "no",
        spec.licence or "-",
    )


def _is_generated(spec: BenchmarkSpec | None) -> bool:
    """Return whether the sizes in a specification are those of generated graphs, not of published ones."""
    return spec is not None and spec.source.startswith("generated")


def _owner(record: Record) -> str:
    return f"{record.distribution} {record.version}"


def _format(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _as_json(
    groups: Iterable[Group],
    clashes: list[tuple[Record, ...]],
    unreadable: dict[str, str],
    broken: list[tuple[Record, str]] | None,
) -> dict[str, Any]:
    """Return `{group: [record, ...], "clashes": [...], "unreadable": {...}}`, and "broken" if it was checked."""
    listed: dict[str, Any] = {
        group: [_record_as_json(record) for record in registry.records(group).values()] for group in groups
    }
    listed["clashes"] = [[dataclasses.asdict(record) for record in records] for records in clashes]
    listed["unreadable"] = unreadable
    if broken is not None:
        listed["broken"] = [dataclasses.asdict(record) | {"reason": reason} for record, reason in broken]
    return listed


def _record_as_json(record: Record) -> dict[str, Any]:
    entry = dataclasses.asdict(record) | {"summary": record.summary, "fault": record.fault}
    if record.group == "benchmarks":
        spec: BenchmarkSpec | None = record.spec
        entry["spec"] = None if spec is None else dataclasses.asdict(spec)
    return entry


# -- configurations ----------------------------------------------------------------------------------------------------


def _list_configs(as_json: bool, check: bool) -> int:
    """Print the installed configurations with their expected scores."""
    installed, lost = configurations(), missing()
    clashing = {name: same for name, same in installed.items() if len(same) > 1}
    listed = [(same[0], facts(same[0], installed)) for name, same in installed.items() if name not in clashing]
    if as_json:
        entries = [_config_as_json(configuration, about) for configuration, about in listed]
        print(json.dumps({"configs": entries, "clashes": list(clashing), "missing": lost}, indent=2))
    else:
        _show_configs(listed)
        for name, same in clashing.items():
            owners = " and ".join(one.distribution for one in same)
            show_line(f"Clash: {name} is shipped by {owners}; name the file instead.")
        for line in lost:
            show_line(
                f"Missing: the configurations {line} are not where that distribution says they are; reinstall it."
            )
    return 1 if check and (clashing or lost) else 0


def _list_weights(as_json: bool) -> int:
    """Print the configurations whose authors released weights, and where."""
    listed = [
        (configuration, expected)
        for same in configurations().values()
        for configuration in same
        if (expected := facts(configuration).expected).weights is not None
    ]
    if as_json:
        print(json.dumps({one.name: dataclasses.asdict(expected) for one, expected in listed}, indent=2))
        return 0
    table = plain_table("weights of authors, for graphbench test --config NAME --weights official", _WEIGHTS_HEADER)
    for configuration, expected in listed:
        weights = expected.weights
        assert weights is not None
        score = _expected_score(expected)
        table.add_row(configuration.name, score, weights.file, weights.sha256 or "not printed", weights.page)
    console(_CONFIG_WIDTH).print(table)
    return 0


def _show_configs(listed: list[tuple[Configuration, Facts]]) -> None:
    table = plain_table("configs, for --config NAME", _CONFIG_HEADER)
    for configuration, about in listed:
        expected = about.expected
        table.add_row(
            configuration.name,
            about.benchmark or (f"over {about.over}" if about.over else about.kind),
            about.model,
            _expected_score(expected),
            expected.source or "",
            expected.hardware or "",
            expected.cost or "",
        )
    console(_CONFIG_WIDTH).print(table)


def _expected_score(expected: Expected) -> str:
    """Return `test/MAE 0.07 ± 0.004`, or the parameters if no score is known."""
    if expected.value is None:
        return "" if expected.parameters is None else f"{expected.parameters:,} parameters"
    sd = "" if expected.sd is None else f" ± {expected.sd:g}"
    return f"{expected.metric or ''} {expected.value:g}{sd}".strip()


def _config_as_json(configuration: Configuration, about: Facts) -> dict[str, Any]:
    return {
        "name": configuration.name,
        **dataclasses.asdict(about),
        "summary": configuration.summary,
        "distribution": configuration.distribution,
        "version": configuration.version,
        "path": str(configuration.path),
    }


def show_config(arguments: Sequence[str]) -> int:
    """Print a configuration, or copy it to a file."""
    parser = CommandParser(
        "config",
        description="Print an installed configuration. `graphbench list configs` shows their names.",
    )
    parser.add_argument("name", help="such as quickstart or gps/zinc")
    parser.add_argument(
        "--copy", nargs="?", const=".", metavar="FILE", help="write it to a file, in this folder if none is named"
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
    write_text(target, text)
    show_line(f"Wrote {target}. Next: graphbench fit --config {as_word(target)}")
    return 0


# -- version ---------------------------------------------------------------------------------------------------------


def other_distributions() -> list[str]:
    """Return other installed distributions that provide the import name `graphbench`, as "name version", sorted.

    PyPI has some (`graphbench-lib` also installs a package `graphbench`), and pip does not notice when one overwrites
    the files of another.
    """
    others = {
        f"{distribution.metadata['Name']} {distribution.version}"
        for distribution in metadata.distributions()
        if _provides_graphbench(distribution) and distribution.metadata["Name"] not in (None, DISTRIBUTION)
    }
    return sorted(others)


def _provides_graphbench(distribution: metadata.Distribution) -> bool:
    top_level = (distribution.read_text("top_level.txt") or "").split()
    installed = distribution.read_text("RECORD") or ""
    return "graphbench" in top_level or installed.startswith("graphbench/") or "\ngraphbench/" in installed


def version_lines() -> Iterator[str]:
    """Yield lines with the versions, the kernels and clashing distributions."""
    yield f"{DISTRIBUTION} {graphbench.__version__}, imported as graphbench from {Path(graphbench.__file__).parent}"
    yield ", ".join([f"Python {platform.python_version()}", *map(_installed, _BELOW)])
    yield f"kernels: {describe_kernels()}"
    for other in other_distributions():
        name = other.split()[0]
        yield (
            f"Warning: {other} is another project that installs the import name graphbench too; files of one may have "
            f"overwritten the other's. Keep them in separate environments, or repair this one: pip uninstall {name}; "
            f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
        )


def _installed(name: str) -> str:
    try:
        return f"{name} {metadata.version(name)}"
    except metadata.PackageNotFoundError:
        return f"{name} not installed"


def show_version(arguments: Sequence[str]) -> int:
    """Print the report, without importing torch."""
    CommandParser("version", description="Show the versions of graphbench and its dependencies.").parse_args(arguments)
    for line in version_lines():
        show_line(line)
    return 0
