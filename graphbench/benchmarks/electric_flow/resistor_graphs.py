"""Sample the edges of many graphs of a family at once, on any device, without a loop over graphs.

Legend: G graphs, N nodes and D undirected edges of the largest one. Graphs are padded rows. All randomness comes from
the given generator.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn.functional import pad

from graphbench.contracts import GraphTable
from graphbench.contracts.table import pointer
from graphbench.errors import BadInput, check_choice, check_range

logger = logging.getLogger(__name__)

#: "FC": all pairs. "CSL": a cycle and links that skip an even number of nodes. "ER": Erdős-Rényi. "grid": the most
#: square grid. "regular": random regular. The last three are sampled from connected graphs.
Family = Literal["FC", "CSL", "ER", "grid", "regular"]

_CANDIDATES = (5_000, 400)  # tries before giving up: in total, and per graph, whichever is more
_ROUND = 1 << 24  # adjacency entries of the candidates in a round, which limits memory if few are accepted
_DEGREES = (3, 4)  # paired stubs are a simple graph with probability e^((1 - r^2) / 4): 1 in 43 for r = 4


@dataclass(frozen=True)
class Wires:
    """Undirected edges of G graphs.

    Args:
        tail: one end of every edge `[G, D]`, int64, numbered within the graph; 0 for absent edges.
        head: the other end `[G, D]`.
        present: mask of existing edges `[G, D]`.
        num_nodes: nodes of each graph `[G]`.
        max_nodes: N.
    """

    tail: Tensor
    head: Tensor
    present: Tensor
    num_nodes: Tensor
    max_nodes: int

    def take(self, rows: slice) -> Wires:
        """Return some of the graphs, in rows as wide as those of all."""
        return Wires(self.tail[rows], self.head[rows], self.present[rows], self.num_nodes[rows], self.max_nodes)

    def shuffled(self, generator: torch.Generator) -> Wires:
        """Return the graphs with their nodes and their edges in random order, present edges first."""
        nodes = torch.arange(self.max_nodes, device=self.tail.device) < self.num_nodes[:, None]
        label = random_orders(nodes, generator)
        order = random_orders(self.present, generator)
        present = self.present.gather(1, order)
        ends = [label.gather(1, end).gather(1, order) * present for end in (self.tail, self.head)]
        return Wires(ends[0], ends[1], present, self.num_nodes, self.max_nodes)


def random_orders(present: Tensor, generator: torch.Generator) -> Tensor:
    """Return a uniform permutation of the present columns of every row, followed by the absent ones `[rows, columns]`.

    Random keys have their column in the low bits, so sorting the keys sorts the columns. On a CPU, NumPy's vectorised
    sort is many times faster than `torch.argsort`.
    """
    rows, columns = present.shape
    bits = max(columns - 1, 1).bit_length()
    keys = torch.randint(1 << (62 - bits), (rows, columns), generator=generator, device=present.device) << bits
    keys += torch.arange(columns, device=present.device)
    keys += (~present).to(torch.int64) << 62
    keys = torch.from_numpy(np.sort(keys.numpy(), axis=1)) if keys.device.type == "cpu" else keys.sort(1).values
    return keys & ((1 << bits) - 1)


class Wiring(ABC):
    """A distribution of graphs.

    Subclasses set `max_nodes` and `max_edges` (undirected).
    """

    max_nodes: int
    max_edges: int

    @abstractmethod
    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample graphs on the device of the generator; the order of nodes and edges is meaningless."""


