"""The few options that a command takes beside LightningCLI's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from graphbench.cli.names import import_named
from graphbench.errors import BadInput
from graphbench.runs import RunFolder


@dataclass(frozen=True)
class Request:
    """A command line, split.

    Args:
        own: the command's own options.
        arguments: what LightningCLI parses, with the run's configuration in front where a run is named.
        run: the existing run that was named, if any.
    """

    own: argparse.Namespace
    arguments: list[str]
    run: RunFolder | None


def own_parser(command: str, **help_texts: str) -> argparse.ArgumentParser:
    """A parser for the command's own options, each taking one value."""
    parser = argparse.ArgumentParser(prog=f"graphbench {command}", add_help=False, allow_abbrev=False)
    for name, text in help_texts.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, help=text)
    return parser


def split(parser: argparse.ArgumentParser, arguments: Sequence[str], run_option: str | None = "run") -> Request:
    """Take the command's own options out and import the classes that the rest names.

    Args:
        parser: knows the own options.
        arguments: the command line after the command.
        run_option: own option that names an existing run, whose configuration is read first.

    Raises:
        BadInput: the named folder holds no run.
        UnknownName: a benchmark or architecture is not registered.
    """
    own, rest = parser.parse_known_args(list(arguments))
    if any(argument in ("-h", "--help") for argument in rest):
        parser.print_help()
    folder = getattr(own, run_option) if run_option else None
    run = RunFolder.existing(folder) if folder else None
    if run is not None:
        rest = ["--config", str(run.config), *rest]
    if not rest:
        raise BadInput(
            f"{parser.prog} needs a configuration: --config FILE, or --data NAME --model.architecture NAME"
            + (f", or --{run_option} FOLDER of an earlier run." if run_option else ".")
        )
    import_named(rest)
    return Request(own, rest, run)
