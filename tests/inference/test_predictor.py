"""A `Predictor` without a run: answers of untrained models against the module itself."""

from __future__ import annotations

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_networkx

from graphbench import build
from graphbench.benchmarks import CSL, TSP, ZINC, QM9Contacts
from graphbench.benchmarks.base import GraphBenchmark
from graphbench.contracts import BenchmarkSpec, Features, GraphTable
from graphbench.data import encode
from graphbench.errors import BadInput
from graphbench.inference import Ensemble
from graphbench.inference.predictor import Predictor
from graphbench.nn import RWSEEncoder

SIZES = (3, 9, 5, 7)


class Toy(GraphBenchmark):
    """Graphs whose nodes have one categorical and two dense columns."""

    spec = BenchmarkSpec(
        name="Toy",
        task="node-classification",
        node=Features((4,), 2),
        edge=Features(dense=1),
        metric="accuracy",
        higher_is_better=True,
        loss="cross_entropy",
        num_classes=3,
        target_names=("red", "green", "blue"),
    )

    def source_key(self):
        return {}

    def read(self):
        raise AssertionError("a predictor never reads the data of the fit")


def graphs():
    """Return rings with PyG's names for fields."""
    generator = torch.Generator().manual_seed(3)
    found = []
    for size in SIZES:
        edges = torch.tensor([(i, (i + 1) % size) for i in range(size)]).t()
        edges = torch.cat([edges, edges.flip(0)], 1)
        x = torch.randint(4, (size, 1), generator=generator)
        dense = torch.rand(size, 2, generator=generator)
        found.append(Data(x=x, x_dense=dense, edge_index=edges, edge_attr=torch.ones(2 * size, 1)))
    return found


def predictor(benchmark, **options):
    torch.manual_seed(0)
    encoder = RWSEEncoder(dim=4, num_steps=3)
    model = {"hidden_dim": 16, "num_layers": 2}
    module, data = build("GPS", benchmark, model_options=model, positional_encoding=encoder)
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    return Predictor(module, data, None, trainer, **options)


def alone(found, graph):
    """Return the module's answer to one graph, from a batch built by hand."""
    fields = {"num_nodes": graph.num_nodes, "edge_index": graph.edge_index, "x": graph.x, "x_dense": graph.x_dense}
    table = GraphTable.from_graphs([{**fields, "edge_dense": graph.edge_attr}])
    for encoding in found.data.encodings:
        encoded = encoding.compute(table)
        table = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    with torch.no_grad():
        return found.module(table.batch([0])).softmax(1)


def test_nodes_get_a_row_each_with_the_answer_to_their_graph_alone():
    found = predictor(Toy(), batch_size=2)
    frame = found.predict(graphs())
    assert list(frame.columns) == [
        "node", "prediction_class", "probability_red", "probability_green", "probability_blue", "problem",
    ]  # fmt: skip
    assert frame["node"].tolist() == [node for size in SIZES for node in range(size)]
    expected = torch.cat([alone(found, graph) for graph in graphs()])
    given = frame[["probability_red", "probability_green", "probability_blue"]].to_numpy(dtype="float32", copy=True)
    assert torch.allclose(torch.from_numpy(given), expected, atol=1e-6)
    names = [("red", "green", "blue")[k] for k in expected.argmax(1).tolist()]
    assert frame["prediction_class"].tolist() == names


def test_answers_are_those_of_evaluation_whatever_mode_training_left():
    """All parts but one are in training mode, and each part keeps its mode."""
    found = predictor(Toy(), batch_size=2)
    expected = found.predict(graphs()), found.embed(graphs(), level="node")
    module = found.module.train()
    module.task.eval()
    modes = [part.training for part in module.modules()]
    pd.testing.assert_frame_equal(found.predict(graphs()), expected[0])
    pd.testing.assert_frame_equal(found.embed(graphs(), level="node"), expected[1])
    module.predict(graphs())
    assert [part.training for part in module.modules()] == modes


def test_a_graph_that_does_not_fit_is_a_row_with_a_problem_between_the_others():
    found = predictor(Toy())
    broken = graphs()
    broken[1].x[2] = 4
    broken[2].edge_index[0, 0] = 99
    broken.append(Data(num_nodes=0, edge_index=torch.empty(2, 0, dtype=torch.int64)))
    frame = found.predict(broken)
    told = frame[frame["problem"] != ""]
    assert "outside 0 .. 3 in x" in told["problem"].iloc[0]
    assert "an edge to a node that it does not have" in told["problem"].iloc[1]
    assert told["problem"].iloc[2] == "the graph has no nodes"
    assert told[["node", "prediction_class"]].isna().to_numpy().all()
    assert len(frame) == SIZES[0] + 1 + 1 + SIZES[3] + 1
    whole = found.predict(graphs())
    last = frame[frame["problem"] == ""]["probability_red"].to_numpy()[SIZES[0] :]
    assert last == pytest.approx(whole["probability_red"].to_numpy()[-SIZES[3] :], abs=1e-6)


