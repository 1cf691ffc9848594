"""The few options that a command takes beside LightningCLI's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphbench import trust
from graphbench.cli.names import import_named, moved_paths
from graphbench.configurations import with_files
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

#: Help of an option that several commands have.
DATA_CHANGED = "what to do where the data are not those of the fit: refuse (default) or accept"


@dataclass(frozen=True)
class Request:
    """A command line, split.

    Args:
        own: the command's own options.
        arguments: what LightningCLI parses, with the run's configuration in front where a run is named.
        run: the existing run that was named, if any.
        changed: options were given beside the run's own configuration.
        moved: options of its data that lead elsewhere than they say, see `moved_paths`.
    """

    own: argparse.Namespace
    arguments: list[str]
    run: RunFolder | None
    changed: bool = False
    moved: dict[str, tuple[str, str]] = field(default_factory=dict)


def own_parser(command: str, **help_texts: str) -> argparse.ArgumentParser:
    """A parser for the command's own options, each taking one value, and for `--trust`."""
    parser = argparse.ArgumentParser(prog=f"graphbench {command}", add_help=False, allow_abbrev=False)
    for name, text in help_texts.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, help=text)
    parser.add_argument("--trust", action="store_true", help="import whatever the configuration of a run names")
    return parser


def split(parser: argparse.ArgumentParser, arguments: Sequence[str], run_option: str | None = "run") -> Request:
    """Take the command's own options out and import the classes that the rest names.

    Args:
        parser: knows the own options.
        arguments: the command line after the command.
        run_option: own option that names an existing run, whose configuration is read first.

    Raises:
        BadInput: the named folder holds no run or one that may not import what it names, or there is no such
            configuration.
        UnknownName: a benchmark or architecture is not registered.
    """
    own, rest = parser.parse_known_args(list(arguments))
    rest = with_files(rest)
    if any(argument in ("-h", "--help") for argument in rest):
        parser.print_help()
    folder = getattr(own, run_option) if run_option else None
    run = RunFolder.existing(folder) if folder else None
    changed = bool(rest)
    moved = moved_paths(run) if run is not None else {}
    if run is not None:
        trust.require(trust.Policy.of(run.config, own.trust))
        there = [word for name, (_, path) in moved.items() for word in (f"--data.{name}", path)]
        rest = ["--config", str(run.config), *there, *rest]
    if not rest:
        raise BadInput(
            f"{parser.prog} needs a configuration: --config NAME_OR_FILE, or --data NAME --model.architecture NAME"
            + (f", or --{run_option} FOLDER of an earlier run." if run_option else ".")
        )
    import_named(rest)
    return Request(own, rest, run, changed, moved)
