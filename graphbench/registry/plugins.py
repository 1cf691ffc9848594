"""Which package of this project has which names, for messages where a package is not installed.

Nothing else here knows the plug-ins: installed ones register by themselves. `tests/registry/test_plugins.py` holds this
listing against the entry points of their `pyproject.toml`, and prints what it should be.
"""

from __future__ import annotations

import importlib.util
import sys

#: Distribution -> group of entry points -> names.
PLUGINS: dict[str, dict[str, str]] = {
    "graphbench-baselines": {
        "architectures": (
            "Exphormer GAT GCN GIN GINE GNNPlus GPS GRIT GT GatedGCN GraphMamba GraphSAGE Graphormer OGBGNN "
            "SAN SAT SPN Sequoia"
        ),
        "configs": "classic exphormer gnnplus gps graphmamba graphormer grit gt lrgb model san sat sequoia",
        "tables": "benchmarking-gnns",
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
}


def supplier(group: str, name: str) -> str | None:
    """Return the distribution of this project that has a name; None where none has.

    Args:
        group: architectures, benchmarks, encodings, tasks, callbacks, configs or tables.
        name: of a class, or of a configuration or table, `gps/zinc`.

    Examples:
        >>> supplier("architectures", "GPS"), supplier("configs", "sft/zinc"), supplier("architectures", "Mine")
        ('graphbench-baselines', 'graphbench-sft', None)
    """
    wanted = name.partition("/")[0] if group in ("configs", "tables") else name
    found = (distribution for distribution, groups in PLUGINS.items() if wanted in groups.get(group, "").split())
    return next(found, None)


def absent_supplier(group: str, name: str) -> str | None:
    """Return the distribution of this project that has a name and is not installed; None otherwise."""
    owner = supplier(group, name)
    return None if owner is None or _is_installed(owner) else owner


def absent_owner(path: str) -> str | None:
    """Return the distribution of this project whose class a dotted path names, where it is not installed.

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
    """Return what installs a package of this project into this environment.

    Examples:
        >>> advice("graphbench-sft").partition(" -m ")[2]
        "pip install graphbench-sft (all plug-ins: pip install 'graphbench-lightning[all]')"
    """
    return (
        f"It is in {distribution}, which is not installed: {sys.executable} -m pip install {distribution} (all "
        "plug-ins: pip install 'graphbench-lightning[all]')"
    )
