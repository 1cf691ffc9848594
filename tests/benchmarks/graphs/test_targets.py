"""Missing labels, columns that are classes, and weights of rows: one rule for graphs and for nodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from own_graphs import make_graphs, ring
from torch_geometric.data import Data

from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.readers.objects import raw_from_objects
from graphbench.benchmarks.graphs.targets import find_target, target_array
from graphbench.errors import BadInput, UnknownName
from graphbench.tables.cells import USUAL

SPLITS = ("train", "val", "test")
THIRDS = (0.4, 0.3, 0.3)
COUNT = 30


def source(level, labels):
    """Return thirty graphs with a label each, or one graph of thirty labelled nodes."""
    labels = torch.as_tensor(labels)
    if level == "node":
        return Data(x=torch.zeros(COUNT, 1), edge_index=ring(COUNT), y=labels)
    return [Data(x=torch.zeros(3, 1), edge_index=ring(3), y=label.reshape(1, -1)) for label in labels]


def opened(level, labels, folder, **options):
    data = Graphs(source(level, labels), root=str(folder), fractions=THIRDS, **options)
    data.setup()
    y = torch.cat([data.tables[split].columns["y"] for split in SPLITS])
    return data, y[~torch.isnan(y).all(1)] if y.is_floating_point() else y[y >= 0]


def test_minus_one_is_no_label_beside_two_classes_none_of_which_is_negative(tmp_path):
    third = np.arange(COUNT) % 3
    for level in ("graph", "node"):
        leave = {} if level == "node" else {"on_error": "skip"}
        data, y = opened(level, third - 1, tmp_path, **leave)  # -1, 0 and 1
        assert (data.spec.num_classes, sorted(y.tolist())) == (2, [0] * 10 + [1] * 10), level
        assert ("no target", f"10 {level}s") in [row[:2] for row in data.summary()]
        assert next(row[2] for row in data.summary() if row[0] == "no target").endswith("--data.missing")
        data, y = opened(level, third - 1, tmp_path, missing=[])
        assert (data.spec.num_classes, data.spec.target_names, len(y)) == (3, ("-1", "0", "1"), COUNT), level
        data, y = opened(level, (third % 2) * 2 - 1, tmp_path)  # -1 and 1 are two classes
        assert (data.spec.target_names, len(y)) == (("-1", "1"), COUNT), level
        data, y = opened(level, third, tmp_path, missing=[2], **leave)
        assert (data.spec.num_classes, len(y)) == (2, 20), level
        data, y = opened(level, np.where(third == 0, -999.0, np.arange(COUNT) / 7), tmp_path, missing=[-999], **leave)
        assert (data.spec.task, len(y)) == (f"{level}-regression", 20), level
        data, y = opened(level, np.where(third == 0, np.nan, np.arange(COUNT) / 7), tmp_path, **leave)
        assert (data.spec.task, len(y)) == (f"{level}-regression", 20), level


def test_graphs_without_a_target_stop_unless_they_are_to_be_left_out(tmp_path):
    labels = np.where(np.arange(COUNT) % 10 == 3, np.nan, np.arange(COUNT) / 7)
    with pytest.raises(BadInput, match=r"graph 3: the target y is missing.* 3 of 30 graphs.*--data\.on_error skip"):
        opened("graph", labels, tmp_path)
    data, _ = opened("graph", labels, tmp_path, on_error="skip")
    assert data.left_out == 3
    rows = np.sort(np.concatenate([data._rows[split] for split in SPLITS]))
    assert rows.tolist() == [row for row in range(COUNT) if row % 10 != 3]
    with pytest.raises(BadInput, match=r"graph 0: the target y is missing \(-1\).*--data\.missing"):
        opened("graph", np.arange(COUNT) % 3 - 1, tmp_path)
    with pytest.raises(BadInput, match="on_error must be one of stop, skip"):
        opened("graph", labels, tmp_path, on_error="drop")


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_columns_with_one_1_in_each_row_are_classes(tmp_path, level, dtype):
    classes = np.arange(COUNT) % 3
    hot = torch.eye(3)[torch.from_numpy(classes)].to(dtype)
    data, y = opened(level, hot, tmp_path)
    assert (data.spec.task, data.spec.num_classes) == (f"{level}-classification", 3)
    assert sorted(y.tolist()) == sorted(classes.tolist())
    for split in SPLITS:
        table = data.tables[split].columns["y"][:, 0]
        rows = data._rows[split]
        assert (table if level == "graph" else table[torch.from_numpy(rows)]).tolist() == classes[rows].tolist()
    why = next(row[2] for row in data.summary() if row[0] == "task")
    assert "exactly one 1" in why
    assert f"{level}-multilabel" in why
    flags, _ = opened(level, hot, tmp_path, task=f"{level}-multilabel")
    assert (flags.spec.num_classes, flags.spec.num_targets) == (None, 3)
    hot[4] = torch.tensor([1, 1, 0])
    assert opened(level, hot, tmp_path)[0].spec.task == f"{level}-multilabel"
    with pytest.raises(BadInput, match="exactly one 1"):
        opened(level, hot, tmp_path, task=f"{level}-classification")


@pytest.mark.parametrize(
    ("known", "new", "said"),
    [
        ([1.0, 2.0, 3.0], 1.5, "1.5 is none of 1, 2, 3"),
        ([0.0, 1.0, 2.0], 1.5, "1.5 is none of the classes 0 to 2"),
        ([0, 1, 2], 7, "7 is none of the classes"),
        ([[1, 0], [0, 1], [1, 0]], [0, 0], "does not have exactly one 1"),
    ],
)
def test_new_graphs_have_one_of_the_classes(known, new, said):
    """A class 1.5 was scored as class 1, and a row without a 1 as class 0."""
    target = find_target(raw_from_objects(source("graph", known), "old"), None, "graph-classification", None)
    with pytest.raises(BadInput, match=said):
        target_array(raw_from_objects(source("graph", [new]), "new"), target)


def test_classes_that_a_split_lacks_are_said_before_training(tmp_path, caplog):
    labels = np.where(np.arange(COUNT) < 2, 1, 0)
    data, _ = opened("graph", labels, tmp_path)
    lacking = [row[1] for row in data.summary() if row[0] == "  lacking"]
    assert len(lacking) == 1
    assert "class 1" in lacking[0]
    data.show()
    assert any(record.levelname == "WARNING" and "class 1" in record.message for record in caplog.records)
    data, _ = opened("graph", np.where(np.arange(COUNT) < 3, 1, 0), tmp_path)
    assert not [row for row in data.summary() if row[0] == "  lacking"]


@pytest.fixture
def tables(tmp_path):
    """Write thirty paths of three nodes as tables with a target each, and open them."""

    def opened(cells, **options):
        (tmp_path / "graphs.csv").write_text("\n".join(["graph,y", *(f"g{n},{cell}" for n, cell in enumerate(cells))]))
        (tmp_path / "nodes.csv").write_text("\n".join(["graph,x", *(f"g{n // 3},{n % 2}" for n in range(3 * COUNT))]))
        ends = [f"g{n},{a},{b}" for n in range(COUNT) for a, b in ((0, 1), (1, 2))]
        (tmp_path / "edges.csv").write_text("\n".join(["graph,source,target", *ends]))
        data = Graphs(str(tmp_path), store=str(tmp_path / "store"), fractions=THIRDS, **options)
        data.setup()
        return data, torch.cat([data.tables[split].columns["y"] for split in SPLITS])

    return opened


def test_words_for_missing_targets_are_those_of_molecules(tables):
    numbers = [f"{n / 7}" for n in range(COUNT)]
    for place, word in enumerate(USUAL):
        data, y = tables([word, *numbers[1:]], on_error="skip")
        assert (data.spec.task, data.left_out, len(y)) == ("graph-regression", 1, COUNT - 1), (place, word)
    classes = [("wet", "dry", "ND", "-")[n % 4] for n in range(COUNT)]
    data, y = tables(classes, on_error="skip")
    assert (data.spec.target_names or data.class_labels(), len(y)) == (("dry", "wet"), 16)
    data, y = tables(classes, missing=[])
    assert (data.spec.num_classes, len(y)) == (4, COUNT)


def test_a_word_among_numbers_is_named_with_the_option_to_type(tables):
    cells = ["pending" if n % 10 == 3 else f"{n / 7}" for n in range(COUNT)]
    for options in ({}, {"task": "graph-regression"}):
        with pytest.raises(BadInput, match=r"graphs\.csv, line 5.*y is 'pending'.*--data\.missing '\[\"pending\"\]'"):
            tables(cells, **options)
    with pytest.raises(BadInput, match=r"line 5.*y is missing; 3 of 30"):
        tables(cells, missing=["pending"])
    data, y = tables(cells, missing=["pending"], on_error="skip")
    assert (data.spec.task, data.left_out) == ("graph-regression", 3)
    assert y[:, 0].sort().values.tolist() == pytest.approx([n / 7 for n in range(COUNT) if n % 10 != 3])
    data, _ = tables([f"{n % 2}" if n % 10 != 3 else "unknown" for n in range(COUNT)], task="graph-classification")
    assert data.spec.num_classes == 3


def weighted_graphs():
    """Return thirty graphs with a number, node classes and weights of both; the last node lacks class and weight."""
    graphs = []
    for number, graph in enumerate(make_graphs(30)):
        count = graph.num_nodes
        label = torch.arange(count) % 2
        label[-1] = -1
        of_nodes = torch.arange(count).float()
        of_nodes[-1] = torch.nan
        kept = Data(x=graph.x, edge_index=graph.edge_index, trust=torch.tensor([float(number % 3)]), of_nodes=of_nodes)
        kept.y, kept.label, kept.note = torch.tensor([number / 7]), label, "text"
        graphs.append(kept)
    return graphs


def test_graphs_have_weights_of_mean_one_in_training(opened):
    data = opened(weighted_graphs(), target="y", weight="trust", split="random")
    weights = torch.cat([data.tables[split].columns["weight"] for split in SPLITS])
    numbers = torch.tensor([int(name) % 3 for split in SPLITS for name in data.ids(split)])
    assert float(data.tables["train"].columns["weight"].mean()) == pytest.approx(1)
    assert torch.allclose(weights[numbers == 2], 2 * weights[numbers == 1][0])
    assert not weights[numbers == 0].any()
    plain = opened(weighted_graphs(), target="y", split="random")
    assert "weight" not in plain.tables["train"].columns
    assert plain.spec == data.spec


@pytest.mark.parametrize("level", ["graph", "node"])
def test_nodes_have_weights_where_they_have_labels(opened, level):
    data = opened(weighted_graphs(), target="label", weight="of_nodes", split="random", split_level=level)
    train = data.tables["train"].columns
    known = train["y"].reshape(-1) >= 0
    assert float(train["weight"][known].mean()) == pytest.approx(1)
    if level == "graph":
        assert not train["weight"][~known].any()
    batch = data.tables["train"].batch([0, 1])
    assert batch.weight.shape == (batch.num_nodes,)
    assert (
        data.source_key() != opened(weighted_graphs(), target="label", split="random", split_level=level).source_key()
    )


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"target": "y", "weight": "turst"}, UnknownName, "Did you mean trust?"),
        ({"target": "y", "weight": "note"}, BadInput, "weight: note is text; expected one number for each graph"),
        ({"target": "label", "weight": "x", "node_features": []}, BadInput, "weight"),
    ],
)
def test_weights_that_do_not_fit_are_told(tmp_path, options, error, said):
    with pytest.raises(error, match=said):
        Graphs(weighted_graphs(), root=str(tmp_path), **options)


def test_a_negative_weight_is_named_with_its_graph(tmp_path):
    graphs = weighted_graphs()
    graphs[4].trust = torch.tensor([-1.0])
    with pytest.raises(BadInput, match=r"4: the weight trust is -1\.0; expected a number of 0 or more"):
        Graphs(graphs, "y", weight="trust", root=str(tmp_path))
