"""Ranks compared with a plain loop over pairs and nodes, negatives with their definition."""

import copy
import dataclasses

import pytest
import torch

from graphbench.contracts import BenchmarkSpec, Column, Features, GraphTable, Representation
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.training.tasks import build_task, link_ranking
from graphbench.training.tasks.link_ranking import NEGATIVES, both_directions, sample_negatives, tail_ranks

SPEC = BenchmarkSpec(
    "Contacts", "link-ranking", Features((3,)), Features(), metric="MRR", higher_is_better=True, loss="contrastive_BCE"
)
PAIRS = ([(0, 3), (1, 4), (0, 4)], [(2, 0)], [(5, 1), (1, 2), (0, 6), (5, 3)], [])
SIZES = (5, 3, 7, 2)


@pytest.fixture(scope="module")
def batch():
    graphs = [
        {
            "num_nodes": n,
            "edge_index": torch.zeros(2, 0, dtype=torch.int64),
            "contact_index": torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
        }
        for n, pairs in zip(SIZES, PAIRS, strict=True)
    ]
    table = GraphTable.from_graphs(graphs, {"contact_index": Column("contact", index_of="node")})
    return table.batch(range(len(graphs)))


def loop_ranks(node, pairs, batch, filtered, self_counts, known=()):
    true = {tuple(pair) for pair in [*pairs.tolist(), *known]}
    ranks = []
    for head, tail in pairs.tolist():
        graph = int(batch.batch[head])
        own, rank = float(node[head] @ node[tail]), 1.0
        for candidate in range(int(batch.ptr[graph]), int(batch.ptr[graph + 1])):
            left_out = (
                candidate == tail or (filtered and (head, candidate) in true) or (not self_counts and candidate == head)
            )
            if not left_out:
                score = float(node[head] @ node[candidate])
                rank += 1.0 if score > own else 0.5 if score == own else 0.0
        ranks.append(rank)
    return torch.tensor(ranks, dtype=node.dtype)


