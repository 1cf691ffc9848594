"""Choose the substructures that become tokens: greedy sampling that covers every node evenly (DeepGraph, Appendix D).

All graphs of a batch are sampled at once; the only loop is over selection rounds. Random numbers are hashes of one seed
per graph (`graphbench.encodings.substructures.mix`), so the sample of a graph does not depend on its batch:
`training_seeds` returns fresh seeds, `evaluation_seeds` returns the same seed for the same graph every time.

Legend: B graphs, S candidate substructures, M members of all of them, N nodes; batch numbering throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, distributed

from graphbench.encodings.substructures import Kind, mix, structure_hash
from graphbench.errors import BadInput, check_range

#: Bits of a random number in a sort key; the number to sort by takes the bits above.
_CHANCE_BITS = 32
_CHANCE_MASK = (1 << _CHANCE_BITS) - 1
#: End of the bits of a gain, which is at most the size of a substructure; the bits above are its kind's turn.
_GAIN_END = _CHANCE_BITS + 12
#: Bits of a kind's number.
_KIND_BITS = 3
#: Gain of candidates that may not be chosen (again); no number of nodes raises it above 0.
_NEVER = -(1 << 30)
_POSITIVE = (1 << 63) - 1


@dataclass(frozen=True)
class CoverageSampler:
    """Greedy coverage sampling.

    Appendix D: sample `num_initial` substructures, balanced over kinds. Then repeat: mark the nodes that fewer than
    `coverage` chosen substructures contain; count the marked nodes in each remaining substructure; among the `top_k`
    largest counts (ties at random) choose `num_per_round` uniformly. Stop when no node is marked or no remaining
    substructure contains one. The appendix gives no values for `num_initial`, `num_per_round` and `top_k`.

    Taken literally (`balanced: false`) this contradicts the rest of the paper on molecules: two in three tokens are
    paths, but section 5.1 balances the types; and there are more tokens than nodes, but Appendix I has M < N. So by
    default every round follows three rules, each our interpretation where the paper is ambiguous:

    - types: a round chooses from the least-chosen kind so far, among those that still contain a marked node;
    - M < N: sampling stops at one token fewer than nodes (but a graph of one node may have one);
    - even cover: nodes that fewer than t chosen substructures contain are marked, for t = 1, 2, ... up to `coverage` in
      turn, so an early stop leaves nodes covered evenly.

    The released code differs (`released: true`): a random half of the candidates is dropped, geometric ones further
    down to the number of neighbourhoods; cycles (at most n / 5, at least one) and one random candidate are chosen
    first; the nodes of *least* coverage are marked, so the loop stops as soon as one of them has no candidate left; a
    round chooses max(1, floor(3 n / S)) of the top twice as many. Hardly a graph of ZINC then reaches a coverage of 6.

    Args:
        coverage: chosen substructures that each node should be in (`thre`; the paper uses 6 for molecules, 2 for
            CLUSTER and PATTERN).
        num_initial: substructures sampled before the first round; unused by `released`.
        num_per_round: substructures chosen in a round; unused by `released`.
        top_k: size of the pool they are chosen from; unused by `released`.
        balanced: see above; unused by `released`.
        released: sample as the released code does.

    Raises:
        BadInput: a number is out of range.

    Examples:
        A path of four nodes with one cycle too many and three stars: each kind is among the three tokens.

        >>> member_node = torch.tensor([0, 1, 2, 1, 2, 3, 0, 1, 2, 3, 0, 1, 1, 2, 2, 3])
        >>> member_substructure = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 5])
        >>> kind = torch.tensor([Kind.CYCLE, Kind.CYCLE, Kind.PATH, Kind.STAR, Kind.STAR, Kind.STAR])
        >>> graphs = {"substructure_ptr": torch.tensor([0, 6]), "node_ptr": torch.tensor([0, 4])}
        >>> chosen = CoverageSampler()(member_node, member_substructure, kind, **graphs, seeds=torch.tensor([7]))
        >>> kind[chosen].tolist()
        [0, 1, 2]
    """

    coverage: int = 6
    num_initial: int = 4
    num_per_round: int = 1
    top_k: int = 2
    balanced: bool = True
    released: bool = False

    def __post_init__(self) -> None:
        check_range("coverage", self.coverage, at_least=1)
        check_range("num_initial", self.num_initial, at_least=0, whole=True)
        check_range("num_per_round", self.num_per_round, at_least=1, whole=True)
        if self.top_k < self.num_per_round:
            raise BadInput(f"top_k={self.top_k} must be at least num_per_round={self.num_per_round}.")

    def __call__(
        self,
        member_node: Tensor,
        member_substructure: Tensor,
        kind: Tensor,
        substructure_ptr: Tensor,
        node_ptr: Tensor,
        seeds: Tensor,
    ) -> Tensor:
        """Choose substructures for every graph of a batch.

        Args:
            member_node: node of each member `[M]`.
            member_substructure: substructure of each member, ascending `[M]`.
            kind: `Kind` of each substructure `[S]`.
            substructure_ptr: first substructure of each graph `[B + 1]`.
            node_ptr: first node of each graph `[B + 1]`.
            seeds: one 64-bit seed per graph `[B]`.

        Returns:
            Chosen substructures, ascending `[m]`.
        """
        pool = _Pool(member_node, member_substructure, kind, substructure_ptr, node_ptr, seeds)
        in_turn = self.balanced and not self.released
        if in_turn:
            pool.limit((pool.num_nodes - 1).clamp(min=1))
        if self.released:
            self._start_released(pool)
        else:
            pool.choose(pool.slot[_balanced(pool) < pool.room.clamp(max=self.num_initial)[pool.graph]])
        pool.allow(*self._per_round(pool))
        # In each round every graph either chooses or finishes its stage.
        stage = torch.full_like(pool.num_nodes, 1 if in_turn else self.coverage)
        going = len(kind) > 0
        while going:
            pool.mark(self._mark_nodes(pool, stage))
            chose = pool.round(in_turn)
            stage = stage + ~chose
            going = bool((chose | (stage <= self.coverage) & (pool.room > 0)).any())
        return pool.chosen.index_select(0, pool.slot).nonzero().squeeze(1)

    def _mark_nodes(self, pool: _Pool, stage: Tensor) -> Tensor:
        """Mark the nodes that the next choice should contain, 0 or 1 `[N]`; stages `[B]` after the last mark none."""
        if not self.released:
            limit = torch.where(stage <= self.coverage, stage, 0)
            return (pool.covered < limit[pool.graph_of_node]).to(torch.int64)
        least = torch.full_like(pool.num_nodes, self.coverage)
        least.scatter_reduce_(0, pool.graph_of_node, pool.covered, "amin")
        lowest = least[pool.graph_of_node]
        return ((pool.covered == lowest) & (lowest < self.coverage)).to(torch.int64)

    def _per_round(self, pool: _Pool) -> tuple[Tensor, Tensor]:
        """Return the substructures chosen in a round and the size of their pool, per graph `[B]`."""
        if not self.released:
            number = torch.full_like(pool.num_nodes, self.num_per_round)
            return number, torch.full_like(number, self.top_k)
        number = (3 * pool.num_nodes // pool.num_candidates.clamp(min=1)).clamp(min=1)
        return number, 2 * number

    @staticmethod
    def _start_released(pool: _Pool) -> None:
        """Drop candidates and choose the first ones as the released code does (see the class)."""
        geometric = pool.kind < Kind.HOP
        in_graph = pool.ranks(pool.graph, pool.chance(1))
        dropped = in_graph < (pool.num_candidates // 2)[pool.graph]
        num_geometric = torch.zeros_like(pool.num_nodes).index_add_(0, pool.graph, geometric.to(torch.int64))
        # Geometric candidates beyond the number of neighbourhoods; drawn separately, so both steps may drop one.
        surplus = 2 * num_geometric - pool.num_candidates
        dropped |= geometric & (pool.ranks(2 * pool.graph + geometric, pool.chance(2)) < surplus[pool.graph])
        cycle = pool.kind == Kind.CYCLE
        num_cycles = (pool.num_nodes // 5).clamp(min=1)
        first = cycle & (pool.ranks(2 * pool.graph + cycle, pool.chance(3)) < num_cycles[pool.graph])
        pool.choose(pool.slot[first | (pool.ranks(pool.graph, pool.chance(4)) == 0)])
        pool.gain.index_fill_(0, pool.slot[dropped], _NEVER)


class _Pool:
    """Candidates of a batch as a flat padded table `[B, width]`, the gain of each, and the cover of nodes.

    The state is updated, never recomputed: marking or unmarking a node changes the gain of the candidates that contain
    it, and a choice changes the cover of its nodes. All rounds together touch each membership a few times.
    """

    def __init__(
        self,
        member_node: Tensor,
        member_substructure: Tensor,
        kind: Tensor,
        ptr: Tensor,
        node_ptr: Tensor,
        seeds: Tensor,
    ) -> None:
        if len(seeds) != len(ptr) - 1 or len(node_ptr) != len(ptr):
            raise BadInput(
                f"The sampler needs one seed and one node range per graph: {len(ptr) - 1} graphs have substructures, "
                f"{len(node_ptr) - 1} have nodes, {len(seeds)} have seeds."
            )
        graphs = torch.arange(len(seeds), device=ptr.device)
        num_nodes = int(node_ptr[-1])
        self.kind, self.seeds = kind, seeds
        self.num_candidates, self.num_nodes = ptr.diff(), node_ptr.diff()
        self.graph = torch.repeat_interleave(graphs, self.num_candidates, output_size=len(kind))
        self.graph_of_node = torch.repeat_interleave(graphs, self.num_nodes, output_size=num_nodes)
        self.width = int(self.num_candidates.max()) if len(seeds) else 0
        place = torch.arange(len(kind), device=ptr.device) - ptr[self.graph]
        self.slot = self.graph * self.width + place
        self.hash = mix(place, seeds[self.graph])
        # Members of each slot, and slots of each node, as ragged rows.
        self.node_of, self.nodes_at = member_node, self._rows(self.slot[member_substructure], len(seeds) * self.width)
        by_node = member_node.argsort()
        self.slot_of = self.slot[member_substructure[by_node]]
        self.slots_at = self._rows(member_node, num_nodes)
        self.covered = torch.zeros(num_nodes, dtype=torch.int64, device=ptr.device)
        self.marked = torch.zeros_like(self.covered)
        self.gain = torch.full((len(seeds) * self.width,), _NEVER, device=ptr.device)
        self.gain[self.slot] = 0
        self.chosen = torch.zeros_like(self.gain, dtype=torch.bool)
        # Graph and kind of each slot as one number, and the count of those chosen; padding is never chosen.
        self.sort_of = torch.zeros_like(self.gain).index_copy_(0, self.slot, self.graph * len(Kind) + kind)
        self.num_chosen = torch.zeros(len(seeds) * len(Kind), dtype=torch.int64, device=ptr.device)
        kinds = torch.arange(len(Kind), device=ptr.device)
        self.kind_order = mix(kinds, mix(seeds, 1)[:, None]).argsort(1).argsort(1)
        self.room = self.num_candidates.clone()
        self.shuffled = torch.zeros_like(self.gain).index_copy_(0, self.slot, self.hash)
        self.first_slot = graphs[:, None] * self.width
        self.rounds = 0

    @staticmethod
    def _rows(owner: Tensor, number: int) -> tuple[Tensor, Tensor]:
        """Return the first item and number of items of ragged rows whose sorted items belong to `owner`."""
        length = torch.bincount(owner, minlength=number)
        return length.cumsum(0) - length, length

    def chance(self, purpose: int) -> Tensor:
        """Draw random numbers of `_CHANCE_BITS` bits, one per candidate `[S]`."""
        return mix(self.hash, purpose) & _CHANCE_MASK

    @staticmethod
    def ranks(group: Tensor, key: Tensor) -> Tensor:
        """Rank each row among those of its group by `key`, which has at most `_CHANCE_BITS` bits."""
        order = (group << _CHANCE_BITS | key).argsort()
        counts = torch.bincount(group)
        position = torch.arange(len(group), device=group.device) - (counts.cumsum(0) - counts)[group[order]]
        return torch.empty_like(order).scatter_(0, order, position)

    def limit(self, most: Tensor) -> None:
        """Limit the choices of each graph to `most [B]`, before the first one."""
        self.room = self.room.minimum(most)

    def choose(self, slots: Tensor) -> None:
        """Choose candidates, each new, and count the nodes they cover."""
        self.chosen.index_fill_(0, slots, True)
        self.gain.index_fill_(0, slots, _NEVER)
        self.num_chosen.index_add_(0, self.sort_of.index_select(0, slots), torch.ones_like(slots))
        self.room.index_add_(0, slots // max(self.width, 1), torch.ones_like(slots), alpha=-1)
        _, members = _expand(self.nodes_at, slots)
        nodes = self.node_of.index_select(0, members)
        self.covered.index_add_(0, nodes, torch.ones_like(nodes))

    def mark(self, marked: Tensor) -> None:
        """Mark the nodes to cover, 1 or 0 `[N]`, and update the gains: marked nodes in each candidate."""
        change = marked - self.marked
        nodes = change.nonzero().squeeze(1)
        row, items = _expand(self.slots_at, nodes)
        delta = change.index_select(0, nodes).index_select(0, row)
        self.gain.index_add_(0, self.slot_of.index_select(0, items), delta)
        self.marked = marked

    def allow(self, number: Tensor, top_k: Tensor) -> None:
        """Let a round choose `number [B]` of the `top_k [B]` candidates with the largest gains."""
        self.max_chosen, self.max_pool = (int(limit.max()) if len(limit) else 0 for limit in (number, top_k))
        self.max_pool = min(self.max_pool, self.width)
        self.max_chosen = min(self.max_chosen, self.max_pool)
        places = torch.arange(self.max_pool, device=number.device)
        self.pool_places = places < top_k[:, None]
        self.chosen_places = places[: self.max_chosen] < number[:, None]

    def round(self, in_turn: bool) -> Tensor:
        """Choose candidates in every graph that has room and a candidate with a gain.

        Args:
            in_turn: choose from the least-chosen kind so far, among those with a gain.

        Returns:
            A mask of the graphs that chose, bool `[B]`.
        """
        self.rounds += 1
        # An odd multiplier per round resamples all random numbers in two operations (multiply-shift hashing).
        chance = (self.shuffled * _multiplier(self.rounds)) >> (64 - _CHANCE_BITS) & _CHANCE_MASK
        key = (self.gain << _CHANCE_BITS) + chance
        if in_turn:
            key = torch.where(self.gain > 0, key + self._precedence().index_select(0, self.sort_of), -1)
        best = key.reshape(-1, self.width).topk(self.max_pool)
        in_pool = (best.values > _CHANCE_MASK) & self.pool_places
        if in_turn:  # the pool ends before the next kind
            in_pool &= best.values >> _GAIN_END == best.values[:, :1] >> _GAIN_END
        # Choose uniformly within the pool: fresh random numbers, positive only for candidates in the pool.
        lottery = (best.values * _multiplier(-self.rounds) & _POSITIVE) * in_pool
        drawn = lottery.topk(self.max_chosen)
        places = torch.arange(self.max_chosen, device=drawn.values.device)
        taken = (drawn.values > 0) & self.chosen_places & (places < self.room[:, None])
        self.choose((best.indices.gather(1, drawn.indices) + self.first_slot)[taken])
        return taken.any(1)

    def _precedence(self) -> Tensor:
        """Order the kinds of a graph, least chosen first, by keys above all gains `[B * kinds]`.

        Ties follow a separate order of kinds for each graph.
        """
        behind = (self.num_chosen.view(-1, len(Kind)) << _KIND_BITS) + self.kind_order
        return ((1 << 62 - _GAIN_END) - behind.flatten()) << _GAIN_END


def _expand(rows: tuple[Tensor, Tensor], index: Tensor) -> tuple[Tensor, Tensor]:
    """List the items of the ragged rows `index`: position in `index` and number of each, `[items]`."""
    first, length = (part.index_select(0, index) for part in rows)
    row = torch.repeat_interleave(length)
    return row, torch.arange(len(row), device=row.device) + (first + length - length.cumsum(0)).index_select(0, row)


def _balanced(pool: _Pool) -> Tensor:
    """Rank candidates `[S]` in a random order within their graph that alternates between the kinds.

    The order cycles through the remaining kinds, starting with a random one, and takes a random candidate of the kind
    each time: in any prefix the counts of two kinds differ by at most one while both last.
    """
    num_kinds = len(Kind)
    turn = pool.ranks(pool.graph * num_kinds + pool.kind, pool.chance(1))
    kind_order = mix(pool.kind, mix(pool.seeds, 1)[pool.graph]) & 0xFFFF
    # Turns above 2^16 tie at the end of the order, which is not read.
    return pool.ranks(pool.graph, (turn << 16 | kind_order).clamp(max=_CHANCE_MASK))


@cache
def _multiplier(number: int) -> int:
    """Return a fixed odd signed 64-bit number for each round."""
    return int(mix(torch.tensor(number), 7)) | 1


def sample_seeds(num_graphs: int, generator: torch.Generator, device: torch.device | str = "cpu") -> Tensor:
    """Draw fresh seeds `[num_graphs]` from a generator on the CPU."""
    return torch.randint(-(2**63), 2**63 - 1, (num_graphs,), generator=generator).to(device)


def training_generator(seed: int, rank: int, epoch: int) -> torch.Generator:
    """Create a CPU generator that differs between seeds, ranks and epochs, to sample outside of training."""
    state = mix(torch.tensor(epoch), mix(torch.tensor(rank), mix(torch.tensor(seed))))
    return torch.Generator().manual_seed(int(state) & 0x7FFFFFFFFFFFFFFF)


def training_seeds(
    num_graphs: int, device: torch.device | str = "cpu", generator: torch.Generator = torch.default_generator
) -> Tensor:
    """Draw fresh seeds for a training step `[num_graphs]`, different in every epoch and on every process.

    They come from the loader's generator, which depends on seed, epoch and batch, or from PyTorch's on the CPU, which
    Lightning seeds and checkpoints store. Either way a resumed run draws the same samples as an uninterrupted one.
    Lightning may seed all processes equally, so the rank is mixed in.
    """
    rank = distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0
    return mix(sample_seeds(num_graphs, generator), rank).to(device)


def evaluation_seeds(edge_index: Tensor, batch: Tensor, ptr: Tensor, draw: int = 0) -> Tensor:
    """Hash each graph to a seed `[num_graphs]`, so that evaluation is repeatable in any batch.

    Args:
        edge_index: `[2, num_edges]`.
        batch: graph of each node `[num_nodes]`.
        ptr: first node of each graph `[num_graphs + 1]`.
        draw: number of the sample, for results averaged over several.
    """
    return mix(structure_hash(edge_index, batch, ptr), draw)
