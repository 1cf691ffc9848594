"""Parts of one graph against the whole: their nodes, edges, features and targets."""

from __future__ import annotations

import sys

import pytest
import torch
from own_graphs import NODES, large_graph

import graphbench
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.benchmarks.graphs.by_nodes import batches as cutting
from graphbench.errors import BadInput


@pytest.fixture
def metis():
    """Skip the test if METIS is not installed."""
    pytest.importorskip("pymetis")


def opened(folder, graph=None, **options):
    data = Graphs(graph or large_graph(), store=str(folder), node_features=["x", "kind"], seed=3, **options)
    data.setup()
    return data


def batches(loader, epoch=0):
    loader.set_epoch(epoch)
    return list(loader)


def check_part(batch, data, split):
    """Check that the rows of a part are those of its nodes and edges in the whole graph."""
    whole = data.tables[split].batch([0])
    nodes = batch.node_id
    assert len(nodes.unique()) == len(nodes) == batch.num_nodes == batch.max_nodes
    assert torch.equal(batch.x_dense, whole.x_dense[nodes])
    assert torch.equal(batch.x, whole.x[nodes])
    assert torch.equal(batch.y[batch.asked], whole.y[nodes[batch.asked]])
    assert (batch.y[~batch.asked] == -1).all()
    ends = {tuple(pair): row for row, pair in enumerate(whole.edge_index.t().tolist())}
    rows = torch.tensor([ends[tuple(pair)] for pair in nodes[batch.edge_index].t().tolist()], dtype=torch.int64)
    assert torch.equal(batch.edge_dense, whole.edge_dense[rows])
    assert len(rows.unique()) == len(rows)
    return nodes, rows, whole


def test_random_parts_hold_every_node_once_and_all_edges_within(tmp_path):
    data = opened(tmp_path, sampler="random", num_parts=4)
    seen = []
    for epoch in (0, 1):
        parts = batches(data.train_dataloader(), epoch)
        assert sorted(torch.cat([part.node_id for part in parts]).tolist()) == list(range(NODES))
        assert max(part.num_nodes for part in parts) == 23
        for part in parts:
            nodes, rows, whole = check_part(part, data, "train")
            inside = torch.isin(whole.edge_index, nodes).all(0)
            assert sorted(rows.tolist()) == inside.nonzero()[:, 0].tolist()
            assert part.asked.all()
        seen.append({frozenset(part.node_id.tolist()) for part in parts})
    assert not seen[0] & seen[1], "another epoch has other parts"
    again = opened(tmp_path, sampler="random", num_parts=4)
    assert {frozenset(p.node_id.tolist()) for p in batches(again.train_dataloader(), 1)} == seen[1]


def test_an_epoch_goes_on_where_it_was_left(tmp_path):
    data = opened(tmp_path, sampler="random", num_parts=6)
    whole = [part.node_id.tolist() for part in batches(data.train_dataloader(), 2)]
    loader = data.train_dataloader()
    loader.set_epoch(2)
    running = iter(loader)
    first = [next(running).node_id.tolist() for _ in range(2)]
    rest = data.train_dataloader()
    rest.load_state_dict(loader.state_dict())
    assert first + [part.node_id.tolist() for part in rest] == whole


def test_parts_come_from_workers_as_well(tmp_path):
    here = batches(opened(tmp_path, sampler="random", num_parts=3).train_dataloader())
    data = opened(tmp_path, sampler="random", num_parts=3, num_workers=1)
    there = batches(data.train_dataloader())
    data.teardown("fit")
    for own, other in zip(here, there, strict=True):
        assert own.to_dict().keys() == other.to_dict().keys()
        assert all(torch.equal(own[name], other[name]) for name in own.to_dict() if torch.is_tensor(own[name]))


def test_without_metis_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    data = opened(tmp_path, sampler="clusters", num_parts=4)
    with pytest.raises(BadInput, match=r"sampler clusters: METIS .* use data.sampler random or neighbors"):
        data.train_dataloader()
    assert len(batches(data.test_dataloader())) == 1, "evaluation of the whole graph needs no library"


