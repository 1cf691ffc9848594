"""The static description of a benchmark: all that data and models know about each other.

No heavy import here: `graphbench list benchmarks` reads specifications without importing torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from graphbench.errors import BadInput

Split = Literal["train", "val", "test"]
#: Names of the splits, in the order in which specifications give their sizes.
SPLITS: tuple[Split, ...] = get_args(Split)

TaskName = Literal[
    "graph-regression",
    "graph-classification",
    "graph-multilabel",
    "node-classification",
    "node-multilabel",
    "node-regression",
    "edge-classification",
    "edge-regression",
    "link-ranking",
    "map-recovery",
]

#: What a task predicts for: whole graphs, nodes, edges of the graph, or pairs of nodes.
Level = Literal["graph", "node", "edge", "pair"]
#: What a prediction is: a number, one class of several, yes or no for each label, an order of candidates, or a map.
Kind = Literal["regression", "classification", "multilabel", "ranking", "recovery"]

#: Level and kind of graphbench's tasks. Custom tasks state theirs in their class and their specification.
TASK_KINDS: dict[str, tuple[Level, Kind]] = {
    "graph-regression": ("graph", "regression"),
    "graph-classification": ("graph", "classification"),
    "graph-multilabel": ("graph", "multilabel"),
    "node-classification": ("node", "classification"),
    "node-multilabel": ("node", "multilabel"),
    "node-regression": ("node", "regression"),
    "edge-classification": ("edge", "classification"),
    "edge-regression": ("edge", "regression"),
    "link-ranking": ("pair", "ranking"),
    "map-recovery": ("node", "recovery"),
}

#: Metrics and losses that users may choose for their own data, by kind of task, the default first.
METRICS: dict[Kind, tuple[str, ...]] = {
    "regression": ("MAE", "RMSE", "scaled_MAE", "scaled_RMSE"),
    "classification": ("accuracy", "class_accuracy", "macro_F1", "AUROC"),
    "multilabel": ("AP", "AUROC"),
    "ranking": ("MRR", "filtered_MRR", "filtered_no_self_MRR", "hits@1", "hits@3", "hits@10"),
}
LOSSES: dict[Kind, tuple[str, ...]] = {
    "regression": ("L1", "MSE"),
    "classification": ("cross_entropy", "weighted_cross_entropy"),
    "multilabel": ("BCE",),
    "ranking": ("contrastive_BCE",),
}


@dataclass(frozen=True)
class Features:
    """Features of every node (or every edge).

    Args:
        vocabularies: number of values of each categorical column; in a batch the columns are `x` (or `edge_attr`),
            int64 `[num_nodes, len(vocabularies)]`, every value in `0 .. size - 1`.
        dense: width of the real-valued columns, float32 `x_dense` (or `edge_dense`) `[num_nodes, dense]`.
        names: names of the categorical columns, then of the dense ones; empty if they have none.
        words: for each categorical column, the meaning of its values 0, 1, ...; empty for a column whose values are
            plain numbers, or if no column has words.

    Examples:
        >>> atoms = Features(vocabularies=(28,), names=("element",))
        >>> atoms.vocabularies, atoms.dense
        ((28,), 0)
    """

    vocabularies: tuple[int, ...] = ()
    dense: int = 0
    names: tuple[str, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class BenchmarkSpec:
    """All that is known about a benchmark before any of its data is read.

    Args:
        name: registered name, also the class name.
        task: task that trains and scores it: one of `graphbench.training.tasks` (`TaskName`), or the registered name of
            a custom task.
        level, kind: what the task predicts for and what a prediction is (`Level`, `Kind`). For graphbench's tasks both
            follow from the name. For a custom task `dataclasses.replace` keeps them, and a specification written from
            scratch must give them.
        node: features of a node.
        edge: features of an edge.
        graph: numbers that describe the whole graph, read by the head of a graph task: float32 `graph_dense`
            `[num_graphs, dense]`, NaN where unknown.
        num_targets: columns of `y` (regression, multi-label) or 1.
        num_classes: classes of a classification; None for regression and multi-label.
        target_names: one name per target (regression, multi-label) or per class.
        target_units: one unit per regression target; "" if it has none.
        log10_targets: for each regression target, whether models train on its decimal logarithm; empty if on none.
            Targets, predictions and their errors stay in the target's unit; errors that are scaled by deviations are
            those of the logarithm.
        target_weights: weight of each of several targets in the loss, with mean 1; empty if all have equal weight.
        metric: the score that selects the best checkpoint: MAE, RMSE, accuracy, class_accuracy, macro_F1, F1, AP,
            AUROC, MRR, instance_IoU, class_IoU.
        higher_is_better: whether a larger `metric` is better.
        loss: L1, MSE, cross_entropy, weighted_cross_entropy, BCE, contrastive_BCE, normalised_MSE, column_MSE.
        coordinates: width of `pos` `[num_nodes, coordinates]`; 0 when nodes have no position.
        split_sizes: graphs in train, validation and test; None if they depend on the user's file.
        mean_nodes, max_nodes, mean_edges: typical sizes, directed edges (each bond counts twice).
        offline: runs without a network (generated here or shipped by a dependency).
        disk_mb: size of the prepared data on disk, in MB.
        licence, citation, source: where the data come from and under which terms.
        molecules: node column 0 is an atom type that `graphbench` can draw with RDKit.
        extra: further facts. `validation: test` if published practice validates on the test split; `training:
            redrawn` if validation and test are the published ones and training is another sample of the same set;
            `parts`: how many parts each category has, "4 2 2", for part segmentation; `split: nodes` (or edges) if
            all splits contain the same graphs and differ in the nodes or edges whose targets are known; `edges:
            undirected` if both directions of an edge share one target, so that heads predict it from both, see
            `EdgeHead`.

    Examples:
        >>> spec = BenchmarkSpec(
        ...     name="Mine", task="graph-regression", node=Features((28,)), edge=Features((4,)), num_targets=3,
        ...     metric="MAE", higher_is_better=False, loss="L1", split_sizes=(80, 10, 10),
        ... )
        >>> spec.output_dim, spec.num_graphs
        (3, 100)
    """

    name: str
    task: str
    node: Features
    edge: Features
    metric: str
    higher_is_better: bool
    loss: str
    num_targets: int = 1
    num_classes: int | None = None
    target_names: tuple[str, ...] = ()
    target_units: tuple[str, ...] = ()
    log10_targets: tuple[bool, ...] = ()
    target_weights: tuple[float, ...] = ()
    coordinates: int = 0
    split_sizes: tuple[int, int, int] | None = None
    mean_nodes: float | None = None
    max_nodes: int | None = None
    mean_edges: float | None = None
    offline: bool = False
    disk_mb: float | None = None
    licence: str = ""
    citation: str = ""
    source: str = ""
    molecules: bool = False
    extra: dict[str, str] = field(default_factory=dict)
    level: Level | None = None
    kind: Kind | None = None
    graph: Features = Features()

    def __post_init__(self) -> None:
        """Fill in level and kind of a task of graphbench."""
        if self.task in TASK_KINDS:
            level, kind = TASK_KINDS[self.task]
            # `frozen` guards the finished specification; here it is still under construction.
            object.__setattr__(self, "level", level)
            object.__setattr__(self, "kind", kind)
        elif self.level is None or self.kind is None:
            raise BadInput(
                f"{self.name} names the task {self.task!r}, not one of {', '.join(TASK_KINDS)}. For a "
                f"custom task, give level ({', '.join(get_args(Level))}) and kind ({', '.join(get_args(Kind))})."
            )

    @property
    def num_graphs(self) -> int | None:
        """Graphs in all splits; a graph in several splits is counted once."""
        if self.split_sizes is None:
            return None
        train, val, test = self.split_sizes
        if self.extra.get("split") in ("nodes", "edges"):
            return train
        return train + test + (0 if self.extra.get("validation") == "test" else val)

    @property
    def output_dim(self) -> int:
        """Numbers a head must return per graph (or node, or edge): targets, or classes (one logit for two classes)."""
        if self.num_classes is None:
            return self.num_targets
        return 1 if self.num_classes == 2 else self.num_classes


def with_sizes(spec: BenchmarkSpec, sizes: Sequence[int] | None) -> BenchmarkSpec:
    """Return the specification of a sample of `sizes` graphs in train, validation and test; unchanged without sizes.

    Raises:
        BadInput: `sizes` does not have three entries, or one is below 1.
    """
    # Not a method of the specification: the error is about an option of the benchmark whose constructor is running.
    if sizes is None:
        return spec
    if len(sizes) != 3 or min(sizes) < 1:
        raise BadInput(f"sizes must be three numbers of at least 1 (train, validation, test), got {tuple(sizes)}.")
    return replace(spec, split_sizes=(sizes[0], sizes[1], sizes[2]), disk_mb=None)