class FixedWiring(Wiring):
    """Distribution over a few graphs of equal size, each equally likely.

    Args:
        kinds: undirected edges of each kind `[kinds, 2, D]`.
        num_nodes: N.
    """

    def __init__(self, kinds: Tensor, num_nodes: int) -> None:
        self.kinds, self.max_nodes, self.max_edges = kinds, num_nodes, kinds.shape[2]

    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample kinds."""
        kinds = self.kinds.to(generator.device)
        chosen = kinds[torch.randint(len(kinds), (num_graphs,), generator=generator, device=kinds.device)]
        sizes = torch.full((num_graphs,), self.max_nodes, device=kinds.device)
        return Wires(chosen[:, 0], chosen[:, 1], torch.ones_like(chosen[:, 0], dtype=torch.bool), sizes, self.max_nodes)


class ErdosRenyiWiring(Wiring):
    """Distribution G(n, p) restricted to connected graphs by rejection sampling."""

    def __init__(self, num_nodes: int, probability: float) -> None:
        self.pairs = all_pairs(num_nodes)
        self.max_nodes, self.max_edges, self.probability = num_nodes, self.pairs.shape[1], probability

    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample connected graphs."""
        tail, head = self.pairs.to(generator.device)

        def candidates(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            draw = torch.rand(count, len(tail), generator=generator, device=tail.device, dtype=torch.float32)
            present = draw < self.probability
            ends = tail.expand_as(present) * present, head.expand_as(present) * present
            return *ends, present, _are_connected(*ends, present, self.max_nodes)

        what = f"ER graphs of {self.max_nodes} nodes and edge_probability {self.probability}"
        return _rejection_sample(candidates, num_graphs, self.max_nodes, what)


class RegularWiring(Wiring):
    """Uniform distribution over connected simple regular graphs, sampled by random pairing of stubs."""

    def __init__(self, num_nodes: int, degree: int) -> None:
        self.max_nodes, self.degree, self.max_edges = num_nodes, degree, num_nodes * degree // 2

    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample pairings without loops and double edges that connect all nodes."""
        n, stubs = self.max_nodes, self.max_nodes * self.degree

        def candidates(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
            all_stubs = torch.ones(count, stubs, dtype=torch.bool, device=generator.device)
            tail, head = (random_orders(all_stubs, generator) // self.degree).chunk(2, dim=1)
            pairs = (torch.minimum(tail, head) * n + torch.maximum(tail, head)).sort(1).values
            simple = (pairs.diff(dim=1) != 0).all(1) & (tail != head).all(1)
            present = all_stubs[:, : stubs // 2]
            valid = simple.clone()
            valid[simple] = _are_connected(tail[simple], head[simple], present[simple], n)
            return tail, head, present, valid

        return _rejection_sample(candidates, num_graphs, n, f"regular graphs of {n} nodes and degree {self.degree}")


class TableWiring(Wiring):
    """Distribution over the graphs of a table, each equally likely.

    Graphs are made simple and undirected. Those with one node or several components are left out, since no current can
    flow between their parts.
    """

    def __init__(self, table: GraphTable, name: str) -> None:
        sizes = table.num_nodes
        graph = torch.repeat_interleave(torch.arange(len(table)), table.num_edges)
        ends = table.columns["edge_index"].to(torch.int64)
        low, high = ends.amin(1), ends.amax(1)
        base = int(sizes.max())
        keys = ((graph * base + low) * base + high)[low != high].unique()
        graph, tail, head = keys // base**2, keys // base % base, keys % base
        connected = (_num_components(sizes, graph, tail, head) == 1) & (sizes > 1)
        if not bool(connected.any()):
            raise BadInput(f"{name} has no connected graph with an edge: no current can flow in any of them.")
        if left_out := int((~connected).sum()):
            logger.info("%s: graphs without edges or not connected are left out: %d of %d", name, left_out, len(sizes))
        edges = torch.bincount(graph, minlength=len(table))
        chosen = connected[graph]
        self._tail, self._head = tail[chosen], head[chosen]
        self._sizes, self._first = sizes[connected], pointer(edges[connected])
        self.max_nodes, self.max_edges = int(self._sizes.max()), int(edges[connected].max())

    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample rows of the table."""
        device = generator.device
        if self._tail.device != device:
            self._tail, self._head = self._tail.to(device), self._head.to(device)
            self._sizes, self._first = self._sizes.to(device), self._first.to(device)
        rows = torch.randint(len(self._sizes), (num_graphs,), generator=generator, device=device)
        number = torch.arange(self.max_edges, device=device)
        present = number < self._first.diff()[rows][:, None]
        place = (self._first[rows][:, None] + number) * present
        return Wires(
            self._tail[place] * present, self._head[place] * present, present, self._sizes[rows], self.max_nodes
        )


class MixedWiring(Wiring):
    """Mixture of distributions for several sizes, each equally likely."""

    def __init__(self, parts: Sequence[Wiring]) -> None:
        self.parts = tuple(parts)
        self.max_nodes = max(part.max_nodes for part in parts)
        self.max_edges = max(part.max_edges for part in parts)

    def draw(self, num_graphs: int, generator: torch.Generator) -> Wires:
        """Sample graphs, ordered by size."""
        chosen = torch.randint(len(self.parts), (num_graphs,), generator=generator, device=generator.device)
        counts = torch.bincount(chosen, minlength=len(self.parts)).tolist()
        drawn = [part.draw(count, generator) for part, count in zip(self.parts, counts, strict=True) if count]
        sizes = torch.cat([wires.num_nodes for wires in drawn])

        def join(parts: list[Tensor]) -> Tensor:
            return torch.cat([pad(part, (0, self.max_edges - part.shape[1])) for part in parts])

        tail, head, present = (join([getattr(w, name) for w in drawn]) for name in ("tail", "head", "present"))
        return Wires(tail, head, present, sizes, self.max_nodes)


def make_wiring(family: Family, sizes: Sequence[int], edge_probability: float = 0.5, degree: int = 3) -> Wiring:
    """Return the distribution of a family, uniform over all `sizes` that the family has.

    `edge_probability` is for "ER", `degree` for "regular".

    Raises:
        BadInput: the family is unknown, or has no graph with any of these sizes.

    Examples:
        >>> from graphbench.benchmarks.electric_flow import make_wiring
        >>> mixed = make_wiring("CSL", range(8, 11))
        >>> mixed.max_nodes, mixed.max_edges
        (10, 20)
    """
    check_choice("family", family, get_args(Family))
    if family == "ER":
        check_range("edge_probability", edge_probability, above=0, at_most=1)
    if family == "regular":
        check_choice("degree", degree, _DEGREES)  # pairings for other degrees are hardly ever simple
    per_size = [_wiring_of_size(family, size, edge_probability, degree) for size in sizes]
    wirings = [wiring for wiring in per_size if wiring is not None]
    if not wirings:
        least = {"CSL": "5 nodes", "regular": f"{degree + 1} nodes, and an even number for degree 3"}
        raise BadInput(
            f"There is no {family} graph of {min(sizes)} to {max(sizes)} nodes; it needs at least "
            f"{least.get(family, '2 nodes')}."
        )
    return wirings[0] if len(wirings) == 1 else MixedWiring(wirings)


def _wiring_of_size(family: Family, n: int, probability: float, degree: int) -> Wiring | None:
    """Return the distribution for one number of nodes; None if the family has no such graph."""
    if n < 2:
        return None
    if family == "FC":
        return FixedWiring(all_pairs(n)[None], n)
    if family == "grid":
        return FixedWiring(grid_edges(n)[None], n)
    if family == "ER":
        return ErdosRenyiWiring(n, probability)
    if family == "regular":
        return RegularWiring(n, degree) if n > degree and n * degree % 2 == 0 else None
    skips = [skip for skip in range(2, n - 1, 2) if 2 * skip != n]  # at n / 2 two links would coincide
    return FixedWiring(torch.stack([skip_links(n, skip) for skip in skips]), n) if skips else None


def all_pairs(num_nodes: int) -> Tensor:
    """Return every pair of nodes `[2, n (n - 1) / 2]`.

    Examples:
        >>> from graphbench.benchmarks.electric_flow import all_pairs
        >>> all_pairs(3).tolist()
        [[0, 0, 1], [1, 2, 2]]
    """
    return torch.combinations(torch.arange(num_nodes)).t().contiguous()


def skip_links(num_nodes: int, skip: int) -> Tensor:
    """Return a cycle and a link from every node to the one `skip` further on `[2, 2 n]`."""
    node = torch.arange(num_nodes)
    return torch.cat([torch.stack((node, (node + hop) % num_nodes)) for hop in (1, skip)], dim=1)


def grid_edges(num_nodes: int) -> Tensor:
    """Return the edges `[2, D]` of the most square grid with that many nodes; a path if the number is prime."""
    rows = max(divisor for divisor in range(1, math.isqrt(num_nodes) + 1) if num_nodes % divisor == 0)
    node = torch.arange(num_nodes).view(rows, -1)
    across = torch.stack((node[:, :-1].flatten(), node[:, 1:].flatten()))
    return torch.cat((across, torch.stack((node[:-1].flatten(), node[1:].flatten()))), dim=1)


def _rejection_sample(
    candidates: Callable[[int], tuple[Tensor, Tensor, Tensor, Tensor]], num_graphs: int, num_nodes: int, what: str
) -> Wires:
    """Return the first `num_graphs` valid candidates; `candidates(count)` returns tail, head, present and valid."""
    parts: list[list[Tensor]] = []
    missing, share = num_graphs, 0.5
    left = max(_CANDIDATES[0], _CANDIDATES[1] * num_graphs)
    while left > 0:
        count = min(math.ceil(missing / share) + 8, _ROUND // num_nodes**2 + 1, left)
        left -= count
        *columns, valid = candidates(count)
        rows = valid.nonzero().flatten()
        share = max(len(rows), 0.5) / count  # count half a graph as valid if none was: the next round is larger
        parts.append([column[rows[:missing]] for column in columns])
        missing -= min(len(rows), missing)
        if not missing:
            tail, head, present = (torch.cat(column) for column in zip(*parts, strict=True))
            sizes = torch.full((num_graphs,), num_nodes, device=tail.device)
            return Wires(tail, head, present, sizes, num_nodes)
    raise BadInput(f"{missing} of {num_graphs} {what} could not be sampled, since hardly any is connected.")


def _are_connected(tail: Tensor, head: Tensor, present: Tensor, num_nodes: int) -> Tensor:
    """Return whether each graph is connected `[G]`, by repeated squaring of its reachability."""
    reachable = torch.eye(num_nodes, device=tail.device, dtype=torch.float32).repeat(len(tail), 1, 1)
    weight = present.to(reachable.dtype)
    for row, column in ((tail, head), (head, tail)):
        reachable.view(len(tail), num_nodes**2).scatter_add_(1, row * num_nodes + column, weight)
    for _ in range(max(num_nodes - 1, 1).bit_length()):  # the longest path has n - 1 edges; each square doubles them
        reachable = (reachable @ reachable).clamp_(max=1)
    return (reachable[:, 0] > 0).all(1)


def _num_components(sizes: Tensor, graph: Tensor, tail: Tensor, head: Tensor) -> Tensor:
    """Count the connected components of each graph `[G]`."""
    first = pointer(sizes)
    total = int(first[-1])
    ends = ((first[graph] + tail).numpy(), (first[graph] + head).numpy())
    adjacency = coo_matrix((np.ones(len(graph), dtype=bool), ends), shape=(total, total))
    labels = torch.from_numpy(connected_components(adjacency, directed=False)[1]).to(torch.int64)
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    one_each = (owner * total + labels).unique() // total
    return torch.bincount(one_each, minlength=len(sizes))
