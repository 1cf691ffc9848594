"""Link ranking as defined by LRGB's PCQM-Contact: for each true pair, the rank of its tail among the graph's nodes.

A batch contains the true pairs as `contact_index [num_pairs, 2]` (head, tail) on the axis "contact". If the
specification has `negatives: given`, it also contains wrong pairs as `negative_index [num_wrong, 2]`. If it has
`links: edges`, the edges of the graph are also true pairs, which filtered ranking omits and sampling avoids.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from graphbench.contracts.architecture import Representation
from graphbench.contracts.devices import widest_dtype
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import DotProductHead, HeadConfig
from graphbench.training.tasks.base import Task
from graphbench.training.tasks.losses import at_least_single
from graphbench.training.tasks.metrics import GraphMean

log = logging.getLogger(__name__)

#: Wrong tails that training samples for each true pair, and rounds in which true tails are resampled.
NEGATIVES, ROUNDS = 2, 10
#: K of the hits of OGB's evaluators for ogbl-ddi, ogbl-collab and ogbl-ppa.
_OGB_HITS = (20, 50, 100)
#: Number of scores that are compared at a time, which bounds the memory for graphs of thousands of nodes.
_MOST_SCORES = 1 << 23
#: Number of scores of a training batch, whose ranks are only for monitoring: a few seconds on a CPU.
_TRAINING_SCORES = 1 << 26
#: Increment of SplitMix64, as a signed number, and all bits except the sign.
_GAMMA, _POSITIVE = -0x61C8864680B583EB, (1 << 63) - 1


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """Return one number per pair `[num_pairs]`: head times the number of nodes plus tail."""
    return pairs[:, 0] * num_nodes + pairs[:, 1]


def sample_negatives(pairs: Tensor, batch: GraphBatch, seed: int, known: Tensor | None = None) -> Tensor:
    """Sample pairs with the same heads and wrong tails of the same graph `[at most NEGATIVES * num_pairs, 2]`.

    `pairs [num_pairs, 2]` are true, in both directions, in the batch's node numbers, graph after graph; so are `known`
    pairs.

    True pairs are resampled up to `ROUNDS` times and then dropped; duplicates are dropped at once. A head may be its
    own tail, as in the published code. The samples of a graph depend only on seed and graph, not on the rest of the
    batch, so they are the same on any number of processes.
    """
    num_nodes = int(batch.num_nodes)
    true = pair_keys(pairs if known is None else torch.cat((pairs, known)), num_nodes).sort().values
    head = pairs[:, 0].repeat_interleave(NEGATIVES)
    graph = batch.batch[head]
    first, sizes = batch.ptr[graph], batch.ptr.diff()[graph]
    # Each draw is a function of seed, graph and place within the graph, not of other graphs in the batch.
    before = torch.bincount(graph, minlength=batch.num_graphs).cumsum(0).roll(1)
    place = torch.arange(len(head), device=head.device) - torch.where(graph > 0, before[graph], 0)
    stream = scramble(scramble(batch.graph_id.to(head.device)[graph] + scramble(head.new_tensor(seed))) + place)
    keys = torch.full_like(head, -1)
    for number in range(ROUNDS):
        tail = first + (scramble(stream + number) & _POSITIVE) % sizes
        drawn = head * num_nodes + tail
        keys = torch.where((keys < 0) & ~_contains(true, drawn), drawn, keys)
    keys = keys[keys >= 0].unique()  # sorted, so that the order of pairs does not matter
    return torch.stack((keys // num_nodes, keys % num_nodes), 1)


def scramble(values: Tensor) -> Tensor:
    """Hash each int64 to an integer that looks random: the output function of SplitMix64 (Steele et al. 2014).

    Examples:
        >>> hex(scramble(torch.tensor([0])).item() & 2**64 - 1)  # the generator's first number for the seed 0
        '0xe220a8397b1dcdaf'
    """
    values = values + _GAMMA
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        values = (values ^ (values >> shift & (1 << 64 - shift) - 1)) * factor
    return values ^ (values >> 31 & (1 << 33) - 1)


def _contains(sorted_keys: Tensor, keys: Tensor) -> Tensor:
    place = torch.searchsorted(sorted_keys, keys).clamp(max=len(sorted_keys) - 1)
    return sorted_keys[place] == keys


class TailRanks(NamedTuple):
    """Ranks of the tails of pairs, from 1 `[num_pairs]`.

    Args:
        raw: among all nodes of the graph.
        filtered: without the head's other true tails.
        no_self: also without the head itself.
    """

    raw: Tensor
    filtered: Tensor
    no_self: Tensor


def tail_ranks(node: Tensor, pairs: Tensor, batch: GraphBatch, known: Tensor | None = None) -> TailRanks:
    """Rank each pair's tail by `<head, tail>` among the nodes of its graph.

    `node [num_nodes, dim]` has the vectors of nodes; `pairs [num_pairs, 2]` are listed graph after graph. True tails
    are those in `pairs` and in `known`. Nodes with equal scores share the mean of their ranks, so the order of ties
    does not matter.
    """
    num_nodes, num_graphs, sizes = int(batch.num_nodes), batch.num_graphs, batch.ptr.diff()
    graph = batch.batch[pairs[:, 0]]
    # Graphs are padded to blocks of nodes, and their pairs, graph after graph, to blocks of heads.
    place = torch.arange(len(pairs), device=node.device) - torch.searchsorted(graph, graph)
    local = torch.arange(num_nodes, device=node.device) - batch.ptr[batch.batch]
    width = int(sizes.max()) if num_nodes else 0
    wide = node.to(widest_dtype(node.device))
    block = wide.new_zeros(num_graphs, width, wide.shape[1])
    block[batch.batch, local] = wide
    candidate = torch.arange(width, device=node.device)
    true = pair_keys(pairs if known is None else torch.cat((pairs, known)), num_nodes).unique()
    most = int(place.max()) + 1 if len(pairs) else 0
    step = max(1, min(most, _MOST_SCORES // max(1, num_graphs * width)))
    ranks = TailRanks(*node.new_ones(3, len(pairs)))
    for start in range(0, most, step):
        chosen = ((place >= start) & (place < start + step)).nonzero()[:, 0]
        head, tail = pairs[chosen].unbind(1)
        mine, row = graph[chosen], place[chosen] - start
        heads = wide.new_zeros(num_graphs, step, wide.shape[1])
        heads[mine, row] = wide[head]
        # Rounded to float32, since a product of matrices may give equal nodes another last bit.
        score = torch.bmm(heads, block.mT)[mine, row].float()
        counts = (candidate < sizes[mine][:, None]) & (candidate != local[tail][:, None])
        positive = score.gather(1, local[tail][:, None])
        # Ties count half: a model with equal scores then has the mean rank, whatever the order of nodes.
        raw = ((score > positive) & counts).sum(1) + 0.5 * ((score == positive) & counts).sum(1)
        # What true tails add is taken off again: there are far fewer of them than nodes.
        first = torch.searchsorted(true, head * num_nodes)
        several = torch.searchsorted(true, (head + 1) * num_nodes) - first
        of = torch.arange(len(head), device=node.device).repeat_interleave(several)
        other = true[torch.arange(len(of), device=node.device) + (first - several.cumsum(0) + several)[of]] % num_nodes
        of, other = of[other != tail[of]], other[other != tail[of]]
        filtered = raw.index_add(0, of, -_ahead(score[of, local[other]], positive[of, 0]))
        apart = (head != tail) & ~_contains(true, head * num_nodes + head)
        no_self = filtered - apart * _ahead(score.gather(1, local[head][:, None]), positive)[:, 0]
        for rank, ahead in zip(ranks, (raw, filtered, no_self), strict=True):
            rank[chosen] += ahead.to(rank.dtype)
    return ranks


def _ahead(scores: Tensor, own: Tensor) -> Tensor:
    """Return how many places each score takes from its own pair's tail: 1, or a half if they are equal."""
    return (scores > own).float() + 0.5 * (scores == own)


