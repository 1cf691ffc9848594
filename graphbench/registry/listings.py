"""What graphbench itself registers, read from the listings of its packages: one more class needs no entry point.

A listing is the stub `__init__.pyi` of a package whose names are loaded on first use. It says where every name is, and
reading it imports nothing. What is added to it is known at once, in an installation by `pip install -e` too, whose
entry points are those of the day on which it was installed; a plug-in, which has no listing here, registers by them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

#: The distribution that the listings belong to.
DISTRIBUTION = "graphbench-lightning"
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Listing:
    """Names of one package of graphbench that are registered.

    Args:
        package: its name inside graphbench.
        module: the module of it whose names are meant; all where None.
        without: names in the listing that are no classes for configurations, such as what others derive from.
    """

    package: str
    module: str | None = None
    without: frozenset[str] = field(default_factory=frozenset)

    @property
    def stub(self) -> Path:
        """The file that holds it."""
        return _PACKAGE / self.package / "__init__.pyi"

    def targets(self) -> Iterator[tuple[str, str]]:
        """`(name, "package.module:name")` of every name, in the order of the file.

        Raises:
            OSError: the file cannot be read.

        Examples:
            >>> list(Listing("nn", "positional").targets())[0]
            ('DegreeEncoder', 'graphbench.nn.positional:DegreeEncoder')
        """
        for statement in ast.parse(self.stub.read_bytes()).body:
            if not isinstance(statement, ast.ImportFrom) or statement.module is None:  # `from . import` lists modules
                continue
            if self.module in (None, statement.module):
                module = f"graphbench.{self.package}.{statement.module}"
                yield from (
                    (one.name, f"{module}:{one.name}") for one in statement.names if one.name not in self.without
                )


#: Group of the registry -> the listings that its classes of graphbench stand in.
LISTINGS = {
    "benchmarks": (Listing("benchmarks", without=frozenset({"GraphBenchmark"})),),
    "encodings": (
        Listing("encodings", without=frozenset({"Kind", "Normalization", "Pattern"})),
        Listing("nn", "positional"),
    ),
    "callbacks": (Listing("callbacks", without=frozenset({"DiagnosticTable"})),),
}
