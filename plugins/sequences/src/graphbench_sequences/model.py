"""The base of all sequence models: tokens, layers, one vector per document, pairs of documents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import global_mean_pool

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.nn import DenseLayout
from graphbench_sequences.attention import draw_xavier
from graphbench_sequences.tokens import (
    Documents,
    PositionName,
    Positions,
    TokenEncoder,
    TokenName,
    check_sequences,
    tower_column,
)

PoolingName = Literal["cls", "mean"]
InteractionName = Literal["concatenate", "NLI"]
PairActivation = Literal["relu", "gelu"]


def longest_document(spec: BenchmarkSpec, max_length: int | None) -> int:
    """Return `max_length` if given, else the length of the benchmark's longest document.

    Raises:
        BadInput: neither is given, or `max_length` is out of range.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> longest_document(tiny_spec(), None), longest_document(tiny_spec(), 100)
        (24, 100)
    """
    if max_length is not None:
        check_range("max_length", max_length, at_least=1, whole=True)
        return max_length
    if spec.max_nodes is None:
        raise BadInput(f"max_length must be given: {spec.name} does not specify the length of its sequences.")
    return spec.max_nodes


class PairReadout(nn.Module):
    """Join the vectors of two documents: `act(W [a, b] + c)`, or with `[a, b, a * b, a - b]` for NLI.

    Args:
        dim: width of the vectors.
        interaction: concatenate or NLI.
        activation: act is relu or gelu.

    Raises:
        BadInput: `activation` is unknown.

    Examples:
        >>> PairReadout(8, "NLI")(torch.randn(6, 8)).shape
        torch.Size([3, 8])
    """

    def __init__(
        self, dim: int, interaction: InteractionName = "concatenate", activation: PairActivation = "relu"
    ) -> None:
        super().__init__()
        check_choice("activation", activation, get_args(PairActivation))
        self.interaction: InteractionName = interaction
        self.activation: Callable[[Tensor], Tensor] = F.relu if activation == "relu" else F.gelu
        self.linear = nn.Linear((2 if interaction == "concatenate" else 4) * dim, dim)
        draw_xavier(self.linear.weight)

    def forward(self, documents: Tensor) -> Tensor:
        """Join documents `[2 G, dim]`, those of a graph next to each other, into graphs `[G, dim]`."""
        a, b = documents.unflatten(0, (-1, 2)).unbind(1)
        parts = [a, b] if self.interaction == "concatenate" else [a, b, a * b, a - b]
        return self.activation(self.linear(torch.cat(parts, dim=-1)))


class SequenceModel(Architecture):
    """Layers over the tokens of each document, in the order of their places; subclasses build the layers.

    If nodes have a column "tower", the two documents of a graph are processed separately with the same weights and
    joined in `PairReadout`. Edges are ignored.

    Args:
        spec: the benchmark's description.
        hidden_dim: width of the tokens.
        layers: layers, each called with tokens `[T, hidden_dim]` and their `DenseLayout`.
        final_norm: norm after the last layer; None for none.
        tokens: see `TokenEncoder`.
        positions: see `Positions`.
        pooling: `cls`, a learned token before the first one (initially zero), or the `mean` of the tokens.
        interaction, pair_activation: see `PairReadout`.
        dropout: probability of dropping an entry of the tokens before the first layer.
        max_length: maximum number of tokens in a document; None for any.

    Raises:
        BadInput: the benchmark has no sequences, or an option is unknown.
    """

    def __init__(
        self,
        spec: BenchmarkSpec,
        hidden_dim: int,
        layers: Sequence[nn.Module],
        final_norm: nn.Module | None,
        *,
        tokens: TokenName = "categories",
        positions: PositionName = "sinusoidal",
        pooling: PoolingName = "cls",
        interaction: InteractionName = "concatenate",
        pair_activation: PairActivation = "relu",
        dropout: float = 0.0,
        max_length: int | None = None,
    ) -> None:
        check_sequences(spec)
        super().__init__(spec, hidden_dim)
        check_choice("pooling", pooling, get_args(PoolingName))
        check_choice("interaction", interaction, get_args(InteractionName))
        self.dropout = nn.Dropout(dropout)
        self.max_length = longest_document(spec, max_length) if positions == "learned" else max_length
        self.tower = tower_column(spec)
        self.token_encoder = TokenEncoder(spec, hidden_dim, tokens)
        self.cls = nn.Parameter(torch.zeros(1, hidden_dim)) if pooling == "cls" else None
        self.positions = Positions(positions, hidden_dim, (self.max_length or 0) + (self.cls is not None))
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm
        self.aggregates = spec.level == "graph"
        paired = self.aggregates and self.tower is not None
        self.pair = PairReadout(hidden_dim, interaction, pair_activation) if paired else None

    def forward(self, batch: GraphBatch) -> Representation:
        """Return nodes `[num_nodes, hidden_dim]`; for graph tasks also graphs `[num_graphs, hidden_dim]`.

        Raises:
            BadInput: a document is longer than `max_length`.
        """
        documents = Documents.of(batch, self.tower)
        if self.max_length is not None and documents.max_length > self.max_length:
            raise BadInput(
                f"max_length must be at least the length of the longest sequence, but got {self.max_length} and a "
                f"sequence of {documents.max_length:,} tokens."
            )
        x, layout, rows = self._add_cls(self.token_encoder(batch)[documents.order], documents)
        # Tokens are in reading order; a learned token before them has place 0.
        place = torch.arange(x.shape[0], device=x.device) - layout.ptr[layout.graph_of]
        x = self.dropout(self.positions(x, place))
        for layer in self.layers:
            x = layer(x, layout)
        if self.final_norm is not None:
            x = self.final_norm(x)
        node = x if rows is None else x[rows]
        graph = self._pool_documents(x, node, layout, documents) if self.aggregates else None
        # Put nodes back into the rows of the batch, as losses and metrics expect.
        return Representation(documents.to_nodes(node), graph=graph if self.pair is None else self.pair(graph))

    def _add_cls(self, x: Tensor, documents: Documents) -> tuple[Tensor, DenseLayout, Tensor | None]:
        """Prepend the learned token to each document; return all tokens, their layout, and the rows of the others."""
        ptr, document, longest = documents.ptr, documents.document, documents.max_length
        room = None if self.max_length is None else self.max_length + (self.cls is not None)
        if self.cls is None:
            if self.tower is not None:  # one document of a pair may be empty
                ptr, document = ptr.unique_consecutive(), document.unique_consecutive(return_inverse=True)[1]
            return x, DenseLayout.from_rows(document, ptr, longest, room), None
        number = torch.arange(ptr.shape[0], device=ptr.device)
        rows = torch.arange(x.shape[0], device=x.device) + document + 1
        first, ptr = ptr[:-1] + number[:-1], ptr + number
        learned = self.cls.to(x.dtype).expand(first.shape[0], -1)
        joined = x.new_zeros(x.shape[0] + first.shape[0], x.shape[1])
        joined = joined.index_copy(0, rows, x).index_copy(0, first, learned)
        graph_of = torch.repeat_interleave(number[:-1], ptr.diff(), output_size=joined.shape[0])
        return joined, DenseLayout.from_rows(graph_of, ptr, longest + 1, room), rows

    def _pool_documents(self, x: Tensor, node: Tensor, layout: DenseLayout, documents: Documents) -> Tensor:
        """Pool one vector per document `[D, hidden_dim]`; the mean of no tokens is zero."""
        if self.cls is not None:
            return x[layout.ptr[:-1]]
        return global_mean_pool(node, documents.document, size=documents.ptr.shape[0] - 1)
