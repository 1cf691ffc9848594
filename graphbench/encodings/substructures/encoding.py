"""Encode graphs by the substructure vocabulary of DeepGraph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import pointer
from graphbench.encodings.substructures.flat import FlatGraphs, NodeSets, concatenate, distinct
from graphbench.encodings.substructures.search import (
    Caps,
    hop_neighbourhoods,
    paths_and_cycles,
    stars,
    walk_neighbourhoods,
)
from graphbench.encodings.substructures.vocabulary import Kind, Pattern, make_vocabulary
from graphbench.errors import check_range

#: Approximate rows of the largest intermediate tensor; graphs are searched in blocks that stay below it.
_BLOCK_ROWS = 1 << 21


class Substructures(Encoding):
    """All matches of a vocabulary of substructures in each graph, as node sets.

    The defaults are the vocabulary of DeepGraph for molecules (Zhao et al., "Are More Layers Beneficial to Graph
    Transformers?", ICLR 2023, section 6.3): cycles of 3 to 8 nodes, paths of 4 to 8 nodes, stars of 2 to 6 leaves and
    2-hop neighbourhoods. For CLUSTER and PATTERN the paper uses only 10-step random walks:
    `Substructures(cycles=(), paths=(), stars=(), hops=(), walks=(10,))`.

    A match is a set of nodes whose *induced* subgraph is the pattern: cycles have no chord, paths no shortcut, and the
    leaves of a star are pairwise non-adjacent. Each node set occurs once per pattern. The direction of edges, repeated
    edges and self-loops are ignored. There is one neighbourhood per node, in the order of the nodes; random walks are
    drawn once and seeded by the graph itself.

    Fields of a batch (S substructures, M members in total), graph after graph, within a graph in the order of the
    vocabulary, members in ascending order:

    - `substructure_type [S]`: index into `vocabulary`;
    - `substructure_size [S]`: number of nodes;
    - `member_node [M]`: a node of a substructure;
    - `member_substructure [M]`: the substructure it belongs to;
    - `substructure_ptr`, `member_ptr [num_graphs + 1]` and `substructure_batch`, `member_batch`.

    Args:
        cycles: numbers of nodes of chordless cycles, each at least 3.
        paths: numbers of nodes of induced paths, each at least 2.
        stars: numbers of leaves of induced stars, each at least 2.
        hops: radii of neighbourhoods.
        walks: numbers of steps of random-walk neighbourhoods.
        distinct_neighbourhoods: keep equal neighbourhoods of a graph only once per pattern. False keeps one per node,
            like the released code.
        max_neighbourhood: k-hop neighbourhoods with more nodes are cut to this many, nearest first, ties at random;
            None for no limit.
        max_per_pattern: maximum matches per graph and pattern; more are cut to a random subset. None for no limit.
        max_partial: maximum partial matches per graph in the search; more are cut the same way. None for no limit.
        seed: seed of walks and random subsets.

    Cuts are logged as a warning, and chosen independently of node numbers (see `Caps`).

    Raises:
        BadInput: an option is out of range, or the vocabulary is empty.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> ring = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": ring}])
        >>> encoded = Substructures(cycles=[3], paths=[], stars=[2], hops=[]).compute(table)
        >>> encoded.columns["member_node"]  # one triangle; its corners are no stars, whose leaves are not joined
        tensor([0, 1, 2], dtype=torch.int32)
    """

    #: Columns on two additional axes, "substructure" and "member".
    layout: ClassVar[Mapping[str, Column]] = {
        "substructure_type": Column("substructure"),
        "substructure_size": Column("substructure"),
        "member_node": Column("member", index_of="node"),
        "member_substructure": Column("member", index_of="substructure"),
    }

    def __init__(
        self,
        cycles: Sequence[int] = (3, 4, 5, 6, 7, 8),
        paths: Sequence[int] = (4, 5, 6, 7, 8),
        stars: Sequence[int] = (2, 3, 4, 5, 6),
        hops: Sequence[int] = (2,),
        walks: Sequence[int] = (),
        distinct_neighbourhoods: bool = True,
        max_neighbourhood: int | None = None,
        max_per_pattern: int | None = 4000,
        max_partial: int | None = 20000,
        seed: int = 0,
    ) -> None:
        self.vocabulary = make_vocabulary(cycle=cycles, path=paths, star=stars, hop=hops, walk=walks)
        limits = {
            "max_neighbourhood": max_neighbourhood,
            "max_per_pattern": max_per_pattern,
            "max_partial": max_partial,
        }
        for name, limit in limits.items():
            if limit is not None:
                check_range(name, limit, at_least=1, whole=True)
        self.distinct_neighbourhoods = distinct_neighbourhoods
        self.max_neighbourhood = max_neighbourhood
        self.max_per_pattern, self.max_partial, self.seed = max_per_pattern, max_partial, seed

    def sizes(self, kind: Kind) -> tuple[int, ...]:
        """Return the sizes of the vocabulary's patterns of one kind, ascending."""
        return tuple(pattern.size for pattern in self.vocabulary if pattern.kind is kind)

    @property
    def kind_of_type(self) -> Tensor:
        """`Kind` of every entry of the vocabulary, int64 `[len(vocabulary)]`."""
        return torch.tensor([int(pattern.kind) for pattern in self.vocabulary])

    @property
    def max_size(self) -> int | None:
        """Nodes of the largest possible substructure; None if k-hop neighbourhoods are not limited."""
        sizes = [
            self.max_neighbourhood if pattern.kind is Kind.HOP else pattern.max_nodes for pattern in self.vocabulary
        ]
        return None if None in sizes else max(size for size in sizes if size is not None)

    def parameters(self) -> dict[str, Any]:
        """Return every option, as JSON values."""
        return {
            "cycles": list(self.sizes(Kind.CYCLE)),
            "paths": list(self.sizes(Kind.PATH)),
            "stars": list(self.sizes(Kind.STAR)),
            "hops": list(self.sizes(Kind.HOP)),
            "walks": list(self.sizes(Kind.WALK)),
            "distinct_neighbourhoods": self.distinct_neighbourhoods,
            "max_neighbourhood": self.max_neighbourhood,
            "max_per_pattern": self.max_per_pattern,
            "max_partial": self.max_partial,
            "seed": self.seed,
        }

    def compute(self, graphs: GraphTable) -> Encoded:
        """Find the vocabulary in all graphs; warn if a limit cut something."""
        caps = Caps(self.max_per_pattern, self.max_partial)
        parts = [self._search(graphs.slice(*block), caps) for block in self._blocks(graphs)]
        caps.report(len(graphs))
        counts, types, sizes, nodes = (torch.cat(part) for part in zip(*parts, strict=True))
        first = pointer(counts)
        within = torch.arange(len(types)) - torch.repeat_interleave(first[:-1], counts, output_size=len(types))
        member_ptr = pointer(sizes.to(torch.int64))[first]
        columns = {
            "substructure_type": types,
            "substructure_size": sizes,
            "member_node": nodes,
            "member_substructure": torch.repeat_interleave(within.to(torch.int32), sizes, output_size=len(nodes)),
        }
        return Encoded(columns, {"substructure": first, "member": member_ptr})

    def _blocks(self, graphs: GraphTable) -> Iterator[tuple[int, int]]:
        """Return ranges of graphs whose search fits into memory; results do not depend on these ranges."""
        nodes, degree = graphs.num_nodes, graphs.num_edges / graphs.num_nodes.clamp(min=1)
        rows = nodes * (1 + degree**3)
        if self.max_partial is not None:
            rows = rows.clamp(max=self.max_partial)
        block = ((rows * (1 + degree) + nodes * degree**2).cumsum(0) / _BLOCK_ROWS).long()
        bounds = pointer(torch.unique_consecutive(block, return_counts=True)[1]).tolist()
        return pairwise(bounds if len(graphs) else [0, 0])

    def _search(self, graphs: GraphTable, caps: Caps) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Find the matches of a block: number per graph `[G]`, types and sizes `[S]`, and nodes `[M]`."""
        flat = FlatGraphs.from_table(graphs, self.seed)
        matches = paths_and_cycles(flat, self.sizes(Kind.PATH), self.sizes(Kind.CYCLE), caps)
        matches |= stars(flat, self.sizes(Kind.STAR), caps)
        sets = []
        for pattern in self.vocabulary:
            if pattern.kind.is_neighbourhood:
                sets.append(self._neighbourhoods(flat, pattern, caps).renumbered(flat))
            else:
                sets.append(NodeSets.from_rows(flat, matches[pattern]))
        joined, types = concatenate(sets)
        counts = torch.bincount(joined.graph, minlength=len(graphs))
        small = torch.uint8 if len(self.vocabulary) <= 256 else torch.int16
        return counts, types.to(small), joined.size.to(torch.int32), joined.nodes.to(torch.int32)

    def _neighbourhoods(self, flat: FlatGraphs, pattern: Pattern, caps: Caps) -> NodeSets:
        """Find all neighbourhoods of one pattern."""
        if pattern.kind is Kind.WALK:
            sets = walk_neighbourhoods(flat, pattern.size)
        else:
            sets, over = hop_neighbourhoods(flat, pattern.size, self.max_neighbourhood)
            caps.cut[f"{pattern.name} over {self.max_neighbourhood} nodes"] += over
        # One set per node at this point, in the random node order of the search.
        sets = sets.take(flat.by_original_number())
        return distinct(sets) if self.distinct_neighbourhoods else sets
