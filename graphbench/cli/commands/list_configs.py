"""`graphbench list configs`: the installed configurations with what each expects; nothing of them is imported."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from graphbench.registry.configurations import Configuration, Facts, configurations, facts, missing
from graphbench.registry.expected import Expected

_FILE_WIDTH = 240  # columns of a table that goes to a file or a pipe
_HEADER = ("name", "benchmark", "model", "expected", "source", "hardware", "cost")


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
        entries = [_as_json(configuration, said) for configuration, said in listed]
        print(json.dumps({"configs": entries, "clashes": list(clashing), "missing": lost}, indent=2))
    else:
        _show(listed)
        for name, found in clashing.items():
            print(
                f"Clash: {name} is shipped by {' and '.join(one.distribution for one in found)}; name the file instead."
            )
        for line in lost:
            print(f"Missing: the configurations {line} are not where that distribution says; reinstall it.")
    return 1 if check and (clashing or lost) else 0


def _show(listed: list[tuple[Configuration, Facts]]) -> None:
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH, highlight=False, markup=False, emoji=False)
    table = Table(
        title="configs, for --config NAME", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for name in _HEADER:
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


def _as_json(configuration: Configuration, said: Facts) -> dict[str, Any]:
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
