"""CSL: 150 circulant graphs that message passing alone cannot tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.block_models import specs
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, GRAPH
from graphbench.data.splits import column_folds
from graphbench.errors import BadInput, check_range

_NODES = 41
_SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)  # one per class
_PER_CLASS, _FOLDS = 15, 5


class CSL(GraphBenchmark):
    """Circular skip links: which of ten 4-regular circulant graphs is this? 150 graphs of 41 nodes, five folds.

    Node i of class c is joined to i +- 1 and i +- R_c modulo 41, with R in 2, 3, 4, 5, 6, 9, 11, 12, 13, 16; each class
    has 15 relabellings (Murphy et al., ICML 2019; "Benchmarking Graph Neural Networks", Dwivedi et al., JMLR 2023).
    Nodes and edges have no features, so a model without positional encodings scores 0.1.

    The graphs are the published ones except for the order of nodes, and of graphs in a class. Folds are stratified: 90
    graphs for training, 30 for validation and 30 for test; the five test folds are disjoint. Published results are
    means over the five folds. The published folds divide other relabellings, which no property can tell from these.

    Args:
        fold: test fold, one of five; the next one is the validation fold.
        graph_seed: seed of the relabellings.
        options: see `GraphBenchmark`.
    """

    spec = specs.CSL

    def __init__(self, fold: int = 0, graph_seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        check_range("fold", fold, at_least=0, at_most=_FOLDS - 1, whole=True)
        self.fold, self.graph_seed = fold, graph_seed

    def fold_options(self, count: int) -> list[dict[str, Any]]:
        """Return the options of each fold; there are five."""
        if count != _FOLDS:
            raise BadInput(f"--folds {count}: {self.spec.name} has {_FOLDS} folds, on which its scores are compared.")
        return [{"fold": fold} for fold in range(count)]

    def source_key(self) -> dict[str, Any]:
        """Return seed and fold."""
        return {"graph_seed": self.graph_seed, "fold": self.fold}

    def read(self) -> dict[str, GraphTable]:
        """Sample all graphs and split them by fold."""
        table = circulant_graphs(self.graph_seed)
        fold_of = (np.arange(len(table)) % _PER_CLASS) * _FOLDS // _PER_CLASS  # 3 graphs of every class per fold
        return {name: table.select(rows) for name, rows in column_folds(fold_of, self.fold).items()}


def circulant_graphs(seed: int) -> GraphTable:
    """Sample all 150 graphs in the order of classes, with edges sorted by (from, to)."""
    graphs = len(_SKIPS) * _PER_CLASS
    rng = np.random.RandomState(seed % (1 << 32))  # a number: a list of one number gives another stream
    labels = np.argsort(rng.random_sample((graphs, _NODES)), axis=1)  # label of each node of the ring
    skips = np.repeat(_SKIPS, _PER_CLASS)
    steps = np.stack([np.ones_like(skips), -np.ones_like(skips), skips, -skips], axis=1)  # [graphs, 4]
    neighbour = (np.arange(_NODES)[:, None] + steps[:, None, :]) % _NODES  # [graphs, nodes, 4]
    row = np.arange(graphs)[:, None, None]
    codes = labels[:, :, None] * _NODES + labels[row, neighbour]
    codes = np.sort(codes.reshape(graphs, -1), axis=1).reshape(-1)
    edge_index = np.stack(np.divmod(codes, _NODES), axis=1)
    classes = np.repeat(np.arange(len(_SKIPS)), _PER_CLASS)[:, None]
    sizes = np.full(graphs, _NODES)
    return make_table({"edge_index": (edge_index, EDGE), "y": (classes, GRAPH)}, sizes, 4 * sizes)
