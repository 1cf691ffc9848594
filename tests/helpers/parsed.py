"""Models from many configurations with one parser: building it takes longer than reading a configuration."""

from __future__ import annotations

from functools import cache

from graphbench import BenchmarkModule
from graphbench.cli.command_line import CommandLine
from graphbench.cli.lightning import GraphbenchCLI, LightningArgumentParser
from graphbench.cli.options import import_named, with_optimizer
from graphbench.runs import trust

_SMALL = ("--data", "PATTERN", "--model.architecture", "GCN")


@cache
def _parser() -> LightningArgumentParser:
    import_named(_SMALL)
    return GraphbenchCLI(_SMALL).parser


def model_of(*arguments: str) -> BenchmarkModule:
    """Return the model of a command line, with every option checked as `fit` and `params` check it.

    Args:
        arguments: the words after the command.
    """
    given = CommandLine.parse(arguments).located().words
    import_named(given)
    with trust.admitting_all(), trust.enforced():
        parser = _parser()
        module: BenchmarkModule = parser.instantiate_classes(parser.parse_args(with_optimizer(given))).model
        return module