def ranks_beside(true: Tensor, owner: Tensor, wrong: Tensor, wrong_owner: Tensor) -> Tensor:
    """Rank each true score among the wrong ones of its graph (`owner`), from 1; equal scores share their mean rank.

    As in OGB's evaluator: one plus the mean of two counts: wrong scores that are higher, and those at least as high.
    """
    ranks = torch.ones_like(true, dtype=widest_dtype(true.device))  # float32 has no halves from 2^23 wrong pairs on
    for graph in owner.unique().tolist():  # few graphs: link data sets have only one
        mine, others = owner == graph, wrong[wrong_owner == graph].sort().values
        scores = true[mine].contiguous()
        higher = len(others) - torch.searchsorted(others, scores, right=True)
        at_least = len(others) - torch.searchsorted(others, scores)
        ranks[mine] += 0.5 * (higher + at_least)
    return ranks


def hits_beside(true: Tensor, owner: Tensor, wrong: Tensor, wrong_owner: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Mark the true scores above the k-th highest wrong one of their graph, and return the graph of each true score.

    Graphs with fewer than k wrong pairs have no such score and are omitted, while OGB's evaluator counts them as 1.
    """
    hits, graphs = [true.new_empty(0)], [owner[:0]]
    for graph in owner.unique().tolist():
        mine, others = owner == graph, wrong[wrong_owner == graph]
        if len(others) >= k:
            hits.append((true[mine] > others.topk(k).values[-1]).to(true.dtype))
            graphs.append(owner[mine])
    return torch.cat(hits), torch.cat(graphs)


class LinkRanking(Task):
    """Binary cross-entropy of true pairs against sampled ones; mean reciprocal rank (MRR) and hits.

    `MRR` ranks against every other node, including true tails and the head itself, as in LRGB's table; `filtered_MRR`
    omits other true tails, `filtered_no_self_MRR` also the head (the 2023 reassessment). If wrong pairs are given,
    there are also `ogb_MRR` and `ogb_hits@20`, `@50` and `@100`, as defined by the evaluators of OGB's link data sets.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_spec
        >>> task = LinkRanking(tiny_spec("link-ranking"), dim=8, head=HeadConfig())
        >>> sorted(task.build_metrics())
        ['MRR', 'filtered_MRR', 'filtered_no_self_MRR', 'hits@1', 'hits@10', 'hits@3']
    """

    level, kind = "pair", "ranking"
    waits_for_device = "wrong partners are sampled until they are distinct"
    losses = ("contrastive_BCE",)

    def __init__(self, spec: BenchmarkSpec, dim: int, head: HeadConfig) -> None:
        super().__init__(spec, dim, head)
        if head.width != "constant":
            raise BadInput(f"{spec.name}: link ranking maps nodes to their own width; head.width must be constant.")
        self.head = DotProductHead(dim, head.num_layers, head.l2_normalize, head.dropout)
        self._announced = False

    def forward(self, representation: Representation, batch: GraphBatch) -> Tensor:
        """Map nodes to vectors `[num_nodes, dim]`, whose dot products are the scores of pairs."""
        return cast(DotProductHead, self.head).mlp(representation.node)

    def terms(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Sum the binary cross-entropy over true pairs in both directions and wrong ones, given or else sampled.

        In training the sampled pairs depend on torch's seed and the step, otherwise they are always the same.
        """
        true = both_directions(batch.contact_index)
        seed = torch.initial_seed() + self.step & _POSITIVE if self.training else 0
        wrong = both_directions(batch.negative_index) if "negatives" in self.spec.extra else None
        if wrong is None or not len(wrong):
            wrong = sample_negatives(true, batch, seed, self._further_true(batch))
        pairs = torch.cat((true, wrong))
        scores = at_least_single((output[pairs[:, 0]] * output[pairs[:, 1]]).sum(-1))
        target = (torch.arange(len(pairs), device=scores.device) < len(true)).to(scores.dtype)
        values = F.binary_cross_entropy_with_logits(scores, target, reduction="none")
        return values.sum().reshape(1), torch.full((1,), len(pairs), device=scores.device)

    def build_metrics(self) -> dict[str, Metric]:
        """Create means over graphs of the mean over the graph's pairs."""
        names = ("MRR", "filtered_MRR", "filtered_no_self_MRR", "hits@1", "hits@3", "hits@10")
        given = ("ogb_MRR", *(f"ogb_hits@{k}" for k in _OGB_HITS)) if "negatives" in self.spec.extra else ()
        return {name: GraphMean() for name in (*names, *given)}

    def _further_true(self, batch: GraphBatch) -> Tensor:
        """Return edges as true pairs `[num_pairs, 2]` in both directions if links are edges, else no pairs."""
        edges = batch.edge_index if self.spec.extra.get("links") == "edges" else batch.edge_index[:, :0]
        return both_directions(edges.t())

    def update(self, metrics: Mapping[str, Metric], output: Tensor, batch: GraphBatch) -> None:
        """Rank every true pair in both directions; in training, of a graph with too many, evenly spaced ones."""
        true, node = both_directions(batch.contact_index), at_least_single(output)
        # All links of a large graph, each with all nodes, would take far longer than the training step.
        every = 1 + len(true) * batch.max_nodes // _TRAINING_SCORES if self.training else 1
        if every > 1 and not self._announced:
            log.info(
                "train/%s is that of 1 in %d training links; validation and test rank all.", self.spec.metric, every
            )
            self._announced = True
        pairs = true[::every]
        owner = batch.batch[pairs[:, 0]]
        ranks = tail_ranks(node, pairs, batch, torch.cat((true, self._further_true(batch))))
        values = {"MRR": 1 / ranks.raw} | {f"hits@{k}": (ranks.raw <= k).float() for k in (1, 3, 10)}
        values |= {"filtered_MRR": 1 / ranks.filtered, "filtered_no_self_MRR": 1 / ranks.no_self}
        scored = {name: (value, owner) for name, value in values.items()}
        if any(name.startswith("ogb") for name in metrics):
            scored |= self._beside_negatives(node, batch)
        for name, metric in metrics.items():
            metric.update(*scored[name], batch.num_graphs)

    @staticmethod
    def _beside_negatives(node: Tensor, batch: GraphBatch) -> dict[str, tuple[Tensor, Tensor]]:
        """Score true pairs against the wrong ones of their graph; return values and the graph of each pair."""
        true, wrong = batch.contact_index, batch.negative_index
        scores = ((node[pairs[:, 0]] * node[pairs[:, 1]]).sum(-1) for pairs in (true, wrong))
        owners = (batch.batch[pairs[:, 0]] for pairs in (true, wrong))
        (right, false), (owner, wrong_owner) = scores, owners
        # A graph without wrong pairs has nothing to rank against.
        beside = torch.isin(owner, wrong_owner)
        right, owner = right[beside], owner[beside]
        values = {f"ogb_hits@{k}": hits_beside(right, owner, false, wrong_owner, k) for k in _OGB_HITS}
        return {**values, "ogb_MRR": (1 / ranks_beside(right, owner, false, wrong_owner), owner)}

    def predict(self, output: Tensor, batch: GraphBatch) -> tuple[Tensor, Tensor]:
        """Return scores of the true pairs `[num_pairs, 1]`, and ones."""
        pairs, node = batch.contact_index, at_least_single(output)  # the same scores as in the ranking
        scores = (node[pairs[:, 0]] * node[pairs[:, 1]]).sum(-1, keepdim=True)
        return scores, torch.ones_like(scores)


def both_directions(pairs: Tensor) -> Tensor:
    """Return every pair and its reverse once `[num_ordered_pairs, 2]`, in a fixed order."""
    num_nodes = int(pairs.max()) + 1 if len(pairs) else 1
    # As numbers: `unique(dim=0)` takes fifty times as long.
    keys = pair_keys(torch.cat((pairs, pairs.flip(1))), num_nodes).unique()
    return torch.stack((keys // num_nodes, keys % num_nodes), 1)