@pytest.mark.parametrize("most_scores", [1, 60, link_ranking._MOST_SCORES])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("with_known", [False, True])
def test_ranks_agree_with_a_loop(batch, ties, with_known, most_scores, monkeypatch):
    monkeypatch.setattr(link_ranking, "_MOST_SCORES", most_scores)
    node = torch.randn(batch.num_nodes, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if ties:
        node = node.sign()
    pairs = both_directions(batch.contact_index)
    assert len(pairs) == 2 * sum(map(len, PAIRS))
    known = [(0, 1), (0, 1), (0, 3), (1, 1), (12, 9), (14, 14)] if with_known else []  # some twice, loops, and pairs
    found = tail_ranks(node, pairs, batch, torch.tensor(known).reshape(-1, 2) if with_known else None)
    for ranks, options in zip(found, ((False, True), (True, True), (True, False)), strict=True):
        assert torch.equal(ranks, loop_ranks(node, pairs, batch, *options, known))


def test_true_tails_are_not_searched_for_among_all_nodes(monkeypatch):
    """Searching for every pair of a head and a node took four times as long as their scores."""
    looked_up = []
    contains = link_ranking._contains
    monkeypatch.setattr(
        link_ranking, "_contains", lambda true, keys: [looked_up.append(keys.numel()), contains(true, keys)][1]
    )
    ring = torch.arange(500)
    graph = {"num_nodes": 500, "edge_index": torch.stack((ring, ring.roll(1)))}
    graph["contact_index"] = torch.stack((ring, ring.roll(2)), 1)
    batch = GraphTable.from_graphs([graph], {"contact_index": Column("contact", index_of="node")}).batch([0])
    task = build_task(dataclasses.replace(SPEC, extra={"links": "edges"}), 4, HeadConfig(num_layers=1))
    task.update(task.build_metrics(), torch.randn(500, 4), batch)
    assert sum(looked_up) <= 1000  # one for each of the pairs


def test_training_ranks_some_links_of_a_large_graph(monkeypatch, caplog):
    """Ranks of all training links among all nodes take time with the square of a graph, in every step."""
    monkeypatch.setattr(link_ranking, "_TRAINING_SCORES", 5000)
    ring = torch.arange(300)
    graph = {"num_nodes": 300, "edge_index": torch.stack((ring, ring.roll(1)))}
    graph["contact_index"] = torch.stack((ring, ring.roll(2)), 1)
    batch = GraphTable.from_graphs([graph], {"contact_index": Column("contact", index_of="node")}).batch([0])
    task, node = build_task(SPEC, 4, HeadConfig(num_layers=1)), torch.randn(300, 4)
    found, ranked = [], []
    rank = link_ranking.tail_ranks
    monkeypatch.setattr(
        link_ranking, "tail_ranks", lambda node, pairs, *rest: [ranked.append(pairs), rank(node, pairs, *rest)][1]
    )
    caplog.set_level("INFO")
    for training in (True, False):
        metrics = task.train(training).build_metrics()
        task.update(metrics, node, batch)
        found.append({name: float(metric.compute()) for name, metric in metrics.items()})
    assert [len(pairs) for pairs in ranked] == [17, 600]
    assert "1 in 37 training links" in caplog.text
    some = rank(node, both_directions(batch.contact_index), batch)
    chosen = [(both_directions(batch.contact_index) == pair).all(1).nonzero().item() for pair in ranked[0]]
    assert found[0]["filtered_MRR"] == pytest.approx(float((1 / some.filtered[chosen]).mean()), rel=1e-6)
    assert found[1]["filtered_MRR"] == pytest.approx(float((1 / some.filtered).mean()), rel=1e-6)


def test_equal_nodes_share_the_mean_rank_in_a_graph_of_any_size():
    """A product of matrices may round its last columns differently."""
    for size in (17, 203):
        graph = {"num_nodes": size, "edge_index": torch.zeros(2, 0, dtype=torch.int64)}
        graph["contact_index"] = torch.tensor([[0, 1], [size - 2, size - 1]])
        batch = GraphTable.from_graphs([graph], {"contact_index": Column("contact", index_of="node")}).batch([0])
        pairs = both_directions(batch.contact_index)
        node = torch.randn(5, generator=torch.Generator().manual_seed(size)).repeat(size, 1)
        for kind in (torch.float32, torch.float64):
            assert tail_ranks(node.to(kind), pairs, batch).raw.tolist() == [(size + 1) / 2] * 4


def test_metrics_are_means_over_graphs_with_pairs(batch):
    task = build_task(SPEC, 4, HeadConfig(num_layers=1))
    node = torch.randn(batch.num_nodes, 4, generator=torch.Generator().manual_seed(1))
    output = task(Representation(node), batch).detach()
    metrics = task.build_metrics()
    task.update(metrics, output, batch)
    pairs = both_directions(batch.contact_index)
    for name, filtered, self_counts in (
        ("MRR", False, True),
        ("filtered_MRR", True, True),
        ("filtered_no_self_MRR", True, False),
    ):
        ranks = loop_ranks(output, pairs, batch, filtered, self_counts)
        graphs = [(1 / ranks[batch.batch[pairs[:, 0]] == g]).mean() for g in range(3)]
        assert metrics[name].compute().item() == pytest.approx(torch.stack(graphs).mean().item(), rel=1e-6)
    raw = loop_ranks(output, pairs, batch, False, True)
    hits = [(raw[batch.batch[pairs[:, 0]] == g] <= 3).float().mean() for g in range(3)]
    assert metrics["hits@3"].compute().item() == pytest.approx(torch.stack(hits).mean().item())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_scores_that_are_told_rank_as_those_that_are_scored(batch, kind):
    """Scores are float32 if outputs are bfloat16, whose 8 bits would cause ties; float64 stays."""
    task = build_task(SPEC, 64, HeadConfig(num_layers=1))
    output = torch.randn(batch.num_nodes, 64, generator=torch.Generator().manual_seed(3)).to(kind)
    told, _ = task.predict(output, batch)
    head, tail = batch.contact_index.t()
    wide = torch.float32 if kind is torch.bfloat16 else kind
    assert told.dtype == wide
    torch.testing.assert_close(told[:, 0], (output[head].to(wide) * output[tail].to(wide)).sum(1))


def test_a_link_that_is_given_twice_or_reversed_is_ranked_once(batch):
    node = torch.randn(batch.num_nodes, 4, generator=torch.Generator().manual_seed(4))
    repeated = copy.copy(batch)
    repeated.contact_index = torch.cat([batch.contact_index, batch.contact_index[:2], batch.contact_index[1:4].flip(1)])
    task, found = build_task(SPEC, 4, HeadConfig(num_layers=1)), []
    for links in (batch, repeated):
        metrics = task.build_metrics()
        task.update(metrics, node, links)
        found.append({name: metric.compute() for name, metric in metrics.items()})
    assert found[0] == found[1]


def test_negatives_are_wrong_tails_of_the_same_graph(batch):
    pairs = both_directions(batch.contact_index)
    true = {tuple(pair) for pair in pairs.tolist()}
    seen = set()
    for seed in range(300):
        drawn = [tuple(pair) for pair in sample_negatives(pairs, batch, seed).tolist()]
        assert len(drawn) == len(set(drawn)) <= NEGATIVES * len(pairs)
        assert not true & set(drawn)
        seen.update(drawn)
    heads = set(pairs[:, 0].tolist())
    possible = {
        (head, tail)
        for head in heads
        for tail in range(int(batch.num_nodes))
        if batch.batch[head] == batch.batch[tail] and (head, tail) not in true
    }
    assert seen == possible


def test_loss_is_cross_entropy_of_true_and_drawn_pairs(batch):
    task = build_task(SPEC, 4, HeadConfig(num_layers=1))
    output = torch.randn(batch.num_nodes, 4, generator=torch.Generator().manual_seed(2))
    true = both_directions(batch.contact_index)
    torch.manual_seed(5)
    task.step = 7
    wrong = sample_negatives(true, batch, 5 + 7)
    score = [torch.sigmoid((output[p[:, 0]] * output[p[:, 1]]).sum(1).double()) for p in (true, wrong)]
    expected = -torch.cat((score[0].log(), (1 - score[1]).log())).mean()
    assert task.loss(output, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    assert task.eval().loss(output, batch).item() != task.train().loss(output, batch).item()


def test_negatives_are_uniform(batch):
    """The six nodes of a graph of seven that are not true tails of the head are drawn equally often."""
    pairs = torch.tensor([[10, 9]])  # nodes 8 .. 14 are the third graph
    wrong = [sample_negatives(pairs, batch, seed)[:, 1] for seed in range(600)]
    counts = torch.bincount(torch.cat(wrong), minlength=15)[8:].tolist()
    assert counts[1] == 0
    # Equal draws leave one pair: a node's chance is 11 / 36 a seed, of variance below 0.22
    expected, spread = 600 * 11 / 36, (600 * 0.22) ** 0.5
    assert all(abs(count - expected) < 4 * spread for count in [counts[0], *counts[2:]])


def test_negatives_of_a_graph_do_not_depend_on_its_batch(batch):
    """A graph gets the same pairs in batches of another order and with other graphs."""
    graphs = [
        {
            "num_nodes": n,
            "edge_index": torch.zeros(2, 0, dtype=torch.int64),
            "contact_index": torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2),
        }
        for n, pairs in zip(SIZES, PAIRS, strict=True)
    ]
    table = GraphTable.from_graphs(graphs, {"contact_index": Column("contact", index_of="node")})

    def drawn(rows):
        cut = table.batch(rows)
        pairs = sample_negatives(both_directions(cut.contact_index), cut, seed=3)
        graph = cut.batch[pairs[:, 0]]
        local = (pairs - cut.ptr[graph][:, None]).tolist()
        return {(rows[g], head, tail) for g, (head, tail) in zip(graph.tolist(), local, strict=True)}

    assert drawn([0, 1, 2, 3]) == drawn([3, 2]) | drawn([0]) | drawn([1])


def test_a_halving_head_is_refused():
    with pytest.raises(BadInput, match=r"head\.width must be constant"):
        build_task(dataclasses.replace(SPEC), 8, HeadConfig(num_layers=2, width="halving"))
