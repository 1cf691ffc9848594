"""Extend benchmarks by node splits: graphs stored once, batches of one graph, and memory limits."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.graphs.by_nodes import batches
from graphbench.benchmarks.graphs.by_nodes.clusters import check_metis, write_clusters
from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges, write_incoming
from graphbench.benchmarks.graphs.by_nodes.layers import ROWS, RepresentedLoader, represent_nodes
from graphbench.benchmarks.graphs.by_nodes.memory import check_attention, check_encodings
from graphbench.benchmarks.graphs.inspection import Facts
from graphbench.contracts import Encoding, GraphBatch, GraphTable, NodeStep
from graphbench.contracts.table import EDGE, GRAPH, NODE
from graphbench.data.checks import check_table, check_targets
from graphbench.data.entry import Entry, EntryWriter, digest
from graphbench.data.loader import GraphLoader
from graphbench.data.sampler import SizeBucketSampler
from graphbench.data.tables import content_key, read_table, single_precision, write_table
from graphbench.errors import BadInput, check_choice, check_range

_TARGETS = "y"
_SHARED = "graphs"  # name in an entry of the part that all splits share


class NodeLevel(GraphBenchmark):
    """Base of `Graphs` for node splits, and for batches of one graph of any size.

    If nodes or edges are split (`facts["split_level"]`), all splits have the same graphs, with the targets of different
    nodes or edges. If there is a single graph, each process sees all of it or its own parts, and counts its share of
    the nodes: every node is counted once.

    Args:
        sampler: training batches of one graph whose nodes are split. full: the whole graph, one step per epoch.
            neighbors: `batch_size` nodes and some of their neighbours, like PyG's NeighborLoader. clusters:
            `batch_size` of the `num_parts` clusters found by METIS, like PyG's ClusterLoader. random: one of
            `num_parts` random parts with the edges within it, like PyG's RandomNodeLoader.
        num_neighbors: with sampler=neighbors, the number of neighbours of each node in each hop, [15, 10]; -1 for all.
        num_parts: with sampler=clusters or random, the number of parts.
        eval_sampler: batches of validation, test and prediction. full: the whole graph. neighbors: `eval_batch_size`
            nodes with all their neighbours within as many hops as `num_neighbors` has, which is exact for models with
            at most that many layers that each see one hop. layers: all nodes through one layer after the other, in
            blocks, exact and in bounded memory, for models with `Architecture.node_steps`.
        memory_limit: GiB that an encoding, or attention between all pairs of nodes, may use for the largest graph; by
            default all that the machine has.
        options: see `GraphBenchmark`.
    """

    #: Facts inferred from the source; set by a subclass.
    facts: Facts

    def __init__(
        self,
        sampler: Literal["full", "neighbors", "clusters", "random"] = "full",
        num_neighbors: list[int] | None = None,
        num_parts: int | None = None,
        eval_sampler: Literal["full", "neighbors", "layers"] = "full",
        memory_limit: float | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.sampler, self.eval_sampler = sampler, eval_sampler
        self.num_neighbors, self.num_parts, self.memory_limit = num_neighbors, num_parts, memory_limit
        self._check_sampling()
        self._shared: tuple[tuple[Encoding, ...], GraphTable, str] | None = None
        self._gathered: tuple[GraphTable, GraphBatch] | None = None
        self._cutters: dict[Any, batches.Cutter] = {}
        self._checked: tuple[Encoding, ...] = ()

    def _check_sampling(self) -> None:
        check_choice("sampler", self.sampler, batches.SAMPLERS)
        check_choice("eval_sampler", self.eval_sampler, batches.EXACT_SAMPLERS)
        if self.memory_limit is not None:
            check_range("memory_limit", self.memory_limit, above=0)
        by_hops, by_parts = "neighbors" in (self.sampler, self.eval_sampler), self.sampler in ("clusters", "random")
        if by_hops and not self.num_neighbors:
            raise BadInput("sampler=neighbors needs num_neighbors, the number of neighbours in each hop: [15, 10].")
        if self.num_neighbors is not None and not by_hops:
            raise BadInput(f"num_neighbors belongs to sampler=neighbors, not to sampler={self.sampler}.")
        for count in self.num_neighbors or ():
            if count != -1:
                check_range("num_neighbors", count, at_least=1, whole=True)
        if by_parts and self.num_parts is None:
            raise BadInput(f"sampler={self.sampler} needs num_parts, the number of parts of the graph.")
        if self.num_parts is not None:
            if not by_parts:
                raise BadInput(f"num_parts belongs to sampler=clusters or random, not to sampler={self.sampler}.")
            check_range("num_parts", self.num_parts, at_least=2, whole=True)

    def check_sampled(self) -> None:
        """Refuse samplers unless `facts` describe one graph whose nodes are split."""
        if {self.sampler, self.eval_sampler} == {"full"}:
            return
        if not self._of_one_graph or self.facts["split_level"] != NODE:
            split = f"{self.facts.get('split_level', GRAPH)}s"
            raise BadInput(
                f"sampler={self.sampler}, eval_sampler={self.eval_sampler}: these cut one graph whose nodes are split, "
                f"but here are {self.facts['num_graphs']:,} graphs, and the {split} are split. batch_size is the "
                "number of graphs per batch."
            )
        if self.num_parts is not None and self.num_parts > self.facts["max_nodes"]:
            raise BadInput(f"num_parts is {self.num_parts:,}, but the graph has {self.facts['max_nodes']:,} nodes.")

    @property
    def _by_nodes(self) -> bool:
        """Return whether all splits have all graphs, with the targets of different nodes or edges."""
        return self.facts.get("split_level", GRAPH) in (NODE, EDGE)

    @property
    def _of_one_graph(self) -> bool:
        return self._by_nodes and self.facts["num_graphs"] == 1

    # -- preparing and opening -----------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Refuse clusters without METIS and data that do not fit into memory, then read, encode, and index edges."""
        is_fit = self.trainer is not None and self.trainer.state.fn == "fit"
        if is_fit and self.sampler == "clusters":
            check_metis()
        self._check_memory()
        super().prepare_data()
        if {self.sampler, self.eval_sampler} != {"full"}:
            self._incoming(self.tables["train"])
        if is_fit and self.sampler == "clusters":
            self._cutter(self.tables["train"], self.sampler, exact=False)

    def setup(self, stage: str | None = None) -> None:
        """Refuse data that do not fit into memory and models without steps for `layers`, then open the store."""
        self._check_memory()
        if self.eval_sampler == "layers" and self.trainer is not None and self.trainer.lightning_module is not None:
            self._node_steps()
        super().setup(stage)

    def _check_memory(self) -> None:
        nodes, name = self.facts["max_nodes"], self.spec.name
        if self._checked != self.encodings:
            check_encodings(self.encodings, nodes, round(self.facts["mean_edges"]), self.memory_limit, name)
            self._checked = self.encodings
        if self.trainer is not None and self.trainer.lightning_module is not None:
            device = self.trainer.strategy.root_device
            check_attention(self.trainer.lightning_module, nodes, self.memory_limit, name, device)

    def _write(self, writer: EntryWriter) -> None:
        """Store all splits, and shared graphs only once."""
        if not self._by_nodes:
            super()._write(writer)
            return
        for number, (split, table) in enumerate(self.read().items()):
            (check_targets if number else check_table)(table, self.spec, split)  # type: ignore[arg-type]
            single = single_precision(table)  # type: ignore[arg-type]
            if not number:
                write_table(writer, _SHARED, _with(single, [name for name in single.columns if name != _TARGETS]))
            write_table(writer, split, _with(single, [_TARGETS]))

    def open_split(self, entry: Entry, split: str) -> GraphTable:
        """Open a split with all required encodings, which splits of the same graphs share."""
        if not self._by_nodes:
            return super().open_split(entry, split)
        if self._shared is None or self._shared[0] != self.encodings:
            self._shared = self.encodings, super().open_split(entry, _SHARED), content_key(entry, _SHARED)
        targets = read_table(entry, split)
        return self._shared[1].with_columns(targets.columns, targets.layout)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint; checksums of splits include shared graphs."""
        fingerprint = super().fingerprint()
        if self._shared is not None:
            fingerprint["splits"] = {
                name: split | {"content": digest({"own": split["content"], "shared": self._shared[2]})}
                for name, split in fingerprint["splits"].items()
            }
        return fingerprint

    def batch_rows(self) -> list[tuple[str, str, str]]:
        """Describe the batches of one graph as a row of the summary; no row for several graphs."""
        if not self._of_one_graph:
            return []
        description = {
            "full": "the whole graph",
            "neighbors": f"{self.batch_size:,} nodes and up to {self.num_neighbors} neighbours, hop by hop",
            "clusters": f"{self.batch_size:,} of {self.num_parts} clusters",
            "random": f"one of {self.num_parts} random parts",
        }
        return [("training batch", description[self.sampler], "--data.sampler")]

    # -- batches of one graph ------------------------------------------------------------------------------------

    def train_dataloader(self) -> GraphLoader:
        """Return the training batches; for one graph, those of `sampler`."""
        if not (self._of_one_graph and self.tables):
            return super().train_dataloader()
        shuffle = getattr(self.trainer, "overfit_batches", 0) == 0
        return self._node_loader("train", self.sampler, self.batch_size, shuffle)

    def is_empty(self, split: str) -> bool:
        """Return whether the split has no graphs, or no nodes with a target if nodes are split."""
        if not self._by_nodes:
            return super().is_empty(split)
        return not len(batches.labelled_nodes(self.tables[split].columns[_TARGETS]))

    def val_dataloader(self) -> GraphLoader | list[GraphLoader]:
        """Return batches of every validation node, or graph, once; return no loader if there are none."""
        if self.tables and self.is_empty("val"):
            return []
        return self._exact_loader("val") or super().val_dataloader()

    def test_dataloader(self) -> GraphLoader:
        """Return batches of every test node, or graph, once."""
        return self._exact_loader("test") or super().test_dataloader()

    def predict_dataloader(self) -> GraphLoader:
        """Return batches of every node, or every graph of `predict_split`, once."""
        return self._exact_loader(self.predict_split, every=True) or super().predict_dataloader()

    def _exact_loader(self, split: str, every: bool = False) -> GraphLoader | None:
        if not (self._of_one_graph and self.tables):
            return None
        if not every:
            self.require_rows(split)
        return self._node_loader(split, self.eval_sampler, self.eval_batch_size, every=every)

    def _node_loader(
        self, split: str, sampler: str, batch_size: int, shuffle: bool = False, every: bool = False
    ) -> GraphLoader:
        """Return batches of one graph, of `every` node or only of those with a target."""
        table, trainer = self.tables[split], self.trainer
        rank, processes = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        cut: Any = None
        if sampler == "full":
            targets = table.columns[_TARGETS]
            targets = targets if targets.is_floating_point() else targets.to(torch.int64)
            mine = batches.nodes_of_rank(targets, rank, processes) if processes > 1 else None
            cut = batches.WholeGraph(self._whole_batch(table), targets, mine)
            # Every process sees the whole graph; a worker would only send it through a pipe.
            units, batch_size, rank, processes, workers = torch.zeros(1), 1, 0, 1, 0
        else:
            batches.check_layout(table, sampler)
            units, batch_size = self._units(table, sampler, batch_size, every)
            workers = self.num_workers
        if sampler not in ("full", "layers"):
            cut = batches.NodeParts(table, self._cutter(table, sampler, exact=split != "train" or every), units)
        order = SizeBucketSampler(
            torch.ones(len(units), dtype=torch.int64), batch_size, shuffle=shuffle, seed=self.sampling_seed(),
            bucketing=False, world_size=processes, rank=rank, name=f"{self.spec.name} {split}",
            unit="clusters" if sampler == "clusters" else "nodes",
        )  # fmt: skip
        if sampler == "layers":
            return self.keep_loader(RepresentedLoader(table, order, units, partial(self._represented, table)))
        return self.keep_loader(GraphLoader(table, order, workers, cut))

    def _units(self, table: GraphTable, sampler: str, batch_size: int, every: bool) -> tuple[torch.Tensor, int]:
        """Return the numbers of nodes or clusters that batches consist of, and how many there are per batch."""
        nodes = self.facts["max_nodes"]
        if sampler == "clusters":
            return torch.arange(int(self.num_parts or 0)), batch_size
        if sampler == "random":
            return torch.arange(nodes), math.ceil(nodes / int(self.num_parts or 0))
        batch_size = ROWS if sampler == "layers" else batch_size
        return torch.arange(nodes) if every else batches.labelled_nodes(table.columns[_TARGETS]), batch_size

    def _represented(self, table: GraphTable) -> torch.Tensor:
        """Compute the representation of every node with the trainer's model, layer by layer."""
        steps = self._node_steps()
        assert self.trainer is not None
        strategy, precision = self.trainer.strategy, self.trainer.precision_plugin

        def move(batch: GraphBatch) -> GraphBatch:
            moved: GraphBatch = strategy.batch_to_device(precision.convert_input(batch))
            return moved

        with precision.forward_context():
            return represent_nodes(table, self._incoming(table), steps, self.store.root, move)

    def _cutter(self, table: GraphTable, sampler: str, exact: bool) -> batches.Cutter:
        """Return the cutter of the graph, which loaders share; its edge index and clusters are stored."""
        hops = [-1] * len(self.num_neighbors or ()) if exact else list(self.num_neighbors or ())
        key = (sampler, tuple(hops) if sampler == "neighbors" else self.num_parts)
        if key not in self._cutters:
            edges = self._incoming(table)
            if sampler == "neighbors":
                self._cutters[key] = batches.neighbors(edges, hops, self.sampling_seed())
            elif sampler == "clusters":
                entry = self._stored("clusters", write_clusters, edges=edges, num_parts=int(self.num_parts or 0))
                self._cutters[key] = batches.clusters(edges, entry.arrays["nodes"], entry.arrays["ptr"])
            else:
                self._cutters[key] = batches.random_parts(edges)
        return self._cutters[key]

    def _node_steps(self) -> list[NodeStep]:
        """Return the steps of the trainer's model."""
        module: Any = None if self.trainer is None else self.trainer.lightning_module
        if module is None:
            raise BadInput("eval_sampler=layers: its batches need a trainer with a model.")
        steps: list[NodeStep] = module.node_steps()
        return steps

    def _incoming(self, table: GraphTable) -> IncomingEdges:
        edges, nodes = table.columns["edge_index"], self.facts["max_nodes"]
        return IncomingEdges.of_entry(self._stored("incoming", write_incoming, edge_index=edges, num_nodes=nodes))

    def _stored(self, kind: str, write: Callable[..., None], **arguments: Any) -> Entry:
        """Open an entry that depends only on the graph and on the numbers among the arguments."""
        assert self._shared is not None
        numbers = {name: value for name, value in arguments.items() if isinstance(value, int)}
        key = {"kind": kind, "version": 1, "table": self._shared[2], **numbers}
        return self.store.open_or_build(key, partial(write, **arguments), f"{kind} of {self.spec.name}")

    def _whole_batch(self, table: GraphTable) -> GraphBatch:
        """Return the whole graph without targets, gathered once for all splits."""
        assert self._shared is not None
        if self._gathered is None or self._gathered[0] is not self._shared[1]:
            self._gathered = self._shared[1], self._shared[1].batch([0])
        return self._gathered[1]


def keep_targets(table: GraphTable, rows: np.ndarray) -> GraphTable:
    """Keep the targets of some nodes, numbered through all graphs; others get -1 (classes) or NaN (numbers).

    Examples:
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([1, 0, 1])}
        >>> keep_targets(GraphTable.from_graphs([path]), np.array([1, 2])).columns["y"]
        tensor([-1,  0,  1])
    """
    targets = table.columns[_TARGETS]
    chosen = torch.from_numpy(rows)
    masked = torch.full_like(targets, torch.nan if targets.is_floating_point() else -1)
    masked[chosen] = targets[chosen]
    return table.with_columns({_TARGETS: masked}, {_TARGETS: table.layout[_TARGETS]})


def _with(table: GraphTable, names: list[str]) -> GraphTable:
    return GraphTable({n: table.columns[n] for n in names}, {n: table.layout[n] for n in names}, table.ptr)
