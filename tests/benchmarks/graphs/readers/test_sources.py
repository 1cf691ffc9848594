"""One source per split, fold numbers in a column, and shares of zero: used as given, or refused."""

from contextlib import nullcontext

import pytest
import torch
from own_graphs import make_graphs

from graphbench.benchmarks import Graphs
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, GraphbenchError


@pytest.fixture
def saved(tmp_path):
    def saved(name, graphs):
        torch.save(graphs, tmp_path / name)
        return str(tmp_path / name)

    return saved


@pytest.fixture
def opened(tmp_path):
    def opened(source, **options):
        data = Graphs(source, root=str(tmp_path / "data"), **{"target": "y", **options})
        data.prepare_data()
        data.setup()
        return data

    return opened


def features(data, split):
    return [graph.x.tolist() for graph in data.dataset(split)] if len(data.tables[split]) else []


def given(graphs):
    return [graph.x.tolist() for graph in graphs]


@pytest.mark.parametrize("others", [("test",), ("val",), ("val", "test")])
def test_sources_of_splits_are_taken_whole(saved, opened, others):
    parts = {"train": make_graphs(20, 0), "val": make_graphs(6, 1), "test": make_graphs(9, 2)}
    options = {f"{name}_source": saved(f"{name}.pt", parts[name]) for name in others}
    data = opened(saved("train.pt", parts["train"]), **options)
    assert all(features(data, name) == given(parts[name]) for name in others)
    cut = [graph for split in SPLITS if split not in others for graph in features(data, split)]
    assert sorted(map(str, cut)) == sorted(map(str, given(parts["train"])))
    assert all(len(data.tables[split]) for split in SPLITS)
    told = {row[0]: row[2] for row in data.summary()}["split"]
    assert all(f"{name} from {name}.pt" in told for name in others)
    assert all(f"{name} is cut from train" in told for name in ("val", "test") if name not in others)
    assert len({*data.ids("train"), *data.ids("val"), *data.ids("test")}) == sum(len(data.tables[s]) for s in SPLITS)
    with pytest.raises(BadInput, match="--folds"):
        data.fold_options(5)
    with nullcontext() if len(others) == 1 else pytest.raises(BadInput, match="--split-seeds"):
        data.check_split_seed()


def test_lists_of_python_and_no_validation(opened):
    data = opened(make_graphs(20), test_source=make_graphs(5, 3), fractions=(1, 0, 0))
    assert [len(data.tables[split]) for split in SPLITS] == [20, 0, 5]


def test_another_file_is_another_set(saved, opened):
    train = saved("train.pt", make_graphs(20))
    first = opened(train, test_source=saved("test.pt", make_graphs(5, 1))).fingerprint()
    assert opened(train, test_source=saved("test.pt", make_graphs(5, 2))).fingerprint() != first


def test_classes_are_those_of_all_sources(opened):
    train, test = make_graphs(20), make_graphs(6, 1)
    for graph in test:
        graph.y = torch.tensor([3])
    assert opened(train, test_source=test).spec.num_classes == 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"split": "random"}, "split=random"),
        ({"split": "k-fold"}, "split=k-fold"),
        ({"split_column": "part"}, "split_column=part"),
        ({"split_level": "node"}, "split_level=node"),
        ({"test_source": "absent.pt"}, "--data.test_source absent.pt"),
    ],
)
def test_contradictions_are_refused(opened, options, said):
    with pytest.raises(GraphbenchError, match=said):
        opened(make_graphs(20), **{"test_source": make_graphs(5), **options})


def test_a_source_that_lacks_a_column_is_named(opened, saved):
    bare = make_graphs(5)
    for graph in bare:
        del graph.y
    with pytest.raises(BadInput, match=r"bare\.pt.*y"):
        opened(saved("train.pt", make_graphs(20)), test_source=saved("bare.pt", bare))


def test_a_source_with_a_split_of_its_own_is_refused(opened):
    lists = {"train": make_graphs(10), "test": make_graphs(5)}
    with pytest.raises(BadInput, match="its own split"):
        opened(make_graphs(20), test_source=lists)


