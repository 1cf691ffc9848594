"""Encode pairs of nodes by the probabilities of random walks between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from torch import Tensor

from graphbench.contracts import Column, Encoded, Encoding, GraphTable
from graphbench.contracts.table import EDGE, PAIR, pointer
from graphbench.encodings._dense import SizeBlock, few_threads, size_blocks
from graphbench.errors import check_choice, check_range

Rows = Literal["pairs", "edges"]


class RRWP(Encoding):
    """Relative random-walk probabilities (P^k)_ij, P = D^-1 A, k = 1 .. num_steps (Ma et al., ICML 2023, section 3.1).

    The paper's k = 0 is omitted: it says whether i = j, which a reader of pairs knows. The walk follows the edges as in
    `RWSE`, whose values are the entries with i = j.

    Field: `rrwp [pairs, num_steps]` (pair `i * n + j` of a graph: from i to j), or `edge_rrwp [num_edges, num_steps]`
    (from the source of the edge to its target), float32. The pairs of a graph of 100 nodes use 0.8 MB with 20 steps.

    Args:
        num_steps: longest walk.
        rows: pairs: all pairs of nodes; edges: only the two ends of every edge.

    Raises:
        BadInput: `num_steps` is below 1, `rows` is unknown, or an edge refers to a node that its graph does not have.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> table = GraphTable.from_graphs([{"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}])
        >>> RRWP(2).compute(table).columns["rrwp"][:, 1].view(3, 3)  # after two steps of the path 0 - 1 - 2
        tensor([[0.5000, 0.0000, 0.5000],
                [0.0000, 1.0000, 0.0000],
                [0.5000, 0.0000, 0.5000]])
        >>> RRWP(1, rows="edges").compute(table).columns["edge_rrwp"].flatten()
        tensor([1.0000, 0.5000, 0.5000, 1.0000])
    """

    def __init__(self, num_steps: int = 20, rows: Rows = "pairs") -> None:
        check_range(f"{self.name}: num_steps", num_steps, at_least=1, whole=True)
        check_choice(f"{self.name}: rows", rows, get_args(Rows))
        self.num_steps = int(num_steps)
        self.rows: Rows = rows

    @property
    def layout(self) -> Mapping[str, Column]:
        """Return the layout: one row per pair or per edge."""
        return {"rrwp": Column(PAIR)} if self.rows == "pairs" else {"edge_rrwp": Column(EDGE)}

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Count a number per pair and step, or the matrices of a product for edges."""
        return 8 * num_nodes**2 * (self.num_steps if self.rows == "pairs" else 4)

    def compute(self, graphs: GraphTable) -> Encoded:
        """Multiply `[b, n, n]` stacks `num_steps - 1` times per block of equally sized graphs."""
        starts = pointer(graphs.num_nodes**2) if self.rows == "pairs" else graphs.ptr[EDGE]
        walks = torch.zeros(int(starts[-1]), self.num_steps, dtype=torch.float32)
        with few_threads(graphs):
            for block in size_blocks(graphs):
                adjacency = block.adjacency()
                transition = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
                rows, cells = self._places(block, starts)
                # One product per step: RWSE's baby and giant steps save some because it reads only diagonals.
                power = transition
                for step in range(self.num_steps):
                    if step:
                        power = power @ transition
                    values = power.flatten()
                    walks[rows, step] = (values if cells is None else values[cells]).float()
        return Encoded({next(iter(self.layout)): walks})

    def _places(self, block: SizeBlock, starts: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return rows of the result, and the cells of the `[b, n, n]` stack for them; None for all, in order."""
        n = block.num_nodes
        if self.rows == "pairs":
            return block.rows(starts, n**2), None
        # `source` is g n + i and `target` g n + j, so the cell (g, i, j) of the stack is g n^2 + i n + j.
        return starts[block.graphs][block.source // n] + block.edge, block.source * n + block.target % n
