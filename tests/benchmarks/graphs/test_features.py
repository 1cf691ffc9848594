"""Node features normalised as by PyG, and features of whole graphs."""

import json
from functools import partial

import pytest
import torch
from pytorch_lightning import Trainer
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures

from graphbench import build
from graphbench.benchmarks import Graphs
from graphbench.errors import BadInput, UnknownName

PATH = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def words(generator):
    """Return word counts: a node without words, one whose sum is below 1, and others."""
    counts = torch.rand(3, 5, generator=generator).mul(4).round()
    counts[0], counts[1] = 0.0, 0.1
    return counts


@pytest.fixture
def documents():
    generator = torch.Generator().manual_seed(0)
    return [Data(x=words(generator), edge_index=PATH, y=torch.tensor([number % 2])) for number in range(20)]


def test_sums_are_those_of_pyg_in_training_and_in_new_graphs(documents, opened):
    made = opened(documents, normalize_features=True)
    expected = [NormalizeFeatures()(graph.clone()).x for graph in documents]
    for split in ("train", "val", "test"):
        table = made.tables[split]
        for row, number in enumerate(made.ids(split)):
            torch.testing.assert_close(table.batch([row]).x_dense, expected[int(number)])
    (part,) = made.read_objects(documents[:4])
    torch.testing.assert_close(part.table.batch(range(4)).x_dense, torch.cat(expected[:4]))


def test_numbers_stay_as_they_are_without_the_option(documents, opened):
    made = opened(documents)
    assert torch.equal(made.tables["train"].batch([0]).x_dense, documents[int(made.ids("train")[0])].x)


def test_negative_numbers_are_refused_with_their_place(documents, opened):
    documents[7].x[2, 3] = -0.5
    with pytest.raises(BadInput, match=r"graph 7, node 2: a feature is -0.5; normalize_features"):
        opened(documents, normalize_features=True)


def test_categories_alone_are_refused(documents, opened):
    for graph in documents:
        graph.x = graph.x.long()
    with pytest.raises(BadInput, match=r"normalize_features is set, but .* has no real numbers for features of nodes"):
        opened(documents, normalize_features=True)


def test_no_column_of_the_target_is_a_feature_and_no_other_is_left_out(tmp_path):
    """A graph may have its targets in a column of nodes, and a name may have a colon."""
    nodes = {"x": [0.5, 1.5, 2.5], "y": [1.5, 2.5, 3.5], "a": [0.5] * 3, "a:b": [[0.5, 1.5]] * 3}
    path = tmp_path / "graphs.jsonl"
    path.write_text("".join(json.dumps({"edges": [[0, 1]], "nodes": nodes}) + "\n" for _ in range(20)))
    for target, task, names in (
        ("y", "graph-regression", ("x", "a", "a:b_0", "a:b_1")),
        ("a:b:1", "node-regression", ("x", "y", "a")),
        ("a:b", "node-regression", ("x", "y", "a")),
    ):
        assert Graphs(str(path), target=target, task=task, store=str(tmp_path / "store")).spec.node.names == names


# -- of whole graphs ------------------------------------------------------------------------------------------------


def in_a_solvent(number, **changed):
    """Return a path whose column y is its temperature."""
    graph = Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), y=torch.tensor([number / 7]))
    graph.temperature, graph.solvent, graph.both = number / 7, ("water", "air")[number % 2], torch.ones(1, 2)
    for name, value in changed.items():
        graph[name] = value
    return graph


def test_numbers_and_categories_of_whole_graphs_stand_beside_them():
    data = Graphs([in_a_solvent(n) for n in range(20)], target="y", graph_features=["solvent", "temperature"])
    assert data.spec.graph.names == ("solvent=air", "solvent=water", "temperature")
    assert [name for what, name, _ in data.summary() if what == "  left out"] == ["both"]
    data.prepare_data()
    data.setup("fit")
    table = data.tables["train"]
    values, y = table.columns["graph_dense"], table.columns["y"].reshape(-1)
    assert torch.equal(values[:, 2], y)
    water = (y * 7).round() % 2 == 0
    assert torch.equal(values[:, 1] == 1, water)
    assert torch.equal(values[:, 0] == 0, water)


def test_columns_of_whole_graphs_are_read_from_new_graphs():
    data = Graphs([in_a_solvent(n) for n in range(20)], target="y", graph_features=["solvent", "temperature"])
    new = [in_a_solvent(1), in_a_solvent(2, solvent="oil"), in_a_solvent(3, temperature=None), in_a_solvent(4)]
    parts = list(data.read_objects(new))
    assert [row for part in parts for row in part.rows] == [0, 3]
    assert sorted(parts[0].problems) == [1, 2]
    assert "solvent" in parts[0].problems[1]
    assert "temperature" in parts[0].problems[2]
    assert torch.equal(parts[0].table.columns["graph_dense"][:, :2], torch.tensor([[1.0, 0.0], [0.0, 1.0]]))


def test_a_model_learns_what_only_a_column_of_the_graph_says():
    torch.manual_seed(0)
    graphs = [in_a_solvent(n) for n in range(64)]
    options = {"model_options": {"hidden_dim": 16, "num_layers": 1}, "optimizer": partial(torch.optim.AdamW, lr=0.01)}
    module, data = build("GCN", Graphs(graphs, target="y", graph_features=["temperature"]), **options)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    Trainer(max_epochs=30, accelerator="cpu", **quiet).fit(module, data)
    (part,) = data.read_objects([in_a_solvent(n) for n in (5, 60)])
    batch = part.table.batch([0, 1])
    with torch.no_grad():
        low, high = module.task.predict(module.eval()(batch), batch)[0].flatten().tolist()
    # The graphs are alike, so without the column both predictions would be equal.
    assert high - low > (60 - 5) / 7 / 2


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"graph_features": ["y"]}, "target"),
        ({"graph_features": ["temprature"]}, "temperature"),
        ({"graph_features": ["temperature"], "group_column": "temperature", "split": "groups"}, "temperature"),
        ({"graph_features": ["temperature"], "target": "x", "task": "node-regression"}, "graph_features"),
    ],
)
def test_columns_of_whole_graphs_that_cannot_stand_beside_them_are_refused(options, word):
    with pytest.raises((BadInput, UnknownName), match=word):
        Graphs([in_a_solvent(n) for n in range(20)], **{"target": "y", **options})


def test_data_without_columns_of_whole_graphs_keep_the_key_of_earlier_runs():
    graphs = [in_a_solvent(n) for n in range(20)]
    plain, read = (Graphs(graphs, target="y", graph_features=names).source_key() for names in (None, ["temperature"]))
    assert len(plain["features"]) == 5  # nodes, edges, categorical, continuous, positions
    assert {name: value for name, value in read.items() if name != "graph_features"} == plain