def test_networkx_graphs_are_those_of_pyg():
    found = predictor(Toy())
    data = graphs()[1]
    graph = to_networkx(data, node_attrs=["x", "x_dense"], edge_attrs=["edge_attr"], to_undirected=True)
    assert isinstance(graph, nx.Graph)
    expected = found.predict(data)["probability_blue"].to_numpy()
    assert found.predict([graph])["probability_blue"].to_numpy() == pytest.approx(expected, abs=1e-6)


def test_representations_are_what_the_model_makes():
    found = predictor(Toy(), batch_size=3)
    nodes = found.embed(graphs(), level="node")
    assert nodes["node"].tolist() == [node for size in SIZES for node in range(size)]
    with pytest.raises(BadInput, match="Use --level node"):
        found.embed(graphs())
    with pytest.raises(BadInput, match="level must be one of graph, node"):
        found.embed(graphs(), level="edge")
    zinc = predictor(ZINC())
    per_node = zinc.embed(["CCO", "C1CC", "CCCCN"], level="node")
    whole = zinc.embed(["CCO", "C1CC", "CCCCN"])
    columns = [f"embedding_{number}" for number in range(16)]
    means = per_node[per_node["problem"] == ""].groupby("smiles", sort=False)[columns].mean()
    assert whole[columns].to_numpy()[[0, 2]] == pytest.approx(means.to_numpy(), abs=1e-6)
    assert whole["problem"][1].startswith("RDKit cannot read the molecule")


def test_a_failed_encoding_is_the_problem_of_its_graph(monkeypatch):
    found = predictor(Toy())
    encoding = type(found.data.encodings[0])
    compute = encoding.compute

    def fails_on_five(self, graphs):
        if bool((graphs.num_nodes == 5).any()):
            raise ValueError("five is too odd")
        return compute(self, graphs)

    expected = found.predict(graphs())
    monkeypatch.setattr(encoding, "compute", fails_on_five)
    frame = found.predict(graphs())
    assert frame[frame["problem"] != ""]["problem"].tolist() == ["five is too odd"]
    kept = expected["probability_red"].drop(2).to_numpy()  # without the nodes of the third graph
    assert frame[frame["problem"] == ""]["probability_red"].to_numpy() == pytest.approx(kept, abs=1e-6)


@pytest.mark.parametrize("members", [1, 2])
def test_encodings_of_pairs_of_a_whole_part_are_not_held_at_once(monkeypatch, members):
    torch.manual_seed(0)
    module, data = build("GRIT", Toy(), model_options={"hidden_dim": 16, "num_layers": 1})
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    found = Ensemble([Predictor(module, data, None, trainer)] * members)
    expected, sizes = found.predict(graphs()), []
    encoding = next(one for one in data.encodings if "pair" in {column.axis for column in one.layout.values()})
    compute = type(encoding).compute
    monkeypatch.setattr(
        type(encoding), "compute", lambda self, part: sizes.append(part.num_nodes.tolist()) or compute(self, part)
    )
    monkeypatch.setattr(encode, "MOST_PAIRS", 100)  # the second graph has 81
    frame = found.predict(graphs())
    assert sizes == [[3], [9], [5, 7]] * members
    numbers = [column for column in frame if column.startswith("probability")]
    assert frame[numbers].to_numpy() == pytest.approx(expected[numbers].to_numpy(), abs=1e-6)
    assert frame["node"].equals(expected["node"])
    assert (frame["problem"] == "").all()


def test_an_answer_that_is_no_number_is_a_problem(monkeypatch):
    found = predictor(ZINC())
    found.module.task.offset.fill_(torch.nan)
    frame = found.predict(["CCO"])
    assert frame["problem"].tolist() == ["the model's answer is not a finite number"]
    assert pd.isna(frame["prediction_penalized_logp"][0])


