"""Links of one graph: PyG's split, shares of the edges, given negative pairs, and OGB's evaluators."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch_geometric.transforms as T
from ogb.linkproppred import Evaluator
from torch_geometric.data import Data
from torch_geometric.utils import erdos_renyi_graph, to_undirected

import graphbench
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks.link_ranking import LinkRanking

SPLITS = ("train", "val", "test")
NODES = 60


def whole_graph(seed=0):
    torch.manual_seed(seed)
    edges = to_undirected(erdos_renyi_graph(NODES, 0.15))
    return Data(x=torch.randn(NODES, 4), edge_index=edges, edge_attr=torch.randn(edges.shape[1], 2))


def opened(source, folder, **options):
    data = Graphs(source, root=str(folder), **options)
    data.setup()
    return data, {split: data.tables[split].batch([0]) for split in SPLITS}


def keys(pairs):
    """Return the set of pairs, in which a pair equals its reverse."""
    return {tuple(sorted(pair)) for pair in pairs.tolist()}


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize("labels", [False, True])
def test_the_split_of_pyg_is_taken_as_it_comes(tmp_path, file, labels):
    torch.manual_seed(0)
    parts = T.RandomLinkSplit(num_val=0.1, num_test=0.2, is_undirected=True, split_labels=labels)(whole_graph())
    source = parts
    if file:
        torch.save(parts, tmp_path / "links.pt")
        source = str(tmp_path / "links.pt")
    data, batches = opened(source, tmp_path / "data")
    assert (data.spec.task, data.spec.extra) == ("link-ranking", {"links": "edges", "negatives": "given"})
    for split, part in zip(SPLITS, parts, strict=True):
        true, wrong = (
            (part.pos_edge_label_index, part.neg_edge_label_index)
            if labels
            else (part.edge_label_index[:, part.edge_label == 1], part.edge_label_index[:, part.edge_label == 0])
        )
        assert batches[split].contact_index.tolist() == true.t().tolist()
        assert batches[split].negative_index.tolist() == wrong.t().tolist()
        assert torch.equal(batches[split].edge_index, part.edge_index)
        assert torch.equal(batches[split].edge_dense, part.edge_attr)


def test_edges_of_one_graph_are_shared_out_and_hidden(tmp_path):
    graph = whole_graph()
    every = keys(graph.edge_index.t())
    attribute = {tuple(edge): row for edge, row in zip(graph.edge_index.t().tolist(), graph.edge_attr, strict=True)}
    data, batches = opened(graph, tmp_path, task="link-ranking", fractions=(0.7, 0.1, 0.2))
    pairs = {split: keys(batches[split].contact_index) for split in SPLITS}
    assert set.union(*pairs.values()) == every
    assert sum(map(len, pairs.values())) == len(every)
    shares = np.array([len(pairs[split]) for split in SPLITS]) / len(every)
    assert shares == pytest.approx([0.7, 0.1, 0.2], abs=1 / len(every))
    assert keys(batches["train"].edge_index.t()) == keys(batches["val"].edge_index.t()) == pairs["train"]
    assert keys(batches["test"].edge_index.t()) == pairs["train"] | pairs["val"]
    for batch in batches.values():
        for edge, row in zip(batch.edge_index.t().tolist(), batch.edge_dense, strict=True):
            assert torch.equal(row, attribute[tuple(edge)])
    again, other = (opened(graph, tmp_path, task="link-ranking", split_seed=seed)[1] for seed in (0, 1))
    assert keys(again["test"].contact_index) != keys(other["test"].contact_index)
    assert "cut by fractions" in next(row[2] for row in data.summary() if row[0] == "split")
    with pytest.raises(BadInput, match="split=k-fold: links of one graph"):
        Graphs(graph, root=str(tmp_path), task="link-ranking", split="k-fold")
    with pytest.raises(BadInput, match=r"--data\.task link-ranking"):
        Graphs(graph, root=str(tmp_path))


def test_pairs_and_wrong_pairs_of_ones_own_are_all_used(tmp_path):
    graph = whole_graph()
    true = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]][:, :60]
    wrong = torch.stack([torch.arange(60) % NODES, (torch.arange(60) + 1) % NODES])
    graph.edge_label_index = torch.cat([true, wrong], 1)
    graph.edge_label = torch.tensor([1] * 60 + [0] * 60)
    data, batches = opened(graph, tmp_path)
    assert set.union(*(keys(batch.contact_index) for batch in batches.values())) == keys(true.t())
    assert set.union(*(keys(batch.negative_index) for batch in batches.values())) == keys(wrong.t())
    assert ("wrong pairs", "60") in [row[:2] for row in data.summary()]
    hidden = keys(batches["val"].contact_index) | keys(batches["test"].contact_index)
    assert not keys(batches["train"].edge_index.t()) & hidden
    graph.edge_label[0] = 3
    with pytest.raises(BadInput, match=r"edge_label holds \[3\]; expected 1 for true pairs and 0"):
        Graphs(graph, root=str(tmp_path))


def link_task(data):
    return LinkRanking(data.spec, dim=8, head=HeadConfig())


def scores_of(task, node, batch):
    metrics = task.build_metrics()
    task.update(metrics, node, batch)
    return {name: float(metric.compute()) for name, metric in metrics.items()}


def test_scores_beside_wrong_pairs_are_those_of_ogb(tmp_path):
    torch.manual_seed(0)
    parts = T.RandomLinkSplit(num_val=0.1, num_test=0.3, is_undirected=True, neg_sampling_ratio=2)(whole_graph())
    data, batches = opened(parts, tmp_path)
    batch = batches["test"]
    node = torch.randn(NODES, 8).round()  # integers, so that scores often tie
    found = scores_of(link_task(data), node, batch)
    true, wrong = (
        (node[pairs[:, 0]] * node[pairs[:, 1]]).sum(-1) for pairs in (batch.contact_index, batch.negative_index)
    )
    assert len(wrong) >= 100
    for name, k in (("ogbl-ddi", 20), ("ogbl-collab", 50), ("ogbl-ppa", 100)):
        right = Evaluator(name).eval({"y_pred_pos": true, "y_pred_neg": wrong})
        assert found[f"ogb_hits@{k}"] == pytest.approx(right[f"hits@{k}"])
    ranks = {"y_pred_pos": true, "y_pred_neg": wrong.expand(len(true), -1)}
    assert found["ogb_MRR"] == pytest.approx(float(Evaluator("ogbl-citation2").eval(ranks)["mrr_list"].mean()))
    assert np.isnan(scores_of(link_task(data), node, batches["val"])["ogb_hits@100"]), "fewer than 100 negative pairs"
    task = link_task(data)
    for name, metric in task.build_metrics().items():  # training computes only some
        task.update({name: metric}, node, batch)
        assert float(metric.compute()) == found[name]


def test_filtered_ranking_leaves_training_edges_out(tmp_path):
    data, batches = opened(whole_graph(), tmp_path, task="link-ranking")
    batch = batches["test"]
    node = torch.randn(NODES, 8)
    scores = node @ node.t()
    known = torch.zeros(NODES, NODES, dtype=torch.bool)
    for pairs in (batch.edge_index.t(), batch.contact_index):
        known[pairs[:, 0], pairs[:, 1]] = known[pairs[:, 1], pairs[:, 0]] = True
    inverse = []
    for head, tail in [*batch.contact_index.tolist(), *batch.contact_index.flip(1).tolist()]:
        rivals = ~known[head]
        rivals[tail] = False
        inverse.append(1 / (1 + int((scores[head][rivals] > scores[head, tail]).sum())))
    assert scores_of(link_task(data), node, batch)["filtered_MRR"] == pytest.approx(np.mean(inverse), rel=1e-5)


def test_training_takes_the_wrong_pairs_that_are_given(tmp_path):
    torch.manual_seed(0)
    data, batches = opened(T.RandomLinkSplit(is_undirected=True)(whole_graph()), tmp_path)
    task, batch = link_task(data), batches["train"]
    node = torch.randn(NODES, 8)
    total, count = task.terms(node, batch)
    scores, labels = [], []
    for pairs, label in ((batch.contact_index, 1.0), (batch.negative_index, 0.0)):
        for head, tail in keys(pairs):
            scores += [node[head] @ node[tail]] * 2  # both directions
            labels += [label] * 2
    right = torch.nn.functional.binary_cross_entropy_with_logits(torch.stack(scores), torch.tensor(labels))
    assert float(total / count) == pytest.approx(float(right), rel=1e-5)


def test_a_model_learns_links_of_one_graph(tmp_path):
    """Its loss falls below 0.9 ln 2; scores of 0 have ln 2."""
    data = Graphs(whole_graph(), root=str(tmp_path), task="link-ranking")
    module, data = graphbench.build("GCN", data, model_options={"hidden_dim": 16, "num_layers": 1})
    data.prepare_data()
    data.setup()
    batch = next(iter(data.train_dataloader()))
    optimizer, losses = torch.optim.Adam(module.parameters(), lr=0.02), []
    for _ in range(60):
        loss = module.training_step(batch, 0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.9 * math.log(2)


def tables(folder, links):
    """Write a graph of named nodes with a split of its links, in the table `links` or else in that of the edges."""
    names = [f"node {number}" for number in range(NODES)]
    ends = np.unique(np.sort(whole_graph().edge_index.T.numpy(), axis=1), axis=0)
    split = np.resize(["train", "train", "Valid", "test", ""], len(ends))
    edges = pd.DataFrame({"source": [names[a] for a, _ in ends], "target": [names[b] for _, b in ends]})
    folder.mkdir()
    pd.DataFrame({"node": names, "size": np.arange(NODES) / 7}).to_csv(folder / "nodes.csv", index=False)
    listed = edges.assign(split=split)
    (edges if links else listed).to_csv(folder / "edges.csv", index=False)
    if links:
        swapped = listed.rename(columns={"source": "target", "target": "source"})
        swapped.to_csv(folder / "links.csv", index=False)
    return ends, split


@pytest.mark.parametrize("links", [False, True])
def test_a_column_of_the_table_says_where_each_link_belongs(tmp_path, links):
    ends, split = tables(tmp_path / "tables", links)
    _, batches = opened(str(tmp_path / "tables"), tmp_path / "store", task="link-ranking")
    of = {name: keys(ends[split == word]) for name, word in zip(SPLITS, ("train", "Valid", "test"), strict=True)}
    for name, batch in batches.items():
        assert keys(batch.contact_index) == of[name]
        assert not keys(batch.edge_index.T) & (of["test"] | (of["val"] if name != "test" else set()))
    _, cut = opened(str(tmp_path / "tables"), tmp_path / "store", task="link-ranking", split="random")
    assert keys(cut["test"].contact_index) != of["test"]


@pytest.mark.parametrize("case", ["twice", "word", "absent", "unread"])
def test_a_split_of_links_that_does_not_hold_is_refused_with_its_line(tmp_path, case):
    folder = tmp_path / "tables"
    tables(folder, links=True)
    table = pd.read_csv(folder / "links.csv", keep_default_na=False)
    if case == "twice":  # the first pair reversed, in another split
        table.loc[len(table)] = [table.target[0], table.source[0], "test"]
    table.loc[1, "split"] = {"word": "tset"}.get(case, table.split[1])
    table = table.assign(weight=1.0) if case == "unread" else table
    table = table[table.split != "test"] if case == "absent" else table
    table.to_csv(folder / "links.csv", index=False)
    told = {
        "twice": rf"line {len(table) + 1}\b.*test.*train",
        "word": "line 3.*tset",
        "absent": "test",
        "unread": "weight",
    }
    with pytest.raises(BadInput, match=told[case]):
        opened(str(folder), tmp_path / "store", task="link-ranking")
