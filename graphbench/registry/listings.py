"""List what this project registers: classes of graphbench, read from package stubs, and names in its plug-ins.

A listing is the stub `__init__.pyi` of a package whose names are loaded on first use. It says which module defines each
name, and reading it imports nothing. A class added to it is registered at once, even in an editable installation, whose
entry points are not updated after it is installed.

Plug-ins register by their own entry points. `PLUGINS` only serves messages about packages that are not installed;
`tests/registry/test_listings.py` compares it with every `pyproject.toml` and prints the correct contents.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

#: The distribution that the listings belong to.
DISTRIBUTION = "graphbench-lightning"
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Listing:
    """Registered names of one package of graphbench.

    Args:
        package: its name inside graphbench.
        module: the only module whose names count; None for all.
        without: names that are not classes for configurations, such as base classes.
    """

    package: str
    module: str | None = None
    without: frozenset[str] = frozenset()

    def targets(self) -> Iterator[tuple[str, str]]:
        """Yield `(name, "package.module:name")` of every name, in the order of the file.

        Examples:
            >>> list(Listing("nn", "positional").targets())[0]
            ('DegreeEncoder', 'graphbench.nn.positional:DegreeEncoder')
        """
        for statement in ast.parse((_PACKAGE / self.package / "__init__.pyi").read_bytes()).body:
            if not isinstance(statement, ast.ImportFrom) or statement.module is None:  # `from . import` lists modules
                continue
            if self.module in (None, statement.module):
                module = f"graphbench.{self.package}.{statement.module}"
                yield from (
                    (one.name, f"{module}:{one.name}") for one in statement.names if one.name not in self.without
                )


#: Group of the registry -> listings of its classes in graphbench.
LISTINGS: dict[Literal["benchmarks", "encodings", "callbacks"], tuple[Listing, ...]] = {
    "benchmarks": (Listing("benchmarks", without=frozenset({"GraphBenchmark"})),),
    "encodings": (
        Listing("encodings", without=frozenset({"Kind", "Normalization", "Pattern", "Ties"})),
        Listing("nn", "positional"),
    ),
    "callbacks": (Listing("callbacks", without=frozenset({"DiagnosticTable"})),),
}


#: Distribution -> group of entry points -> names.
PLUGINS: dict[str, dict[str, str]] = {
    "graphbench-baselines": {
        "architectures": (
            "Exphormer GAT GCN GIN GINE GNNPlus GPS GRIT GT GatedGCN GraphMamba GraphSAGE Graphormer NeuralWalker "
            "OGBGNN PNA PPGT SAN SAT SPN Sequoia SigGateGT"
        ),
        "configs": (
            "classic exphormer gnnplus gps graphmamba graphormer grit gt lrgb model neuralwalker pna ppgt san sat "
            "sequoia siggate"
        ),
        "tables": "benchmarking-gnns echo",
    },
    "graphbench-deepgraph": {
        "architectures": "DeepGraph",
        "configs": "deepgraph",
        "tables": "deepgraph",
    },
    "graphbench-large-graphs": {
        "architectures": "AdvDIFFormer DIFFormer GCNII NAGphormer NodeFormer Polynormer SGFormer TunedGNN",
        "configs": "large-graphs",
    },
    "graphbench-linear-transformer": {
        "architectures": "LinearTransformer Positions",
        "configs": "linear-transformer",
        "encodings": "LinearTransformerPE",
        "tables": "electric-flow",
    },
    "graphbench-point-clouds": {
        "architectures": (
            "CNDGCNN CNPointNet DGCNN PointCNN PointConv PointNet PointNetPlusPlus PointSequoia "
            "PointTransformer SetTransformer VNDGCNN VNPointNet"
        ),
        "configs": "point-clouds",
    },
    "graphbench-sequences": {
        "architectures": "Luna MEGA S4D SequenceSequoia SequenceTransformer",
        "configs": "sequences",
    },
    "graphbench-sfi-former": {
        "architectures": "DFiFormer SFiFormer",
        "callbacks": "FlowSparsity",
        "configs": "sfi-former",
        "tables": "sfi-former",
    },
    "graphbench-sft": {
        "architectures": "SFT",
        "configs": "sft",
        "tables": "sft",
    },
    "graphbench-weights": {
        "weights": "molecules-base",
    },
}


def supplier(group: str, name: str) -> str | None:
    """Return the distribution of this project that registers a name, if any.

    Examples:
        >>> supplier("architectures", "GPS"), supplier("configs", "sft/zinc"), supplier("architectures", "Mine")
        ('graphbench-baselines', 'graphbench-sft', None)
    """
    entry = name.partition("/")[0] if group in ("configs", "tables") else name
    return next((owner for owner, groups in PLUGINS.items() if entry in groups.get(group, "").split()), None)


def absent_supplier(group: str, name: str) -> str | None:
    """Return the distribution of this project that registers a name, if it is not installed."""
    owner = supplier(group, name)
    return None if owner is None or _is_installed(owner) else owner


def absent_owner(path: str) -> str | None:
    """Return the distribution of this project that contains a dotted path, if it is not installed.

    Examples:
        >>> absent_owner("torch.optim.AdamW") is None
        True
    """
    package = path.partition(".")[0]
    owner = next((one for one in PLUGINS if one.replace("-", "_") == package), None)
    return None if owner is None or _is_installed(owner) else owner


def _is_installed(distribution: str) -> bool:
    return importlib.util.find_spec(distribution.replace("-", "_")) is not None


def advice(distribution: str) -> str:
    """Say how to install a package of this project into this environment.

    Examples:
        >>> advice("graphbench-sft").partition(" -m ")[2]
        "pip install graphbench-sft (all plug-ins: pip install 'graphbench-lightning[all]')"
    """
    return (
        f"It is in {distribution}, which is not installed: {sys.executable} -m pip install {distribution} (all "
        "plug-ins: pip install 'graphbench-lightning[all]')"
    )
