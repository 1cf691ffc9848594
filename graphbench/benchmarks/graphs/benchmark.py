"""Train on your own graphs: files, tables, functions and named data sets by configuration."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch

from graphbench.benchmarks.graphs import specs
from graphbench.benchmarks.graphs.by_nodes.level import keep_targets
from graphbench.benchmarks.graphs.features import FeaturePlan, FeatureRequest
from graphbench.benchmarks.graphs.inputs import GraphInputs, option_in_errors
from graphbench.benchmarks.graphs.inspection import Facts, size_facts, split_facts, summary_rows, summary_text
from graphbench.benchmarks.graphs.node_names import node_name_arrays
from graphbench.benchmarks.graphs.raw import RawGraphs, undirected
from graphbench.benchmarks.graphs.readers.sources import Source, open_source, source_by_split
from graphbench.benchmarks.graphs.splits.links import split_links
from graphbench.benchmarks.graphs.splits.splitting import (
    SplitRequest,
    split_level,
    split_units,
    units_of,
    used_columns,
)
from graphbench.benchmarks.graphs.targets import (
    Target,
    bound_arrays,
    find_target,
    is_symmetric,
    log10_targets,
    metrics_of,
    predicts_links,
    target_array,
    weight_array,
)
from graphbench.benchmarks.graphs.tasks import LOSSES, NEGATIVE_METRICS, TASKS
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.spec import TaskName
from graphbench.contracts.table import EDGE, GRAPH, NODE, WEIGHT
from graphbench.data.columns import relative_weights, scaled_weights
from graphbench.data.entry import Entry, EntryWriter
from graphbench.data.package_files import remembered_sha256
from graphbench.data.splits import check_fractions, without_share
from graphbench.errors import BadInput, check_choice

logger = logging.getLogger(__name__)


class Graphs(GraphInputs):
    """Your own graphs, from files, tables, a function, or a named data set.

    Features, task and targets are inferred from the data, shown in a table before training, and can be overridden by
    options. Integers and texts are read as categories, real numbers as numbers. `docs/graphs.md` describes the formats.

    Args:
        source: a file saved by `torch.save` with PyG's `Data`; a folder of tables `graphs`, `nodes` and `edges` (CSV or
            Parquet); GraphML, GEXF, GML, adjacency or edge lists, one graph per file, with a table `targets`; JSON
            lines; a folder of arrays of one graph (`edge_index.npy`, `x.npy`, `y.npy`), memory-mapped; a folder in the
            raw layout of TUDataset; a function that returns graphs (`my_package.data:load`); a class of
            `torch_geometric.datasets` with its arguments (`TUDataset:MUTAG`); a data set of OGB (`ogbg-molbace`,
            `ogbn-arxiv`) or of graphbench-lib (`graphbench-lib:NAME`). In Python also a list of graphs, or lists by
            split.
        target: column to predict, or several; `y:4` is one column of a matrix. By default `y`, `edge_label`
            or `edge_y` of edges, pairs of links, or the only column of the graphs. If whole graphs are split, numbers
            of a regression may be bounds (`>10`, `<=0.1`): their loss is one-sided, 0 for predictions beyond the bound,
            and they are not scored.
        task: graph-regression, graph-classification, graph-multilabel, node-classification, node-multilabel,
            node-regression, edge-classification, edge-regression or link-ranking.
        num_classes: number of classes, for data that do not contain all of them.
        missing: words or numbers that mean a missing target, in addition to the usual ones (empty, NA, N/A, NaN, null,
            None, ND, - and the like): `[-999]`. By default this includes class -1 if there are two or more other
            classes, none of them negative. With `[]` only empty cells and NaN are missing, so -1 is a class.
        on_error: stop at a graph without a target, or skip such graphs. Nodes and edges without one are in no split.
        node_features: columns of nodes; by default `x` of PyG's graphs, all columns of other sources.
        edge_features: columns of edges; by default `edge_attr` of PyG's graphs, all columns of other sources.
        graph_features: columns of whole graphs (a temperature, descriptors) that the head of a graph task reads in
            addition to the graph: numbers, scaled on the training part, and categories as 0 and 1; by default none.
        categorical: columns of real numbers to read as categories.
        continuous: columns of integers to read as numbers.
        normalize_features: divide the real numbers of each node by their sum if that is above 1, as PyG's
            `NormalizeFeatures` does for the words of Cora, CiteSeer and PubMed.
        positions: whether the column `pos` of nodes contains coordinates; by default True if it exists.
        directed: edges of tables and lists lead one way; otherwise both ways. PyG graphs are not changed.
        to_undirected: add the reverse of every edge that has none, with its features, as is usual for citations.
        split: given (by the source or a column), random, stratified (the same shares of each class), k-fold, or
            groups. By default the split of the source, else stratified for classes, else random.
        split_level: graph, node or edge. With node or edge, all splits have all graphs, with the targets of different
            nodes or edges. The default is the level of the target if the masks or the split column have that level, or
            if there is a single graph; else graph. Random splits keep both directions of an edge together.
        split_column: column of the graphs, nodes or edges with the words train, val and test, where a missing one is
            cut from training; or with fold numbers from 0, for three or more folds.
        test_source, val_source: sources with the same columns for test and validation; if only one is given, the other
            part is cut from `source`.
        group_column: column of the graphs, nodes or edges; rows with the same value stay in one split.
        fractions: shares of train, validation and test, also of what is cut from training. 0 omits validation or test:
            `[1, 0, 0]` trains a final model on all data.
        fold: with split=k-fold or fold numbers, the test fold; the next one is the validation fold. With masks of
            several splits, the column of the masks.
        num_folds: number of folds for split=k-fold.
        split_seed: seed of every random split.
        metric: metric that selects checkpoints.
        loss: L1 or MSE; cross_entropy or weighted_cross_entropy.
        arguments: arguments of a named data set or function, by name.
        weight: column with the weight in the loss, 0 or more, of each graph, or of each node or edge for tasks on
            those. Only ratios count: weights are divided by their mean over the training rows. Losses of all splits are
            weighted, metrics are not. The column is not a feature.
        target_weights: weights of several targets in the loss, 0 or more: one number per target in order, or by name
            (`{logS: 3}`, others weigh 1). Only ratios count: they are divided by their mean.
        log10: regression targets that are trained on as decimal logarithms, by name, or by number if one name has
            several columns. Predictions, intervals and errors stay in the unit of the source, but scaled errors are
            those of the logarithm; scaled_MAE is then the default metric.
        options: options of batches of one graph, see `NodeLevel`, and of every benchmark, see `GraphBenchmark`.

    Raises:
        BadInput: the data or an option is invalid; names the file, graph and row, or the option.
        UnknownName: there is no such column or data set; suggests similar names.
        MissingData: there is no such file.
    """

    data_version = 3  # no target is a feature, and names in tables stay as written
    spec = specs.GRAPHS

    def __init__(
        self,
        source: str | list[Any] | dict[str, Any],
        target: str | list[str] | None = None,
        task: str | None = None,
        num_classes: int | None = None,
        missing: list[int | float | str] | None = None,
        on_error: Literal["stop", "skip"] = "stop",
        node_features: list[str] | None = None,
        edge_features: list[str] | None = None,
        graph_features: list[str] | None = None,
        categorical: list[str] | None = None,
        continuous: list[str] | None = None,
        normalize_features: bool = False,
        positions: bool | None = None,
        directed: bool = False,
        to_undirected: bool = False,
        split: str | None = None,
        split_level: str | None = None,
        split_column: str | None = None,
        group_column: str | None = None,
        fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        fold: int = 0,
        num_folds: int = 10,
        split_seed: int = 0,
        test_source: str | list[Any] | None = None,
        val_source: str | list[Any] | None = None,
        metric: str | None = None,
        loss: str | None = None,
        arguments: dict[str, Any] | None = None,
        weight: str | None = None,
        target_weights: list[float] | dict[str, float] | None = None,
        log10: str | list[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if task is not None:
            check_choice("task", task, TASKS)
        check_choice("on_error", on_error, ("stop", "skip"))
        self.target = (target,) if isinstance(target, str) else None if target is None else tuple(target)
        fractions = check_fractions(fractions)
        self.request = SplitRequest(
            split, split_column, group_column, fractions, fold, num_folds, split_seed, split_level, self.target or ()
        )
        self.request.check()
        self.empty_splits = without_share(fractions)
        self.task = cast("TaskName | None", task)
        self.num_classes, self.weight, self.missing, self.on_error = num_classes, weight, missing, on_error
        columns = {NODE: node_features, EDGE: edge_features, GRAPH: graph_features or []}
        self.features = FeatureRequest(columns, categorical or [], continuous or [], normalize_features, positions)
        self.log10 = (log10,) if isinstance(log10, str) else tuple(log10 or ())
        self.directed, self.to_undirected = directed, to_undirected
        if directed and to_undirected:
            raise BadInput("directed and to_undirected exclude each other.")
        self.source = self._open_source(source, arguments or {}, {"val": val_source, "test": test_source})
        self._raw: RawGraphs | None = None
        self._shown = False
        self._apply(self._open_inspection(), metric, loss)
        names = self.spec.target_names or tuple(map(str, range(self.spec.num_targets)))
        self.spec = replace(self.spec, target_weights=relative_weights(target_weights, names, str(self.spec.kind)))

    def _open_source(self, source: Any, arguments: Mapping[str, Any], others: Mapping[str, Any]) -> Source:
        checksum = partial(remembered_sha256, store=self.store.root)
        opened = {"train": open_source(source, arguments, self.directed, Path(self.root), checksum)}
        for name, other in others.items():
            if other is not None:
                self.request.check_sources(name)
                with option_in_errors(f"--data.{name}_source"):
                    opened[name] = open_source(other, {}, self.directed, Path(self.root), checksum)
        return source_by_split(opened) if len(opened) > 1 else opened["train"]

    # -- inspection ----------------------------------------------------------------------------------------------

    def source_key(self) -> dict[str, Any]:
        """Return the checksum of the source, and every option that affects columns, targets or splits."""
        return self._key | ({"links": "column"} if self.facts["links"] == "column" else {})

    def fold_options(self, count: int) -> list[dict[str, Any]]:
        """Return the options of each fold: of a k-fold split, or of the splits given by the source."""
        given = self.facts["given"]
        if given and given != count:
            columns = f" of {given} columns" if given > 1 else ""
            raise BadInput(
                f"--folds {count}: {self.spec.source} gives a split{columns} ({self.facts['split']}). Add "
                "--data.split k-fold to cut your own folds."
            )
        shared: dict[str, Any] = {} if given else {"split": "k-fold"}
        shared |= {"num_folds": count} if not given or count > self.request.num_folds else {}
        return [{**shared, "fold": fold} for fold in range(count)]

    def check_split_seed(self) -> None:
        """Refuse seeds if the source gives the whole split."""
        if self.facts["given"] and "cut" not in self.facts["split"] and "taken" not in self.facts["split"]:
            raise BadInput(
                f"--split-seeds: {self.spec.source} gives the split ({self.facts['split']}). Add --data.split random "
                "or stratified to resplit it."
            )

    def _open_inspection(self) -> Entry:
        """Open the stored description of what was inferred from the source; inspect a new or changed source."""
        # Options added later are in the key only if they are set, so that older stores stay valid.
        later = {
            "weight": self.weight,
            "normalize_features": self.features.normalized or None,
            "missing": None if self.missing is None else list(self.missing),
            "on_error": None if self.on_error == "stop" else self.on_error,
            "log10": list(self.log10) or None,
            "graph_features": self.features.columns[GRAPH] or None,
        }
        self._key: dict[str, Any] = {
            "source": self.source.key() | ({"to_undirected": True} if self.to_undirected else {}),
            "target": [self.target and list(self.target), self.task, self.num_classes],
            "features": self.features.as_json(),
            "split": self.request.as_json(),
            **{name: value for name, value in later.items() if value is not None},
        }
        # This is only the version of the description; data and runs stay valid.
        key = {"kind": "inspection", "version": 6, **self._key}
        return self.store.open_or_build(key, self._inspect, f"description of {self.source.origin}")

    def _graphs(self) -> RawGraphs:
        if self._raw is None:
            self._raw = self.source.read()
            self._raw.check()
            if self.to_undirected:
                self._raw = undirected(self._raw)
            if len(self._raw) == 1 and predicts_links(self._raw, self.target, self.task):
                self._raw = split_links(self._raw, self.request)
        return self._raw

    def _inspect(self, writer: EntryWriter) -> None:
        """Infer everything from the graphs, refuse invalid ones, and store the result."""
        raw = self._graphs()
        # Links of one graph have already been split.
        request = replace(self.request, kind=None, column=None) if "links" in raw.hints else self.request
        weight = () if self.weight is None else (self.weight,)
        used = (*used_columns(raw, request), *weight)
        target = find_target(raw, self.target, self.task, self.num_classes, used, self.missing, self.on_error == "skip")
        level = split_level(raw, request, target.level)
        self._check_target(raw, target, level)
        row_columns = used_columns(raw, request, level) if level in (NODE, EDGE) else ()
        plans = self.features.plans(raw, target, {target.level: (*row_columns, *weight), GRAPH: used})
        units = units_of(raw, target, level)
        rows, description = split_units(units, request)
        for split in SPLITS:
            writer.append(f"rows.{split}", rows[split].astype(np.int64))
        for name, array in node_name_arrays(raw).items():
            writer.append(name, array)
        writer.meta |= {
            "target": asdict(target),
            "plans": {level: asdict(plan) for level, plan in plans.items()},
            "log10": log10_targets(raw, target, self.log10),
            "coordinates": self.features.coordinates(raw),
            **split_facts(units, request, target, rows),
            **size_facts(raw, self.directed),
            "split": description,
            "links": raw.hints.get("links"),
        }
        if target.level == EDGE and (y := target_array(raw, target)) is not None:
            writer.meta["symmetric"] = is_symmetric(raw, y[1])

    def _check_target(self, raw: RawGraphs, target: Target, level: str) -> None:
        """Refuse invalid weights, and targets that are bounds if nodes or edges are split."""
        if self.weight is not None:
            weight_array(raw, target, self.weight)  # raises for invalid weights
        if level in (NODE, EDGE) and bound_arrays(raw, target):
            raise BadInput(
                f"{raw.origin}: targets of {', '.join(target.names)} are bounds (such as >10), which need "
                f"split_level=graph, so that whole graphs are split; here the {level}s are."
            )

    def _apply(self, entry: Entry, metric: str | None, loss: str | None) -> None:
        """Build the specification from what was inferred."""
        self.facts = cast("Facts", entry.meta)
        self._rows: dict[str, np.ndarray] = {split: np.array(entry.arrays[f"rows.{split}"]) for split in SPLITS}
        self._described = entry.arrays
        self._target = target = Target.from_json(self.facts["target"])
        self._plan = {level: FeaturePlan.from_json(plan) for level, plan in self.facts["plans"].items()}
        metric, loss = self._choose_scores(metric, loss)
        names = target.names if len(target.names) == target.width else ()
        # If nodes are split, all splits have all graphs.
        sizes = [self.facts["num_graphs"] if self._by_nodes else len(self._rows[split]) for split in SPLITS]
        self.spec = replace(
            type(self).spec,
            task=target.task,
            node=self._plan[NODE].features,
            edge=self._plan[EDGE].features,
            graph=self._plan[GRAPH].as_numbers,
            coordinates=self.facts["coordinates"],
            num_targets=target.width,
            num_classes=target.num_classes,
            target_names=names if target.num_classes is None else target.classes,
            log10_targets=tuple(self.facts.get("log10", ())),
            metric=metric,
            higher_is_better=not target.task.endswith("regression"),
            loss=loss,
            split_sizes=tuple(sizes),  # type: ignore[arg-type]
            mean_nodes=self.facts["mean_nodes"],
            max_nodes=self.facts["max_nodes"],
            mean_edges=self.facts["mean_edges"],
            offline=self.source.local,
            source=self.source.origin,
            extra=self._extra(),
        )
        if self._by_nodes and self.train_fraction < 1:
            raise BadInput(
                f"train_fraction is {self.train_fraction:g}, but it chooses graphs, and here the "
                f"{self.facts['split_level']}s are split: all graphs are in all splits. Set data.fractions instead."
            )
        self.check_sampled()

    def _choose_scores(self, metric: str | None, loss: str | None) -> tuple[str, str]:
        """Return metric and loss, by default those of source or task; refuse any that the task does not support."""
        metrics, losses = metrics_of(self._target, bool(self.log10)), LOSSES[self._target.task]
        metrics += NEGATIVE_METRICS if self._target.level == "link" and self.facts["num_negatives"] else ()
        for option, value, choices in (("metric", metric, metrics), ("loss", loss, losses)):
            if value is not None and value not in choices:
                raise BadInput(f"{option}={value}: {self._target.task} knows {', '.join(choices)}.")
        return metric or self.facts["metric"] or metrics[0], loss or losses[0]

    def _extra(self) -> dict[str, str]:
        """Return facts for which the specification has no field."""
        extra = {"split": f"{self.facts['split_level']}s"} if self._by_nodes else {}
        extra |= {"edges": "undirected"} if self.facts.get("symmetric") else {}
        if self._target.level == "link":
            extra |= {"links": "edges"} if self.facts["of_one_graph"] else {}
            extra |= {"negatives": "given"} if self.facts["num_negatives"] else {}
        return extra

    # -- reading -------------------------------------------------------------------------------------------------

    def prepare_data(self) -> None:
        """Show what was inferred, then read and encode the data."""
        self.show()
        super().prepare_data()

    def show(self) -> None:
        """Log the table of what was inferred, once."""
        if not self._shown:
            logger.info("%s", summary_text(self.spec.source, self.summary()))
            for split, names in self.facts["lacking"]:
                logger.warning("%s: the %s split has no row of class %s", self.spec.name, split, names)
        self._shown = True

    def summary(self) -> list[tuple[str, str, str]]:
        """Return what was inferred as rows of (what, value, reason)."""
        counts: dict[str, int] = {split: len(self._rows[split]) for split in SPLITS}
        return summary_rows(self.spec, self.facts, self._target, self._plan, counts) + self.batch_rows()

    def read(self) -> Mapping[str, GraphTable]:
        """Return the table of each split."""
        raw = self._graphs()
        table = self._table(raw, targets=True)
        self._raw = None  # frees memory: the store has the graphs
        self.left_out = 0 if self._target.level in (NODE, EDGE) else self.facts["unlabelled"]
        keep = keep_targets if self._by_nodes else lambda table, rows: table.select(torch.from_numpy(rows))
        return scaled_weights({split: keep(table, rows) for split, rows in self._rows.items()})

    def _table(self, raw: RawGraphs, targets: bool = False) -> GraphTable:
        """Build the table of graphs with their features, and with targets and weights."""
        columns = self.feature_columns(raw)
        if targets and (y := target_array(raw, self._target)) is not None:
            columns |= {"y": y} | bound_arrays(raw, self._target)
            if self.weight is not None:
                columns[WEIGHT] = weight_array(raw, self._target, self.weight)
        return raw.table(columns)

    def ids(self, split: str) -> Sequence[Any]:
        """Return the names of the graphs, or their numbers in the source if it has no names."""
        names = self.facts["names"]
        rows = range(self.facts["num_graphs"]) if self._by_nodes else self._rows[split]
        return [names[row] if names else int(row) for row in rows]
