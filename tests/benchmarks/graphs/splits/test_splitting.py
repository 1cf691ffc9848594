"""Splits, checked by counting."""

from __future__ import annotations

import numpy as np
import pytest
from own_graphs import make_graphs

from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.benchmarks.graphs.splits.splitting import (
    SplitRequest,
    Units,
    split_level,
    split_units,
    used_columns,
)
from graphbench.errors import BadInput

SPLITS = ("train", "val", "test")
FRACTIONS = (0.8, 0.1, 0.1)


def request(**options):
    usual = {"kind": None, "column": None, "group": None, "fractions": FRACTIONS, "fold": 0, "num_folds": 5, "seed": 0}
    made = SplitRequest(**usual | options)
    made.check()
    return made


def raw(columns):
    """Return forty graphs with further columns, one value for each graph."""
    graphs = make_graphs()
    for name, values in columns.items():
        for graph, value in zip(graphs, values, strict=True):
            graph[name] = value
    return raw_from_objects(graphs, "mine")


def units(graphs, rows=None, classes=None):
    """Return units for all graphs, or for the nodes `rows`."""
    if rows is None:
        return Units(graphs, "graph", np.arange(len(graphs)), classes)
    return Units(graphs, "node", np.asarray(rows), classes)


def test_given_splits_by_word_mask_and_list():
    words = ["Train"] * 20 + ["valid"] * 10 + ["test"] * 10
    masks = {
        f"{name}_mask": [word == told for word in words]
        for name, told in zip(SPLITS, ("Train", "valid", "test"), strict=True)
    }
    by_list = make_graphs()
    named = {"train": by_list[:20], "val": by_list[20:30], "test": by_list[30:]}
    for graphs, told in (
        (raw({"split": words}), "as split says"),
        (raw(masks), "as train_mask, val_mask, test_mask say"),
        (raw_from_objects(named, "mine"), "as mine gives it"),
    ):
        split, why = split_units(units(graphs), request())
        assert [split[name].tolist() for name in SPLITS] == [
            list(range(20)), list(range(20, 30)), list(range(30, 40))
        ]  # fmt: skip
        assert why == told
    other = raw({"fold_name": words})
    assert used_columns(other, request(column="fold_name")) == ("fold_name",)
    assert len(split_units(units(other), request(column="fold_name"))[0]["val"]) == 10


def test_what_cannot_be_split_is_refused():
    with pytest.raises(BadInput, match=r"mine, graph 3: split is 'trian'; expected train, val or test"):
        split_units(units(raw({"split": ["train"] * 3 + ["trian"] * 37})), request())
    with pytest.raises(BadInput, match="column split of graphs holds numbers"):
        split_units(units(raw({"split": [0] * 20 + [1] * 20})), request())
    with pytest.raises(BadInput, match="only 10 graphs or groups"):
        split_units(units(raw({})), request(kind="k-fold", group="batch_number", num_folds=11))
    with pytest.raises(BadInput, match="group_column belongs to split=groups or k-fold"):
        request(kind="random", group="a")
    with pytest.raises(BadInput, match="num_folds=5 belongs to split=k-fold, not to split=random"):
        request(kind="random", num_folds=5)
    with pytest.raises(BadInput, match="split must be one of given, random, stratified, k-fold, groups"):
        request(kind="scaffold")


def test_nodes_are_split_where_the_columns_are_theirs():
    nodes = sum(graph.num_nodes for graph in make_graphs())
    graphs = make_graphs()
    words, first = np.array((["train"] * 3 + ["val", "test", ""]) * nodes)[:nodes], 0
    for graph in graphs:
        graph["split"] = words[first : first + graph.num_nodes].tolist()
        first += graph.num_nodes
    by_word, plain = raw_from_objects(graphs, "mine"), raw_from_objects(make_graphs(), "mine")
    assert split_level(by_word, request(), target_level="node") == "node"
    assert split_level(by_word, request(), target_level="graph") == "graph"
    assert split_level(by_word, request(level="graph"), target_level="node") == "graph"
    assert split_level(plain, request(), target_level="node") == "graph"
    assert split_level(plain, request(group="role"), target_level="node") == "node"
    assert split_level(plain.select([4]), request(), target_level="node") == "node", "one graph"
    with pytest.raises(BadInput, match="split_level=node belongs to targets of nodes"):
        split_level(plain, request(level="node"), target_level="graph")
    assert used_columns(by_word, request(), "node") == ("split",)
    labelled = np.flatnonzero(np.arange(nodes) % 7)  # the others have no target
    split, told = split_units(units(by_word, labelled), request())
    assert told == "as split says"
    for name in SPLITS:
        assert split[name].tolist() == [row for row in labelled if words[row] == name]


def test_masks_of_several_splits_are_chosen_by_the_fold():
    graphs = make_graphs(1)
    graphs[0]["train_mask"] = [[True, False]] * 2 + [[False, True]] * 2
    graphs[0]["val_mask"] = [[False, True], [False, False], [True, False], [False, False]]
    graphs[0]["test_mask"] = [False, True, False, True]
    mine = raw_from_objects(graphs, "mine")
    assert mine.columns["node"]["train_mask"].shape == (4, 2)
    whole = units(mine, range(4))
    with pytest.raises(BadInput, match="split=given of 4 labelled nodes: Row 1 is in the train split and in the test"):
        split_units(whole, request())
    with pytest.raises(BadInput, match="fold is 2, but train_mask has 2 columns, numbered from 0"):
        split_units(whole, request(fold=2))
    split, told = split_units(units(mine, [0, 2, 3]), request(fold=0))
    assert [split[name].tolist() for name in SPLITS] == [[0], [2], [3]]
    assert told == "as train_mask, val_mask, test_mask say, column 0; --data.fold"
