"""Masks of graphs: given splits are used, missing ones are cut and reported, excluded rows stay out."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
import torch
from own_graphs import make_graphs, ring
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.errors import BadInput

SPLITS = ("train", "val", "test")
NODES, SIZE = 60, 12  # of all graphs, and of one of five
GIVEN = [given for count in (1, 2, 3) for given in combinations(SPLITS, count)]
#: Of every twelve nodes: four train, two validate, three test, two are in no mask, one has no label.
ROLE = np.array((["train"] * 4 + ["val"] * 2 + ["test"] * 3 + [""] * 3) * 5)
LABEL = np.where(np.arange(NODES) % SIZE == 11, -1, np.arange(NODES) % 3)
NAMES = {"train": "train_mask", "val": "val_mask", "test": "test_mask"}
OTHER_NAMES = {"train": "training_mask", "val": "valid_mask", "test": "is_test_mask"}


def mask(chosen, form):
    if form == "index":
        return torch.from_numpy(np.flatnonzero(chosen))
    return torch.from_numpy(chosen).to({"bool": torch.bool, "uint8": torch.uint8}[form])


def node_graphs(given, form, several, names=NAMES):
    """Return one graph of 60 nodes, or five of 12, with the masks of the given splits."""
    size = SIZE if several else NODES
    graphs = []
    for first in range(0, NODES, size):
        rows = slice(first, first + size)
        graph = Data(x=torch.randn(size, 2), edge_index=ring(size), y=torch.from_numpy(LABEL[rows]))
        for split in given:
            graph[names[split]] = mask(ROLE[rows] == split, form)
        graphs.append(graph)
    return graphs if several else graphs[0]


def targets(source, folder, **options):
    """Return the nodes with a target in each split, numbered across all graphs."""
    data = Graphs(source, root=str(folder), **options)
    data.setup()
    found = {split: np.flatnonzero(data.tables[split].columns["y"][:, 0].numpy() >= 0) for split in SPLITS}
    for split in SPLITS:
        assert (data.tables[split].columns["y"][found[split], 0].numpy() == LABEL[found[split]]).all()
    return data, found


def check(given, found):
    """Check that given masks are used unchanged, splits are disjoint and labelled, and excluded nodes stay out."""
    labelled = set(np.flatnonzero(LABEL >= 0).tolist())
    sets = {split: set(rows.tolist()) for split, rows in found.items()}
    role = {split: set(np.flatnonzero(split == ROLE).tolist()) for split in SPLITS}
    everywhere = set.union(*sets.values())
    assert sum(map(len, sets.values())) == len(everywhere)
    assert all(sets.values())
    assert everywhere <= labelled
    for split in given:
        if split != "train":
            assert sets[split] == role[split]
    training = role["train"] if "train" in given else labelled - set.union(*(role[split] for split in given))
    missing = set(SPLITS) - {*given, "train"}
    if given == ("train",):
        assert sets["train"] == training
        assert everywhere == labelled  # the others are divided
    else:
        assert sets["train"] | set.union(set(), *(sets[split] for split in missing)) == training


@pytest.mark.parametrize(("given", "form", "several"), list(product(GIVEN, ("bool", "uint8", "index"), (False, True))))
def test_masks_of_nodes_are_used_as_they_are(tmp_path, given, form, several):
    data, found = targets(node_graphs(given, form, several), tmp_path)
    assert data.spec.extra == {"split": "nodes"}
    check(given, found)
    told = {row[0]: row[1:] for row in data.summary()}
    assert all(NAMES[split] in told["split"][1] for split in given)
    for split in set(SPLITS) - set(given):
        assert (f"{split} is" in told["split"][1] or f"{split} are" in told["split"][1] or " and " in told["split"][1]
                or "all others train" in told["split"][1])  # fmt: skip
    left_out = 55 - len(np.concatenate(list(found.values())))
    assert told.get("  in none", ("0",))[0] == str(left_out)
    assert told["no target"][0] == "5 nodes"


@pytest.mark.parametrize(("given", "several"), list(product(GIVEN, (False, True))))
def test_masks_of_other_names_mean_the_same(tmp_path, given, several):
    check(given, targets(node_graphs(given, "bool", several, OTHER_NAMES), tmp_path)[1])


@pytest.mark.parametrize(("given", "form"), list(product(GIVEN, ("bool", "uint8"))))
def test_graphs_are_split_by_their_own_masks(tmp_path, given, form):
    graphs, roles = make_graphs(), np.array((["train"] * 5 + ["val"] * 2 + ["test"] * 3) * 4)
    for graph, role in zip(graphs, roles, strict=True):
        for split in given:
            graph[NAMES[split]] = torch.tensor([role == split], dtype=torch.bool if form == "bool" else torch.uint8)
    data = Graphs(graphs, root=str(tmp_path), target="y")
    rows = {split: set(data._rows[split].tolist()) for split in SPLITS}
    true = {split: set(np.flatnonzero(roles == split).tolist()) for split in SPLITS}
    assert sum(map(len, rows.values())) == len(set.union(*rows.values()))
    for split in given:
        assert rows[split] == true[split] or (split == "train" and given not in (("train",), SPLITS))
    if given != ("train",):
        assert not rows["train"] & set.union(set(), *(true[split] for split in given if split != "train"))


@pytest.mark.parametrize("name", ["split", "phase"])
def test_a_column_of_words_may_lack_a_split(tmp_path, name):
    graphs, roles = make_graphs(), ["training"] * 30 + ["testing"] * 10
    for graph, role in zip(graphs, roles, strict=True):
        graph[name] = role
    data = Graphs(graphs, root=str(tmp_path), target="y")
    assert data._rows["test"].tolist() == list(range(30, 40))
    assert sorted([*data._rows["train"], *data._rows["val"]]) == list(range(30))


def test_lists_of_train_and_test_without_val(tmp_path):
    graphs = make_graphs()
    for source in ({"train": graphs[:30], "test": graphs[30:]}, (graphs[:30], graphs[30:])):
        data = Graphs(source, root=str(tmp_path))
        assert data._rows["test"].tolist() == list(range(30, 40))
        assert sorted([*data._rows["train"], *data._rows["val"]]) == list(range(30))
        assert len(data._rows["val"]) in (3, 4)
        assert "val is cut from train" in {row[0]: row[2] for row in data.summary()}["split"]


def test_nodes_outside_of_a_mask_of_snapshots_never_count(tmp_path):
    graphs = node_graphs((), "bool", several=True)
    counted = np.arange(NODES) % SIZE < 7
    for number, graph in enumerate(graphs):
        graph.mask = torch.from_numpy(counted[number * SIZE : (number + 1) * SIZE])
    for options in ({}, {"split_level": "node"}, {"split_level": "node", "split": "random"}):
        data = Graphs(graphs, root=str(tmp_path), fractions=(0.6, 0.2, 0.2), **options)
        data.setup()
        known = sum(int((data.tables[split].columns["y"] >= 0).sum()) for split in SPLITS)
        assert known == counted.sum()
        assert "mask" not in data.spec.node.names


def test_given_splits_that_contradict_each_other_are_refused(tmp_path):
    def refused(message, source, **options):
        with pytest.raises(BadInput, match=message):
            Graphs(source, root=str(tmp_path), **options)

    graph = node_graphs(SPLITS, "bool", several=False)
    graph.valid_mask = ~graph.val_mask
    refused("val_mask and valid_mask differ", graph)
    graph = node_graphs(("train",), "bool", several=False)
    graph.train_mask = torch.tensor([3, 60])
    refused("train_mask holds 60, but its nodes are numbered from 0 to 59", graph)
    graph.train_mask = torch.tensor([3, 3])
    refused("train_mask lists a node twice", graph)
    graph.train_mask = torch.full((60,), 0.5)
    refused("train_mask is 0.5; a mask holds 0 and 1", graph)
    graphs = node_graphs(("train", "test"), "bool", several=True)
    del graphs[2].test_mask
    refused("graph 2 has no test_mask", graphs)
    by_list = {split: node_graphs(SPLITS, "bool", several=True) for split in SPLITS}
    refused("split_level=graph or split_level=node", by_list)
    data = Graphs(by_list, root=str(tmp_path), split_level="graph")
    assert [row[1] for row in data.summary() if row[0] == "  not used"] == list(NAMES.values())
    chosen = Graphs(node_graphs(SPLITS, "bool", several=False), root=str(tmp_path), split="random")
    assert {row[1:] for row in chosen.summary() if row[0] == "  not used"} == {
        (name, "split=random was asked for") for name in NAMES.values()
    }


def test_masks_of_several_splits_lack_one_of_them(tmp_path):
    graph = node_graphs((), "bool", several=False)
    folds = [np.roll(ROLE, 3 * number) for number in range(4)]
    for split in ("train", "test"):
        graph[NAMES[split]] = torch.from_numpy(np.stack([fold == split for fold in folds], 1))
    for fold in range(4):
        _, found = targets(graph, tmp_path, fold=fold)
        known = LABEL >= 0
        assert found["test"].tolist() == np.flatnonzero((folds[fold] == "test") & known).tolist()
        both = np.sort(np.concatenate([found["train"], found["val"]]))
        assert both.tolist() == np.flatnonzero((folds[fold] == "train") & known).tolist()
