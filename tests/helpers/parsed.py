"""Models out of many configurations with one parser: to build it takes longer than to read a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from graphbench import BenchmarkModule
from graphbench.cli.lightning import GraphbenchCLI, LightningArgumentParser
from graphbench.cli.names import import_named
from graphbench.cli.optimizers import with_optimizer
from graphbench.registry.configurations import with_files
from graphbench.runs import trust

_SMALL = ("--data", "PATTERN", "--model.architecture", "GCN")


@cache
def _parser() -> LightningArgumentParser:
    import_named(_SMALL)
    return GraphbenchCLI(_SMALL).parser


def model_of(*arguments: str) -> BenchmarkModule:
    """The model of a command line, with every option checked as `fit` and `params` check it.

    Args:
        arguments: what follows the command.
    """
    given: Sequence[str] = with_files(arguments)
    import_named(given)
    with trust.command(), trust.enforced():
        parser = _parser()
        module: BenchmarkModule = parser.instantiate_classes(parser.parse_args(with_optimizer(given))).model
        return module
