"""Load data sets of the Open Graph Benchmark by name: graphs with their split, or one graph with a node split."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.utils import index_to_mask

from graphbench.benchmarks.graphs.readers.third_party import Named, made, raw_files, raw_key
from graphbench.benchmarks.tables import published_sets
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, UnknownName

#: Maps a name prefix to OGB's module, class and term for such data sets, and to the level of the targets.
PREFIXES = {
    "ogbg-": ("graphproppred", "PygGraphPropPredDataset", "graph-property set", "graph"),
    "ogbn-": ("nodeproppred", "PygNodePropPredDataset", "node-property set", "node"),
}
_METRICS = {"rocauc": "AUROC", "ap": "AP", "rmse": "RMSE", "acc": "accuracy"}
_TASKS = {
    "binary classification": "multilabel",
    "multiclass classification": "classification",
    "multi-class classification": "classification",
    "regression": "regression",
}


def from_ogb(source: str, arguments: Mapping[str, Any], root: Path) -> Named:
    """Find a data set of OGB with its published split and metric; it accepts no arguments.

    Raises:
        UnknownName: there is no such data set.
        BadInput: it has another task, or its folder below `root` contains another release.
    """
    module, cls, kind, level = PREFIXES[source[:5]]
    package = importlib.import_module(f"ogb.{module}")
    published = published_sets(module)
    if source not in published:
        raise UnknownName(f"{kind} of OGB", source, map(str, published))
    if arguments:
        raise BadInput(f"arguments: {source} takes none.")
    about = {str(key): str(value) for key, value in published[source].items()}
    folder = root / source.replace("-", "_")
    _check_set(source, about, folder)

    @cache
    def dataset() -> Any:
        return made(source, folder, lambda: getattr(package, cls)(source, str(root)))

    def split() -> dict[str, np.ndarray]:
        rows = made(source, folder, dataset().get_idx_split)
        return {name: np.asarray(rows["valid" if name == "val" else name], dtype=np.int64) for name in SPLITS}

    def graphs() -> list[Data]:
        if level == "graph":
            return list(dataset())
        graph = dataset()[0]
        for name, rows in split().items():
            graph[f"{name}_mask"] = index_to_mask(torch.from_numpy(rows), graph.num_nodes)
        return [graph]

    def key() -> dict[str, Any]:
        if not raw_files(folder):
            dataset()
        return {"set": source, "address": about["url"], "raw": raw_key(folder)}

    hints = {"task": f"{level}-{_TASKS[about['task type']]}", "metric": _METRICS[about["eval metric"]]}
    return Named(source, "ogb", graphs, key, split if level == "graph" else lambda: None, hints, local=False)


def _check_set(source: str, about: Mapping[str, str], folder: Path) -> None:
    """Refuse a data set that no model here reads, and a folder that contains another release of it."""
    if about["task type"] not in _TASKS:
        raise BadInput(f"--data.source {source}: there is no task for {about['task type']}.")
    if about.get("is hetero") == "True":
        raise BadInput(f"--data.source {source}: it has several kinds of nodes and edges, which no model here reads.")
    # OGB itself would prompt at the terminal to replace another release.
    release = folder / f"RELEASE_v{about['version']}.txt"
    if folder.is_dir() and not release.is_file():
        raise BadInput(
            f"--data.source {source}: {release} is missing, so {folder} is another release. Remove that folder."
        )
