"""NAGphormer: a transformer over the neighbourhoods of each node, one token per hop.

Chen et al., "NAGphormer: A Tokenized Graph Transformer for Node Classification in Large Graphs", ICLR 2023,
arXiv 2206.04910.

Legend: T nodes of all graphs, K hops, H heads, d head width, dim = H d.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, PositionalEncoder, Representation
from graphbench.errors import check_divides, check_range
from graphbench.nn import FeedForward, attend
from graphbench_large_graphs.inputs import InputFeatures
from graphbench_large_graphs.propagation import WeightedEdges, symmetric_edges


class HopLayer(nn.Module):
    """A pre-norm transformer layer over the K + 1 tokens of each node; the feed-forward network has GELU.

        y = x + Drop(attention(LN(x)))        x' = y + Drop(W2 GELU(W1 LN(y)))

    Args:
        dim: width of the tokens.
        num_heads: heads H; must divide `dim`.
        dropout: probability of Drop.
        attention_dropout: probability of dropping an attention weight.

    Examples:
        >>> HopLayer(8, num_heads=2, dropout=0.0, attention_dropout=0.0)(torch.randn(5, 4, 8)).shape
        torch.Size([5, 4, 8])
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, attention_dropout: float) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv_map = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        # Dropout only on the branch, as in the authors' code.
        self.feed_forward = FeedForward(dim, 2 * dim, dropout, "gelu", activation_dropout=0.0)
        self.dropout, self.attention_dropout = nn.Dropout(dropout), attention_dropout

    def forward(self, tokens: Tensor) -> Tensor:
        """Return tokens `[T, K + 1, dim]`."""
        projected = self.qkv_map(self.attention_norm(tokens)).unflatten(-1, (3, self.num_heads, -1))
        # Nodes are the batch of this attention: a node sees only its own hops.
        q, k, v = projected.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attend(q, k, v, dropout=self.attention_dropout if self.training else 0.0)
        tokens = tokens + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return tokens + self.feed_forward(self.feed_forward_norm(tokens))


class NAGphormer(Architecture):
    """NAGphormer (Chen et al., ICLR 2023); defaults are for Pubmed without its eigenvectors.

    Token k of a node is `W A^k features + b`, A the normalised adjacency matrix with self-loops. After the layers and a
    layer norm, `x = t_0 + sum_k softmax_k(a . [t_0, t_k]) t_k` over hops k from 1. The published head is
    `{num_layers: 2, width: halving}`. Hops are summed in every forward pass, so that learned positions can enter. W is
    applied first, which changes only the width of the sums.

    Time and memory: `B (k E d + L N (k d^2 + k^2 (d + H)))`, `B (E d + L N (k d + H k^2))`.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the tokens.
        num_layers: layers, see `HopLayer`.
        num_heads: heads; must divide `hidden_dim`.
        num_hops: hops K.
        dropout: probability of dropout.
        attention_dropout: probability of dropping an attention weight.
        positional_encoders: their outputs are concatenated to the node features; eigenvectors in the paper.

    Raises:
        BadInput: an option is out of range, or `num_heads` does not divide `hidden_dim`.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> model = NAGphormer(tiny_spec(), hidden_dim=16)
        >>> model(tiny_batch(model)).node.shape  # 4 graphs of a few nodes
        torch.Size([23, 16])
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int = 512,
        num_layers: int = 1,
        num_heads: int = 8,
        num_hops: int = 7,
        dropout: float = 0.1,
        attention_dropout: float = 0.1,
        positional_encoders: list[PositionalEncoder] | None = None,
    ) -> None:
        super().__init__(spec, hidden_dim)
        check_range("num_hops", num_hops, at_least=1, whole=True)
        check_divides("num_heads", num_heads, "hidden_dim", hidden_dim)
        self.num_hops = num_hops
        self.inputs = InputFeatures(spec, positional_encoders or ())
        self.input_map = nn.Linear(self.inputs.dim, hidden_dim)
        self.layers = nn.ModuleList(
            HopLayer(hidden_dim, num_heads, dropout, attention_dropout) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(hidden_dim)
        self.readout = nn.Linear(2 * hidden_dim, 1)
        for module in (self.input_map, self.readout, *self.layers.modules()):
            # The authors' initial values, from Graphormer.
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02 / math.sqrt(num_layers))
                nn.init.zeros_(module.bias)

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`."""
        # Without the bias, which edges would scale by sums of their weights; `_tokens` adds it after the hops.
        x = F.linear(self.inputs(batch, self.input_map.weight.dtype), self.input_map.weight)
        tokens = self._tokens(x, symmetric_edges(batch, x.dtype))
        for layer in self.layers:
            tokens = layer(tokens)
        tokens = self.norm(tokens)
        centre, hops = tokens[:, :1], tokens[:, 1:]
        # Over hops; the bias of the map cancels in the softmax, and exists because the authors' map has it.
        weights = self.readout(torch.cat([centre.expand_as(hops), hops], dim=-1)).softmax(1)
        return Representation(node=centre.squeeze(1) + (weights * hops).sum(1))

    def _tokens(self, x: Tensor, edges: WeightedEdges) -> Tensor:
        """Sum hops to tokens `[T, K + 1, dim]` of mapped features `[T, dim]` without bias."""
        hops = [x]
        for _ in range(self.num_hops):
            hops.append(edges.mix(hops[-1]))
        return torch.stack(hops, dim=1) + self.input_map.bias
