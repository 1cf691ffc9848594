"""ECHO-Synth: shortest paths, eccentricities and diameters of graphs with bottlenecks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from graphbench.benchmarks.base import Chunks, GraphBenchmark
from graphbench.benchmarks.echo import specs
from graphbench.benchmarks.echo.files import addresses, read_part
from graphbench.benchmarks.echo.topologies import DIAMETERS, FAMILIES, SHORTEST, measure, sample_topology
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.errors import BadInput, check_choice

SynthTarget = Literal["sssp", "ecc", "diam"]
Source = Literal["generated", "published"]

_PART = "echo-synth"
#: Column of each target in the published `y [num_nodes, 3]`.
_COLUMNS: dict[str, int] = {"ecc": 0, "diam": 1, "sssp": 2}


class ECHOSynth(GraphBenchmark):
    """ECHO-Synth: how many hops are there to the source, to the farthest node, or across the graph? 10,080 graphs.

    This is the synthetic half of ECHO (Miglior et al., "Can You Hear Me Now? A Benchmark for Long-Range Graph
    Propagation", ICLR 2026, arXiv 2512.17762). A node has two features: whether it is the source, and a number drawn
    uniformly from [0, 1). Targets, in hops, are exact:

        sssp: d(v, source) for every node;  ecc: max_u d(v, u) for every node;  diam: max_uv d(u, v) for the graph.

    `source=generated` samples graphs here, without a network. The following settings are ECHO's: six families, 10,080
    graphs, diameters from 17 to 40; on a line, a node has an edge to one 2 to 6 places further with probability 0.2; a
    grid lacks 20% of its edges; trees grow by preferential attachment, `p_i ~ degree_i^3`. The authors' generator is
    not public and the rest could not be established, so it is chosen here: 70 graphs of each family and diameter
    (10,080 in total), 56 for training, 7 for validation and 7 for test; grids have 3 to 8 rows and keep their largest
    component; trees, caterpillars (depth 1) and lobsters (depth 2) grow on a path as long as the diameter, to 1.5 to 3
    times as many nodes. Families are in the order of `topologies.FAMILIES`: graph i of a split has family i % 6 and
    diameter 17 + (i // 6) % 24. Scores are not comparable to published ones; use `source=published` for that.

    `source=published` reads the authors' files: train_data.pt, val_data.pt and test_data.pt in `root`/ECHO/echo-synth,
    lists of PyG's `Data` with `x [n, 2]` and `y [n, 3]` (ecc, diam, sssp). Reading the files runs no code from them.

    Published scores are mean absolute errors in hops. The authors train on targets divided by 40 with the loss
    `log10(MSE)`, `--model.loss graphbench.training.tasks.losses.log10_mse` on one device. The loss of the specification
    is the MSE, whose gradient differs by a factor for each batch.

    Args:
        target: sssp, ecc or diam.
        source: generated or published.
        graph_seed: seed of generated graphs.
        sizes: generated graphs in train, validation and test, for a smaller (or larger) set.
        diameters: smallest and largest diameter of generated graphs, at least 8, for shorter (or longer) distances.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: a choice is unknown, a split would be empty, diameters are too small or descending, or sizes,
            diameters or a seed are given for published graphs.
    """

    spec = specs.ECHO_SYNTH

    def __init__(
        self,
        target: SynthTarget = "sssp",
        source: Source = "generated",
        graph_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        diameters: tuple[int, int] = DIAMETERS,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("target", target, get_args(SynthTarget))
        check_choice("source", source, get_args(Source))
        self.diameters = (int(diameters[0]), int(diameters[-1]))
        if source == "published" and (sizes is not None or graph_seed or self.diameters != DIAMETERS):
            raise BadInput(
                "sizes, diameters and graph_seed are for source=generated: leave them out with source=published."
            )
        if len(diameters) != 2 or not SHORTEST <= self.diameters[0] <= self.diameters[1]:
            raise BadInput(
                f"diameters must be the smallest and the largest one, of at least {SHORTEST}, got {diameters}: "
                f"{list(DIAMETERS)} are those of ECHO."
            )
        self.target, self.source, self.graph_seed = target, source, graph_seed
        task = "graph-regression" if target == "diam" else "node-regression"
        spec = replace(type(self).spec, task=task, target_names=(target,))
        if source == "published":
            spec = replace(
                spec, split_sizes=None, mean_nodes=None, max_nodes=None, mean_edges=None, disk_mb=None,
                offline=False,
                source="train_data.pt, val_data.pt and test_data.pt of the data set lucamiglior/echo-benchmark",
            )  # fmt: skip
        if self.diameters != DIAMETERS:
            spec = replace(spec, mean_nodes=None, max_nodes=None, mean_edges=None, disk_mb=None)
        self.spec = with_sizes(spec, sizes)

    def source_key(self) -> dict[str, Any]:
        """Return the target, and the addresses or the seed and sizes."""
        key: dict[str, Any] = {"target": self.target}
        if self.source == "published":
            return key | {"addresses": list(addresses(_PART).values())}
        key |= {"graph_seed": self.graph_seed, "sizes": list(self.spec.split_sizes or ())}
        # ECHO's diameters are not in the key, so that tables of earlier versions stay valid.
        return key if self.diameters == DIAMETERS else key | {"diameters": list(self.diameters)}

    def read(self) -> Mapping[str, Chunks]:
        """Sample the graphs of each split, or fetch and read the published ones."""
        if self.source == "published":
            column = _COLUMNS[self.target]
            rows = slice(1) if self.target == "diam" else slice(None)  # a diameter is repeated for every node
            advice = "Without a network, source=generated has graphs of the same families; scores do not compare."
            return read_part(_PART, Path(self.root), lambda y: y[rows, column], self.spec.level or NODE, advice)
        sizes = enumerate(zip(SPLITS, self.spec.split_sizes or (), strict=True))
        return {
            name: echo_graphs(self.target, size, self.graph_seed, number, diameters=self.diameters)
            for number, (name, size) in sizes
        }


def echo_graphs(target: SynthTarget, count: int, *seeds: int, diameters: tuple[int, int] = DIAMETERS) -> GraphTable:
    """Sample graphs of all families and diameters in turn, see `ECHOSynth`; edges are sorted by (from, to).

    The same seeds give the same graphs for every target.
    """
    rng = np.random.default_rng([seed % (1 << 32) for seed in seeds])
    least, most = diameters
    num_nodes, ends, features, y = [], [], [], []
    for number in range(count):
        family = FAMILIES[number % len(FAMILIES)]
        diameter = least + number // len(FAMILIES) % (most - least + 1)
        nodes, edges = sample_topology(family, diameter, rng)
        source = int(rng.integers(nodes))
        eccentricity, distance = measure(nodes, edges, source)
        both = np.concatenate([edges, edges[:, ::-1]])
        ends.append(both[np.lexsort((both[:, 1], both[:, 0]))])
        features.append(np.stack([distance == 0, rng.random(nodes)], axis=1))
        y.append({"sssp": distance, "ecc": eccentricity, "diam": eccentricity.max(keepdims=True)}[target])
        num_nodes.append(nodes)
    columns = {
        "x_dense": (torch.from_numpy(np.concatenate(features)).float(), NODE),
        "edge_index": (torch.from_numpy(np.concatenate(ends)), EDGE),
        "y": (torch.from_numpy(np.concatenate(y))[:, None].float(), GRAPH if target == "diam" else NODE),
    }
    return make_table(columns, np.array(num_nodes), np.array([len(part) for part in ends]))