@pytest.mark.parametrize(("level", "name"), [("graph", "part"), ("node", "part"), ("graph", "split")])
def test_fold_numbers_of_a_column(opened, level, name):
    graphs = make_graphs(24)
    if level == "node":
        graphs = graphs[:1] * 8
    for number, graph in enumerate(graphs):
        graph = graphs[number] = graph.clone()
        size = graph.num_nodes
        graph[name] = torch.tensor([number % 4]) if level == "graph" else torch.arange(size) % 4
        if level == "node":
            graph.y = torch.arange(size) % 2
    options = {} if name == "split" else {"split_column": name, "split_level": level}
    data = opened(graphs, **options)
    folds = data.fold_options(4)
    assert [one["fold"] for one in folds] == [0, 1, 2, 3]
    for one in folds:
        found = opened(graphs, **options, **one)
        rows = {split: set(found._rows[split].tolist()) for split in SPLITS}
        wanted = torch.cat([graph[name] for graph in graphs])
        assert {int(wanted[row]) for row in rows["test"]} == {one["fold"]}
        assert {int(wanted[row]) for row in rows["val"]} == {(one["fold"] + 1) % 4}
        assert sum(map(len, rows.values())) == len(wanted)
    with pytest.raises(BadInput, match="--folds 5"):
        data.fold_options(5)
    with pytest.raises(BadInput, match="fold"):
        opened(graphs, **options, fold=4)


@pytest.mark.parametrize("numbers", [(1, 2, 3), (0, 1), (0, 2, 3)])
def test_numbers_that_are_no_folds_are_refused(opened, numbers):
    graphs = make_graphs(24)
    for number, graph in enumerate(graphs):
        graph.part = torch.tensor([numbers[number % len(numbers)]])
    with pytest.raises(BadInput, match="part"):
        opened(graphs, split_column="part")


def test_more_folds_than_ten(opened):
    graphs = make_graphs(24)
    for number, graph in enumerate(graphs):
        graph.part = torch.tensor([number % 12])
    data = opened(graphs, split_column="part")
    assert len(opened(graphs, split_column="part", **data.fold_options(12)[11]).tables["test"]) == 2


@pytest.mark.parametrize("split", ["random", "stratified", "groups"])
@pytest.mark.parametrize("fractions", [(0.9, 0.1, 0), (0.9, 0, 0.1), (1, 0, 0)])
def test_shares_may_be_zero(opened, split, fractions):
    graphs = make_graphs(30)
    for number, graph in enumerate(graphs):
        graph.site = torch.tensor([number % 10])
    group = {"group_column": "site"} if split == "groups" else {}
    data = opened(graphs, split=split, fractions=fractions, **group)
    sizes = [len(data.tables[name]) for name in SPLITS]
    assert sum(sizes) == 30
    assert [size > 0 for size in sizes] == [share > 0 for share in fractions]
    assert not any(split == "val" and not fractions[1] for split, _ in data.facts["lacking"])


@pytest.mark.parametrize(("words", "fractions", "sizes"), [
    (("train", "test"), (0.8, 0.1, 0.1), (21, 3, 6)),
    (("train", "test"), (0.8, 0, 0.2), (24, 0, 6)),
    (("train", "val"), (0.8, 0.2, 0), (24, 6, 0)),
])  # fmt: skip
def test_a_column_of_two_splits(opened, words, fractions, sizes):
    graphs = make_graphs(30)
    for number, graph in enumerate(graphs):
        graph.split = words[number % 5 == 0]
    data = opened(graphs, fractions=fractions)
    found = [len(data.tables[split]) for split in SPLITS]
    assert found[SPLITS.index(words[1])] == 6
    assert sum(found) == 30
    assert [size == 0 for size in found] == [size == 0 for size in sizes]


@pytest.mark.parametrize("split", [None, "random", "stratified"])
def test_a_fold_without_folds_is_refused(opened, split):
    with pytest.raises(BadInput, match="fold is 3"):
        opened(make_graphs(30), split=split, fold=3)


def test_shares_that_decide_nothing_are_told(opened):
    data = opened(make_graphs(30), split="k-fold", num_folds=3, fractions=(0.6, 0.2, 0.2))
    assert "fractions are not used" in data.facts["split"]