def test_encodings_of_pairs_are_for_whole_graphs(tmp_path):
    data = Graphs(large_graph(), store=str(tmp_path), sampler="random", num_parts=4)
    data.require([graphbench.registry.load("encodings", "EffectiveResistance")()])
    data.setup()
    assert batches(data.val_dataloader())[0].effective_resistance.shape[0] == NODES**2
    with pytest.raises(BadInput, match="sampler random: effective_resistance has a row for each pair"):
        data.train_dataloader()


def test_neighbours_are_sampled_and_every_training_node_is_asked_once(tmp_path):
    data = opened(tmp_path, sampler="neighbors", num_neighbors=[3, 2], batch_size=10)
    state = torch.get_rng_state()
    known = cutting.labelled_nodes(data.tables["train"].columns["y"])
    for epoch in (0, 1):
        parts = batches(data.train_dataloader(), epoch)
        asked = torch.cat([part.node_id[part.asked] for part in parts])
        assert sorted(asked.tolist()) == known.tolist()
        for part in parts:
            check_part(part, data, "train")
            incoming = part.edge_index[1].bincount(minlength=part.num_nodes)
            assert incoming[part.asked].max() <= 3
            assert incoming.max() <= 3
    assert torch.equal(torch.get_rng_state(), state), "the global generator does not advance"
    again = batches(opened(tmp_path, sampler="neighbors", num_neighbors=[3, 2], batch_size=10).train_dataloader(), 1)
    assert all(torch.equal(one.node_id, other.node_id) for one, other in zip(parts, again, strict=True))


def test_all_neighbours_give_the_answers_of_the_whole_graph(tmp_path):
    data = opened(tmp_path, sampler="neighbors", eval_sampler="neighbors", num_neighbors=[2, 2], eval_batch_size=7)
    data.train_dataloader()  # with few neighbours
    options = {"hidden_dim": 8, "num_layers": 2}
    module, data = graphbench.build("GraphSAGE", data, model_options=options)
    module.eval()
    whole = data.tables["test"].batch([0])
    expected = module(whole).detach()
    answers = [module.predict_step(part, 0) for part in batches(data.predict_dataloader())]
    found = {name: torch.cat([answer[name] for answer in answers]).detach() for name in answers[0]}
    assert len(answers) == 13
    assert found["node"].tolist() == list(range(NODES)), "every node once"
    assert torch.allclose(found["prediction"], expected.softmax(1), atol=1e-5)
    assert torch.equal(found["target"], whole.y)
    for part in batches(data.test_dataloader()):
        module.evaluate(part, "test")
    sampled = {name: value.item() for name, value in module.scores.of("test").finish().items()}
    module.evaluate(whole, "test")
    exact = {name: value.item() for name, value in module.scores.of("test").finish().items()}
    assert exact == pytest.approx(sampled, abs=1e-5)


def test_clusters_hold_every_node_once_and_all_edges_within(tmp_path, metis):
    data = opened(tmp_path, sampler="clusters", num_parts=9, batch_size=3)
    parts = batches(data.train_dataloader())
    assert len(parts) == 3
    assert sorted(torch.cat([part.node_id for part in parts]).tolist()) == list(range(NODES))
    for part in parts:
        nodes, rows, whole = check_part(part, data, "train")
        inside = torch.isin(whole.edge_index, nodes).all(0)
        assert sorted(rows.tolist()) == inside.nonzero()[:, 0].tolist()


def test_clusters_need_edges_both_ways(tmp_path, metis):
    graph = large_graph()
    graph.edge_index, graph.edge_attr = graph.edge_index[:, :50], graph.edge_attr[:50]
    data = opened(tmp_path, graph, sampler="clusters", num_parts=4)
    with pytest.raises(BadInput, match="METIS needs edges in both directions"):
        data.train_dataloader()


def test_every_node_belongs_to_one_process_and_those_with_a_target_are_dealt_evenly():
    targets = torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan], [2.0, 3.0], [torch.nan, 4.0]])
    shares = [cutting.nodes_of_rank(targets, rank, 2) for rank in (0, 1)]
    assert [share.nonzero()[:, 0].tolist() for share in shares] == [[0, 3], [1, 2]]
    known = [cutting.mask_targets(targets, share) for share in shares]
    assert [cutting.labelled_nodes(one).tolist() for one in known] == [[0, 3], [2]]
    assert torch.equal(known[0].nan_to_num(0) + known[1].nan_to_num(0), targets.nan_to_num(0))
