"""`graphbench version`: show the versions of graphbench and its main dependencies, and clashes with other packages.

PyPI has other distributions around this import name (`graphbench-lib` installs a package `graphbench` too), and pip
does not notice when one overwrites the files of another.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

import graphbench
from graphbench.cli.parsers import CommandParser
from graphbench.runs.environment import describe_kernels

DISTRIBUTION = "graphbench-lightning"
_BELOW = ("torch", "pytorch-lightning", "torch-geometric")


def other_distributions() -> list[str]:
    """Return other installed distributions that provide the import name `graphbench`, as "name version", sorted."""
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


def report() -> Iterator[str]:
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


def run(arguments: Sequence[str]) -> int:
    """Print the report, without importing torch."""
    CommandParser("version", description="Show which graphbench this is.").parse_args(arguments)
    for line in report():
        print(line)
    return 0