def test_what_cannot_be_predicted_is_refused_by_name():
    pairs = QM9Contacts()
    module, data = build("GPS", pairs, model_options={"hidden_dim": 16, "num_layers": 1})
    trainer = pl.Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(BadInput, match="QM9Contacts cannot predict new inputs: link-ranking"):
        Predictor(module, data, None, trainer).predict(["CCO"])
    with pytest.raises(BadInput, match="batch_size must be an integer of at least 1"):
        Predictor(module, data, None, trainer, batch_size=0)
    zinc = predictor(ZINC())
    with pytest.raises(BadInput, match="input 1 is of type int; expected SMILES"):
        zinc.predict(["CCO", 3])
    with pytest.raises(BadInput, match="the list is empty"):
        zinc.predict([])
    with pytest.raises(BadInput, match="not a whole DataFrame"):
        zinc.predict(pd.DataFrame({"smiles": ["CCO"]}))
    with pytest.raises(BadInput, match="not a whole dict"):
        zinc.predict({"smiles": ["CCO"]})
    assert len(zinc.predict(pd.Series(["CCO", None]))) == 2
    with pytest.raises(BadInput, match="CSL cannot read new inputs"):
        CSL().read_input("graphs.json")


def test_batches_are_not_taken_for_one_graph():
    found = predictor(CSL())
    several = Batch.from_data_list([Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)] * 3)
    bare = Data.from_dict({name: value for name, value in several.to_dict().items() if name != "ptr"})
    for batch in (several, bare):
        for given in (batch, [batch]):
            (problem,) = found.predict(given)["problem"]
            assert "batch of 3 graphs" in problem
    assert list(found.predict(several.to_data_list())["problem"]) == [""] * 3


@pytest.mark.parametrize("missing", [None, float("nan"), np.float64("nan"), pd.NA])
def test_empty_cells_are_rows_however_a_column_is_given(missing):
    zinc, column = predictor(ZINC()), pd.Series(["CCO", missing, "CC"], dtype=object)
    expected = zinc.predict(column)
    assert list(expected["problem"].map(bool)) == [False, True, False]
    for given in (column.tolist(), column.to_numpy(), tuple(column), iter(column)):
        pd.testing.assert_frame_equal(zinc.predict(given), expected)
    assert len(zinc.predict(np.array("CCO"))) == 1


def test_answers_join_the_table_that_a_column_came_from():
    zinc = predictor(ZINC())
    frame = pd.DataFrame({"smiles": ["CCO", "CC", "CCN", "CCC"], "wanted": [False, True, False, True]})
    chosen = frame[frame["wanted"]]
    expected = zinc.predict(["CC", "CCC"])
    for table, answer in ((zinc, expected), (Ensemble([zinc, zinc]), expected)):
        joined = chosen.join(table.predict(chosen["smiles"]).rename(columns={"smiles": "again"}))
        assert list(joined["again"]) == ["CC", "CCC"]
        column = next(name for name in answer if name.startswith("prediction"))
        assert np.allclose(joined[column], answer[column])
    assert list(zinc.embed(chosen["smiles"]).index) == [1, 3]


def test_rows_of_nodes_and_edges_say_which_input_they_are_of(monkeypatch):
    given = graphs()
    expected = [number for number, graph in enumerate(given) for _ in range(graph.num_nodes)]
    found = predictor(Toy())
    whole = found.data.read_objects
    monkeypatch.setattr(found.data, "read_objects", lambda objects: whole(objects, 2))  # in parts
    assert found.predict(given).index.tolist() == expected
    assert found.embed(given, level="node").index.tolist() == expected
    labels = pd.Series(given, index=list("abcd"))
    assert found.predict(labels).index.tolist() == ["abcd"[number] for number in expected]
    torn = [given[0], Data(num_nodes=1), given[2]]
    assert found.predict(torn).index.tolist() == [0] * 3 + [1] + [2] * 5


def test_a_graph_without_edges_is_a_row_of_a_task_on_edges():
    pair = torch.tensor([[0, 1], [1, 0]])
    given = [
        Data(x=torch.rand(size, 2), edge_index=pair[:, :edges], edge_attr=torch.rand(edges, 1))
        for size, edges in ((2, 2), (1, 0), (2, 2))
    ]
    for of in (predictor(TSP()), Ensemble([predictor(TSP()), predictor(TSP())])):
        found = of.predict(given)
        assert found.index.tolist() == [0, 0, 1, 2, 2]
        assert found["problem"].tolist() == ["", "", "the graph has no edges", "", ""]
        assert found["source"].isna().tolist() == [False, False, True, False, False]
        assert of.predict(Data(num_nodes=1))["problem"].map(bool).tolist() == [True]  # the graph cannot be read


def test_several_models_answer_a_target_in_log10_by_their_geometric_mean():
    spec = SimpleNamespace(log10_targets=(True, False))
    task = SimpleNamespace(spread=None, spread_names=("q0.1",))
    model = SimpleNamespace(module=SimpleNamespace(task=task, spec=spec))
    values = np.array([[[1.0, 1.0, 1.0, 1.0]], [[100.0, 100.0, 4.0, 100.0]]])
    np.testing.assert_allclose(Predictor.pooled(model, values), [[10.0, 50.5, 2.0, 50.5]])
