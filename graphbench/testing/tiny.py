"""Tiny random graphs for any specification, for tests without data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphbench.contracts import Architecture, BenchmarkSpec, Column, Features, GraphBatch, GraphTable
from graphbench.contracts.encoding import encode
from graphbench.contracts.spec import TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE, PAIR

#: Kind of features -> features of nodes, features of edges, number of coordinates.
FEATURE_KINDS: dict[str, tuple[Features, Features, int]] = {
    "both": (Features((5, 3), dense=2), Features((4,), dense=1), 0),
    "categorical": (Features((5,)), Features((4,)), 0),
    "dense": (Features(dense=3), Features(dense=2), 0),
    "none": (Features(), Features(), 0),
    "coordinates": (Features(dense=1), Features(), 3),
    "sequence": (Features((5,), names=("token",)), Features(), 1),
}

#: Task -> further fields of its specification.
_TASKS: dict[TaskName, dict[str, Any]] = {
    "graph-regression": {"metric": "MAE", "higher_is_better": False, "loss": "L1", "num_targets": 2},
    "graph-classification": {"metric": "accuracy", "higher_is_better": True, "loss": "cross_entropy", "num_classes": 3},
    "graph-multilabel": {"metric": "AP", "higher_is_better": True, "loss": "BCE", "num_targets": 3},
    "node-classification": {
        "metric": "class_accuracy",
        "higher_is_better": True,
        "loss": "weighted_cross_entropy",
        "num_classes": 4,
    },
    "node-multilabel": {"metric": "AP", "higher_is_better": True, "loss": "BCE", "num_targets": 3},
    "node-regression": {"metric": "MAE", "higher_is_better": False, "loss": "L1", "num_targets": 2},
    "edge-classification": {"metric": "accuracy", "higher_is_better": True, "loss": "cross_entropy", "num_classes": 2},
    "edge-regression": {"metric": "MAE", "higher_is_better": False, "loss": "L1", "num_targets": 2},
    "link-ranking": {"metric": "MRR", "higher_is_better": True, "loss": "contrastive_BCE"},
    "map-recovery": {"metric": "MSE", "higher_is_better": False, "loss": "normalised_MSE"},
}
_EDGE_PROBABILITY = 0.4


def tiny_spec(task: TaskName = "graph-regression", kind: str = "both") -> BenchmarkSpec:
    """Create a specification for tests, with features of a kind in `FEATURE_KINDS`."""
    node, edge, coordinates = FEATURE_KINDS[kind]
    return BenchmarkSpec(
        name=f"tiny-{task}-{kind}",
        task=task,
        node=node,
        edge=edge,
        coordinates=coordinates,
        mean_nodes=5.0,
        max_nodes=24,
        mean_edges=10.0,
        offline=True,
        **_TASKS[task],
    )


def tiny_table(
    spec: BenchmarkSpec,
    num_graphs: int = 6,
    seed: int = 0,
    sizes: Sequence[int] | None = None,
    edges: bool | Sequence[bool] = True,
) -> GraphTable:
    """Create random undirected graphs with the features and targets of a specification.

    They have `sizes` nodes, or 3 to 7; edges are a path through all nodes, and random others. `edges` says whether
    graphs have any: all of them, or each.
    """
    generator = torch.Generator().manual_seed(seed)
    if sizes is None:
        sizes = torch.randint(3, 8, (num_graphs,), generator=generator).tolist()
    linked = [edges] * len(sizes) if isinstance(edges, bool) else edges
    graphs = [_graph(spec, size, has, generator) for size, has in zip(sizes, linked, strict=True)]
    axis = spec.level if spec.level in (NODE, EDGE) else GRAPH
    return GraphTable.from_graphs(graphs, {"y": Column(axis), "contact_index": Column("contact", index_of=NODE)})


def _graph(spec: BenchmarkSpec, num_nodes: int, edges: bool, generator: torch.Generator) -> dict[str, Any]:
    """Create one graph; both directions of an edge have the same features."""
    # A path through all nodes, so that every node has an edge and distances differ.
    upper = torch.triu(torch.rand(num_nodes, num_nodes, generator=generator) < _EDGE_PROBABILITY, diagonal=1)
    upper |= torch.diag(torch.ones(num_nodes, dtype=torch.bool), 1)[:num_nodes, :num_nodes]
    half = (upper & edges).nonzero().t()
    graph: dict[str, Any] = {"num_nodes": num_nodes, "edge_index": torch.cat([half, half.flip(0)], dim=1)}
    graph |= _features(spec.node, num_nodes, "x", "x_dense", generator)
    once = _features(spec.edge, half.shape[1], "edge_attr", "edge_dense", generator)
    graph |= {name: torch.cat([value, value]) for name, value in once.items()}
    if spec.coordinates:
        graph["pos"] = torch.randn(num_nodes, spec.coordinates, generator=generator)
    if spec.task == "link-ranking":
        nodes = torch.arange(num_nodes)
        return graph | {"contact_index": torch.stack([nodes, nodes.roll(1)], dim=1)[: num_nodes // 2]}
    rows = {NODE: num_nodes, EDGE: 2 * half.shape[1]}.get(spec.level or "", 1)
    return graph | {"y": _target(spec, rows, generator)}


def _features(features: Features, rows: int, codes: str, dense: str, generator: torch.Generator) -> dict[str, Tensor]:
    drawn = {}
    if features.vocabularies:
        columns = [torch.randint(size, (rows,), generator=generator) for size in features.vocabularies]
        drawn[codes] = torch.stack(columns, dim=1)
    if features.dense:
        drawn[dense] = torch.randn(rows, features.dense, generator=generator)
    return drawn


def _target(spec: BenchmarkSpec, rows: int, generator: torch.Generator) -> Tensor:
    """Draw targets of one graph: `[rows, num_targets]`, or classes `[rows, 1]`."""
    if spec.num_classes is not None:
        return torch.randint(spec.num_classes, (rows, 1), generator=generator)
    if spec.task.endswith("-multilabel"):
        return torch.randint(2, (rows, spec.num_targets), generator=generator).float()
    return torch.randn(rows, spec.num_targets, generator=generator)


def tiny_batch(architecture: Architecture, num_graphs: int = 4, seed: int = 0) -> GraphBatch:
    """Create a batch of tiny graphs with the features and encodings that an architecture reads."""
    table = encode(tiny_table(architecture.spec, num_graphs, seed), architecture.required_encodings())
    return table.batch(range(len(table)))


def permute_nodes(table: GraphTable, seed: int = 0) -> tuple[GraphTable, Tensor]:
    """Return the same graphs with their nodes in another order; edges and rows of other axes keep their order.

    Returns:
        The table, and for each of its nodes the original row `[num_nodes]`.
    """
    permuted, orders, origin = _permute(table, NODE, seed)
    for name, column in table.layout.items():
        if column.axis == PAIR:  # rows and columns of a graph's matrix are permuted together
            moved = [
                (order[:, None] * len(order) + order).flatten() + start
                for order, start in zip(orders, table.ptr[PAIR][:-1].tolist(), strict=True)
            ]
            permuted.columns[name] = permuted.columns[name][torch.cat(moved)]
    return permuted, origin


def permute_edges(table: GraphTable, seed: int = 0) -> tuple[GraphTable, Tensor]:
    """Return the same graphs with their edges listed in another order; nodes and rows of other axes keep their order.

    The two directions of an edge move separately. Encode the result to see whether an encoding depends on the order.

    Returns:
        The table, and for each of its edges the original row `[num_edges]`.

    Examples:
        >>> moved, origin = permute_edges(tiny_table(tiny_spec(), sizes=[4]))
        >>> torch.equal(moved.columns["edge_index"], tiny_table(tiny_spec(), sizes=[4]).columns["edge_index"][origin])
        True
    """
    permuted, _, origin = _permute(table, EDGE, seed)
    return permuted, origin


def _permute(table: GraphTable, axis: str, seed: int) -> tuple[GraphTable, list[Tensor], Tensor]:
    """Put the rows of an axis in another order within each graph, and renumber the indices that point to them.

    Return the table, the order of each graph, and the original row of every row.
    """
    generator, starts = torch.Generator().manual_seed(seed), table.ptr[axis][:-1]
    orders = [torch.randperm(size, generator=generator) for size in table.lengths(axis).tolist()]
    origin = torch.cat([order + start for order, start in zip(orders, starts, strict=True)])
    place = torch.cat([order.argsort() for order in orders])  # the inverse: the new place of each row
    columns = {}
    for name, column in table.layout.items():
        value = table.columns[name]
        if column.index_of == axis:
            first = torch.repeat_interleave(starts, table.lengths(column.axis))
            value = place[value.long() + first.reshape(-1, *[1] * (value.dim() - 1))].to(value.dtype)
        columns[name] = value[origin] if column.axis == axis else value
    return GraphTable(columns, dict(table.layout), dict(table.ptr), table.graph_ids), orders, origin
