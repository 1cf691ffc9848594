"""Who attends to whom and with which bias; built once per forward pass and shared by all layers.

Legend: G graphs, N padded tokens, H heads, P node pairs, K memberships of nodes in sampled substructures.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.nn import EMBEDDING_STD, FAIRSEQ_TABLES, PairBias
from graphbench_deepgraph.tokens import TokenLayout

#: Edges of a shortest path that enter the edge term.
MAX_HOPS = 5
#: Rows of the table of what is not a node pair.
_HIDDEN, _GRAPH, _MEMBER = range(3)


class RelativeBias(PairBias):
    """What is added to attention logits, minus infinity where no attention is allowed: `[G, H, N, N]`.

    | query, key | bias of head h |
    |---|---|
    | node, node | `D[distance, h]` + edge term, see `PairBias` |
    | graph token, any; any, graph token | `t[h]` |
    | substructure, its node; node, its substructure | `m[h]` |
    | everything else | minus infinity |

    So nodes attend to all nodes of their graph, but a substructure to its own nodes and the graph token only, not even
    to itself (section 5). Padded queries see the graph token, which keeps their softmax finite.

    Args:
        spec: the benchmark's description.
        num_heads: heads H.
        max_distance: larger distances share its row; unreachable pairs have their own.
        members: whether there are substructures.
        released: take the released tables, see `ReleasedTables`; substructures then share the row of pairs that no path
            joins.

    Raises:
        BadInput: the released tables cannot hold the features.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> bias = RelativeBias(tiny_spec(kind="categorical"), num_heads=4, max_distance=5)
        >>> tuple(bias.distance.weight.shape)  # distances 0 to 5, and pairs without a path
        (7, 4)
    """

    def __init__(
        self, spec: BenchmarkSpec, num_heads: int, max_distance: int, members: bool = True, released: bool = False
    ) -> None:
        super().__init__(spec, num_heads, max_distance, MAX_HOPS, FAIRSEQ_TABLES if released else None)
        self.member = nn.Parameter(torch.empty(1, num_heads)) if members and not released else None
        self.graph = nn.Parameter(torch.empty(1, num_heads))
        for row in (self.member, self.graph):
            if row is not None:
                nn.init.normal_(row, std=EMBEDDING_STD)

    @property
    def member_row(self) -> Tensor:
        """The bias between a substructure and its nodes `[1, H]`."""
        if self.member is not None:
            return self.member
        return self.distance.weight[self.paths.unreachable, None]

    def forward(self, batch: GraphBatch, tokens: TokenLayout) -> Tensor:
        """The bias `[G, H, N, N]` in the precision of the parameters, rows are queries."""
        hidden = torch.full_like(self.graph, -torch.inf)
        others = F.embedding(_codes(tokens), torch.cat([hidden, self.graph, self.member_row]))
        return self.place(batch, tokens.dense.index[tokens.node], others)


def _codes(tokens: TokenLayout) -> Tensor:
    """What stands at each pair of slots, node pairs left out: `_HIDDEN`, `_GRAPH` or `_MEMBER` `[G, N, N]`."""
    dense, padded = tokens.dense, tokens.dense.max_nodes
    codes = torch.full((dense.num_graphs * padded**2,), _HIDDEN, device=dense.index.device)
    node, substructure = dense.index[tokens.member_node], dense.index[tokens.member_substructure]
    codes[substructure * padded + node % padded] = _MEMBER
    codes[node * padded + substructure % padded] = _MEMBER
    graph = dense.index[tokens.graph]
    everything = torch.arange(dense.num_graphs * padded, device=codes.device)
    codes[everything * padded + (graph % padded).repeat_interleave(padded)] = _GRAPH
    codes[graph[tokens.batch] * padded + dense.index % padded] = _GRAPH
    return codes.view(dense.num_graphs, padded, padded)
