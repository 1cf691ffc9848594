"""Inputs of the first layer: documents in reading order, features, places and the token of the whole document.

Legend: T tokens of all graphs, D documents: one per graph, or two if a graph contains a pair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, Features, GraphBatch
from graphbench.contracts.devices import widest_dtype
from graphbench.errors import BadInput, check_choice
from graphbench.nn import NodeEncoder

TokenName = Literal["categories", "values"]
PositionName = Literal["sinusoidal", "learned", "none"]
#: Initial standard deviation of learned places, in the arena's code.
_POSITION_STD = 0.02
#: Categorical column with the document of a token, 0 or 1.
TOWER = "tower"


class TokenEncoder(nn.Module):
    """Encode token features as vectors, without places and the column that distinguishes two documents.

    Args:
        spec: the benchmark's description.
        dim: width of the result.
        tokens: `categories`, each with a learned vector, initially standard normal; or `values`: a grey value or byte v
            of V enters a linear map as `2 v / (V - 1) - 1`.

    Raises:
        BadInput: `tokens` is unknown, or `values` for a benchmark without exactly one categorical column.

    Examples:
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> spec = tiny_spec("graph-classification", "sequence")
        >>> TokenEncoder(spec, 8)(tiny_table(spec, sizes=[3, 4]).batch([0, 1])).shape
        torch.Size([7, 8])
    """

    def __init__(self, spec: BenchmarkSpec, dim: int, tokens: TokenName = "categories") -> None:
        super().__init__()
        check_choice("tokens", tokens, get_args(TokenName))
        tower = tower_column(spec)
        self.columns = [column for column in range(len(spec.node.vocabularies)) if column != tower]
        vocabularies = tuple(spec.node.vocabularies[column] for column in self.columns)
        self.largest = None
        features = Features(vocabularies, dense=spec.node.dense)
        if tokens == "values":
            if len(vocabularies) != 1 or spec.node.dense or vocabularies[0] < 2:
                raise BadInput(
                    f"tokens: values needs one categorical column of two values or more, but {spec.name} has columns "
                    f"of {list(vocabularies)} values and {spec.node.dense} dense ones. Use tokens: categories."
                )
            self.largest, features = vocabularies[0] - 1, Features(dense=1)
        self.encoder = NodeEncoder(replace(spec, node=features), dim, categorical="normal")

    def forward(self, batch: GraphBatch) -> Tensor:
        """Encode nodes `[num_nodes, dim]`."""
        x, dense = batch.get("x"), batch.get("x_dense")
        if self.columns:
            columns = [batch.x[:, column] for column in self.columns]  # a list as index would force a host-device sync
            x = torch.stack(columns, 1)
        if self.largest is not None:
            dense = x.float() * (2 / self.largest) - 1
        return self.encoder.encode(x, dense, batch)


class Positions(nn.Module):
    """Add places to tokens: `x + P[place]`.

    * sinusoidal: `P[i, 2 j] = sin(i / 10000^(2 j / dim))`, `P[i, 2 j + 1] = cos` of the same, not learned;
    * learned: a table of `max_length` rows, initially normal with standard deviation 0.02;
    * none: unchanged tokens.

    Args:
        name: see above.
        dim: width of the tokens.
        max_length: number of places of a learned table.

    Raises:
        BadInput: the name is unknown.

    Examples:
        >>> Positions("sinusoidal", dim=4, max_length=9)(torch.zeros(2, 4), torch.tensor([0, 0]))
        tensor([[0., 1., 0., 1.],
                [0., 1., 0., 1.]])
    """

    def __init__(self, name: PositionName, dim: int, max_length: int) -> None:
        super().__init__()
        check_choice("positions", name, get_args(PositionName))
        self.name: PositionName = name
        self.table = nn.Parameter(torch.empty(max_length, dim)) if name == "learned" else None
        if self.table is not None:
            nn.init.normal_(self.table, std=_POSITION_STD)

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        """Add places `[T]` to tokens `[T, dim]`."""
        if self.table is not None:
            return x + self.table[place].to(x.dtype)
        if self.name == "none":
            return x
        return x + sinusoids(place, x.shape[1]).to(x.dtype)


def sinusoids(place: Tensor, dim: int) -> Tensor:
    """Compute sines and cosines of places `[..., dim]`, see `Positions`; an odd `dim` drops a cosine.

    Computed in float64, on an Apple GPU in float32.

    Examples:
        >>> sinusoids(torch.tensor([1]), 3)
        tensor([[0.8415, 0.5403, 0.0022]], dtype=torch.float64)
    """
    # In float32 angles in the thousands, and so their sines, would have errors of 1e-4.
    exponent = torch.arange(0, dim, 2, device=place.device, dtype=widest_dtype(place.device)) / dim
    angle = place.unsqueeze(-1) * torch.exp(exponent * -math.log(10_000.0))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[..., :dim]


def halved_sinusoids(place: Tensor, dim: int) -> Tensor:
    """Compute sines of places, then their cosines, `[..., dim]`, as in fairseq, which Luna is based on.

    With `h = dim // 2` columns j of either kind the angle is `i / 10000^(j / (h - 1))`: the slowest turns by a 10,000th
    per place, that of `sinusoids` slightly faster. An odd `dim` ends in a column of zeros. Precision as in `sinusoids`.

    Examples:
        >>> halved_sinusoids(torch.tensor([1]), 4)
        tensor([[8.4147e-01, 1.0000e-04, 5.4030e-01, 1.0000e+00]], dtype=torch.float64)
    """
    half = dim // 2
    exponent = torch.arange(half, device=place.device, dtype=widest_dtype(place.device)) / max(half - 1, 1)
    angle = place.unsqueeze(-1) * torch.exp(exponent * -math.log(10_000.0))
    return F.pad(torch.cat([angle.sin(), angle.cos()], dim=-1), (0, dim % 2))


def check_sequences(spec: BenchmarkSpec) -> None:
    """Check that the nodes of a benchmark have an order.

    Raises:
        BadInput: nodes do not have one coordinate, the place in a sequence.

    Examples:
        >>> from graphbench.testing import tiny_spec
        >>> check_sequences(tiny_spec())  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        graphbench.errors.BadInput: tiny-graph-regression-both is no benchmark of sequences: ...
    """
    if spec.coordinates != 1:
        raise BadInput(
            f"{spec.name} is no benchmark of sequences: its nodes have {spec.coordinates} coordinates, but a sequence "
            "needs one, the place of a token. Use ListOps, Text, Retrieval, SequentialImage or Pathfinder."
        )


def tower_column(spec: BenchmarkSpec) -> int | None:
    """Find the categorical column that distinguishes two documents; None if a graph is one document."""
    names = spec.node.names[: len(spec.node.vocabularies)]
    return names.index(TOWER) if TOWER in names else None


@dataclass(frozen=True)
class Documents:
    """Tokens in reading order: by document, then by ascending place.

    Args:
        order: row in the batch of each token `[T]`.
        document: document of each token `[T]`, ascending.
        ptr: first token of each document `[D + 1]`.
        max_length: tokens of the longest one.
    """

    order: Tensor
    document: Tensor
    ptr: Tensor
    max_length: int

    @classmethod
    def of(cls, batch: GraphBatch, tower: int | None) -> Documents:
        """Find the documents of a batch; those of a pair are adjacent, and one of them may be empty.

        Nodes are sorted by `pos`, whatever their order in the batch.

        Args:
            batch: graphs with `pos [num_nodes, 1]`.
            tower: number of the column that distinguishes the documents of a pair; None without pairs.

        Examples:
            >>> from graphbench import GraphTable
            >>> graph = {"num_nodes": 3, "edge_index": torch.zeros(2, 0, dtype=torch.long)}
            >>> graph |= {"x": torch.tensor([[7], [8], [9]]), "pos": torch.tensor([[2.0], [0.0], [1.0]])}
            >>> Documents.of(GraphTable.from_graphs([graph]).batch([0]), tower=None).order
            tensor([1, 2, 0])
        """
        # Two stable sorts: by document, and by place within each.
        graph, by_place = batch.batch, batch.pos[:, 0].argsort(stable=True)
        if tower is None:
            return cls(by_place[graph[by_place].argsort(stable=True)], graph, batch.ptr, batch.max_nodes)
        document, inner = (2 * graph + batch.x[:, tower])[by_place].sort(stable=True)
        sizes = torch.bincount(document, minlength=2 * batch.num_graphs)
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return cls(by_place[inner], document, ptr, int(sizes.max()))

    @property
    def place(self) -> Tensor:
        """Place of each token in its document `[T]`: 0, 1, 2, ..."""
        return torch.arange(len(self.order), device=self.order.device) - self.ptr[self.document]

    def to_nodes(self, x: Tensor) -> Tensor:
        """Reorder rows of tokens `[T, d]` to rows of the batch `[num_nodes, d]`."""
        return torch.empty_like(x).index_copy(0, self.order, x)
