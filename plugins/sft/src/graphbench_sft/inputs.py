"""Inputs of the tokens and of the scores, and the two documents of a graph (SFT, section 5.2 and appendix D.1)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import BenchmarkSpec, Features, GraphBatch, PositionalEncoder
from graphbench.errors import BadInput, check_choice
from graphbench.nn import Categorical, DenseLayout, NodeEncoder, count_nodes
from graphbench_sft.attention import Relation
from graphbench_sft.relative import (
    DistanceRelation,
    PositionRelation,
    edge_relations,
)

RelativeName = Literal["edges", "distances", "positions", "none"]
EdgeColumns = Literal["one_hot", "numbers"]
NORMALS = ("normal_x", "normal_y", "normal_z")
#: Categorical column with the document of a token, 0 or 1.
TOWER = "tower"


def relative_width(spec: BenchmarkSpec, numbers: bool = False) -> int:
    """Return the width r of `relative_features`."""
    categorical = len(spec.edge.vocabularies) if numbers else sum(spec.edge.vocabularies)
    return categorical + spec.edge.dense + 1


def relative_features(spec: BenchmarkSpec, batch: GraphBatch, numbers: bool = False) -> Tensor:
    """Join edge features for relative terms `[num_edges, r]`: one-hot and dense columns, and a 1 for the adjacency.

    Args:
        spec: the benchmark's description.
        batch: graphs with edges.
        numbers: encode categorical columns as their numbers, not one-hot.
    """
    parts = []
    if spec.edge.vocabularies and numbers:
        parts.append(batch.edge_attr.float())
    elif spec.edge.vocabularies:
        columns = zip(batch.edge_attr.unbind(1), spec.edge.vocabularies, strict=True)
        parts += [F.one_hot(column, size) for column, size in columns]
    if spec.edge.dense:
        parts.append(batch.edge_dense)
    parts.append(torch.ones(batch.edge_index.shape[1], 1, device=batch.edge_index.device, dtype=torch.float32))
    return torch.cat(parts, dim=1)


def sinusoids(position: Tensor, width: int) -> Tensor:
    """Compute sines and cosines of positions (SFT, equations 23 and 24).

    `S[i, 2j] = sin(i / 10000^(j / width))`, `S[i, 2j + 1] = cos(i / 10000^(j / width))`, `2j < width`.

    Args:
        position: `[..., c]`.
        width: numbers per coordinate, even.

    Returns:
        `[..., c * width]`.
    """
    # j / width, as printed. The usual sinusoids have 2j / width; wavelengths here reach 2 pi 100, not 2 pi 10,000.
    exponent = torch.arange(width // 2, device=position.device, dtype=position.dtype) / width
    angle = position.unsqueeze(-1) * 10_000.0**-exponent
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-3)


def sinusoid_width(spec: BenchmarkSpec, dim: int) -> int:
    """Return the numbers per coordinate for about `dim` in total; even, at least 2."""
    return max(2, dim // spec.coordinates // 2 * 2)


class TokenEncoder(nn.Module):
    """Encode the tokens before the first layer.

    * relative edges: the node features;
    * relative distances: the rotation-invariant features, so neither positions nor normals; if nothing is left, one
      learned row, which equals a linear map of the paper's inputs of ones;
    * relative positions: the node features without their place;
    * none: features and place. A place of one coordinate enters as sinusoids, one of several coordinates unchanged.

    With `places_in_tokens` features and place always enter.

    Args:
        spec: the benchmark's description.
        dim: width of the tokens.
        relative: relative information in the scores.
        positional_encoders: encoders whose outputs are concatenated to the encoded features.
        categorical: how categorical features enter.
        places_in_tokens: let places and normals enter the tokens even if the scores have them.

    Raises:
        BadInput: `places_in_tokens` for a benchmark whose nodes have no place.
    """

    codes: Tensor
    dense: Tensor

    def __init__(
        self,
        spec: BenchmarkSpec,
        dim: int,
        relative: RelativeName,
        positional_encoders: Sequence[PositionalEncoder] = (),
        categorical: Categorical = "one_hot",
        places_in_tokens: bool = False,
    ) -> None:
        super().__init__()
        if places_in_tokens and not spec.coordinates:
            raise BadInput(f"places_in_tokens needs nodes with a position, but {spec.name} has none. Omit it.")
        names, dense_names = _column_names(spec.node)
        codes = [number for number, name in enumerate(names) if name != TOWER]
        hidden = NORMALS if relative == "distances" and not places_in_tokens else ()
        dense = [number for number, name in enumerate(dense_names) if name not in hidden]
        # Tensors on the device: a list would be copied there in every step.
        self.register_buffer("codes", torch.tensor(codes, dtype=torch.int64), persistent=False)
        self.register_buffer("dense", torch.tensor(dense, dtype=torch.int64), persistent=False)
        self.placed = (relative == "none" or places_in_tokens) and spec.coordinates > 0
        self.wave_width = sinusoid_width(spec, dim) if spec.coordinates == 1 else None
        place = (self.wave_width or spec.coordinates) if self.placed else 0
        vocabularies = tuple(spec.node.vocabularies[number] for number in codes)
        inputs = replace(spec, node=Features(vocabularies, dense=len(dense) + place))
        self.encoder = NodeEncoder(
            # NodeEncoder reads the positions of nodes without features; without coordinates it learns one row.
            inputs if relative == "edges" and not self.placed else replace(inputs, coordinates=0),
            dim,
            positional_encoders,
            categorical,
        )
        #: Whether places enter, here or in the encoder.
        self.reads_position = self.placed or self.encoder.reads_position

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return tokens `[num_nodes, dim]`."""
        codes = batch.x.index_select(1, self.codes) if len(self.codes) else None
        parts = [batch.x_dense.index_select(1, self.dense)] if len(self.dense) else []
        if self.placed:
            parts.append(batch.pos if self.wave_width is None else sinusoids(batch.pos, self.wave_width))
        return self.encoder.encode(codes, torch.cat(parts, dim=1) if parts else None, batch)

    def columns(self, batch: GraphBatch) -> list[Tensor]:
        """Return the input features without places and positional encodings, each `[num_nodes, c]`."""
        codes = [batch.x.index_select(1, self.codes)] if len(self.codes) else []
        return codes + ([batch.x_dense.index_select(1, self.dense)] if len(self.dense) else [])


def _column_names(features: Features) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the categorical and of the dense columns; "" if the specification has none."""
    count = len(features.vocabularies)
    names = features.names + ("",) * (count + features.dense - len(features.names))
    return names[:count], names[count:]


class EdgeInformation(nn.Module):
    """Edge features and a 1 on edges; zero between other nodes.

    Args:
        spec: the benchmark's description.
        numbers: encode categorical features as their numbers, not one-hot.
    """

    def __init__(self, spec: BenchmarkSpec, numbers: bool = False) -> None:
        super().__init__()
        self.spec, self.numbers = spec, numbers
        self.dim = relative_width(spec, numbers)

    def forward(self, batch: GraphBatch, layout: DenseLayout) -> tuple[Relation, ...]:
        """Return one relation for each of `layout.blocks`."""
        return edge_relations(batch.edge_index, relative_features(self.spec, batch, self.numbers), layout)


class DistanceInformation(nn.Module):
    """Squared distances, and dot products of normals if the benchmark has them.

    Args:
        spec: the benchmark's description.
    """

    def __init__(self, spec: BenchmarkSpec) -> None:
        super().__init__()
        _, names = _column_names(spec.node)
        self.normals = [names.index(name) for name in NORMALS] if set(NORMALS) <= set(names) else []
        self.dim = 2 if self.normals else 1

    def forward(self, batch: GraphBatch, layout: DenseLayout) -> tuple[Relation, ...]:
        """Return one relation for each of `layout.blocks`."""
        position = layout.to_blocks(batch.pos)
        normal = (
            layout.to_blocks(torch.stack([batch.x_dense[:, column] for column in self.normals], dim=1))
            if self.normals
            else [None] * len(position)
        )
        return tuple(map(DistanceRelation, position, normal))


class PositionInformation(nn.Module):
    """Products of sinusoids, mapped linearly to one number per head; all layers share the map.

    Parameters: `H (c width + 1)` for c coordinates.

    Args:
        spec: the benchmark's description.
        dim: width of the tokens, and approximate width of the sinusoids.
        num_heads: heads H.
    """

    def __init__(self, spec: BenchmarkSpec, dim: int, num_heads: int) -> None:
        super().__init__()
        self.wave_width = sinusoid_width(spec, dim)
        self.linear = nn.Linear(spec.coordinates * self.wave_width, num_heads)
        self.dim = num_heads

    def forward(self, batch: GraphBatch, layout: DenseLayout) -> tuple[Relation, ...]:
        """Return one relation for each of `layout.blocks`."""
        waves = sinusoids(batch.pos, self.wave_width)
        parts = layout.to_blocks(waves)
        return tuple(PositionRelation(part, self.linear.weight, self.linear.bias) for part in parts)


def relative_information(
    spec: BenchmarkSpec, name: RelativeName, dim: int, num_heads: int, edges: EdgeColumns = "one_hot"
) -> EdgeInformation | DistanceInformation | PositionInformation | None:
    """Create the relative information of token pairs; None for `none`.

    Raises:
        BadInput: the name is unknown, or needs places that the benchmark lacks.
    """
    check_choice("relative", name, get_args(RelativeName))
    check_choice("edge_columns", edges, get_args(EdgeColumns))
    if name in ("distances", "positions") and not spec.coordinates:
        raise BadInput(f"relative: {name} needs nodes with a position, but {spec.name} has none. Use relative: edges.")
    if name == "none":
        return None
    if name == "edges":
        return EdgeInformation(spec, edges == "numbers")
    if name == "distances":
        return DistanceInformation(spec)
    return PositionInformation(spec, dim, num_heads)


def has_towers(spec: BenchmarkSpec) -> bool:
    """Return whether a categorical column of the nodes distinguishes two documents."""
    return TOWER in spec.node.names[: len(spec.node.vocabularies)]


def longest_document(batch: GraphBatch, spec: BenchmarkSpec) -> int:
    """Return the size of the largest document of a batch, see `split_documents`."""
    document = 2 * batch.batch + batch.x[:, spec.node.names.index(TOWER)]
    return int(count_nodes(document, 2 * batch.num_graphs).max())


def split_documents(batch: GraphBatch, spec: BenchmarkSpec) -> tuple[GraphBatch, Tensor]:
    """Split a batch into `2 num_graphs` documents: the first and the second of each graph; one may be empty.

    `x`, `x_dense`, `pos`, `batch`, `ptr`, `num_graphs` and `max_nodes` describe the documents. Edges and encodings are
    not split, since models of documents read neither.

    Args:
        batch: graphs whose column "tower" contains 0 or 1, with `longest_document`.
        spec: their description.

    Returns:
        The documents, and the row in `batch` of each of their rows `[num_nodes]`.
    """
    document = 2 * batch.batch + batch.x[:, spec.node.names.index(TOWER)]
    document, order = document.sort(stable=True)
    documents = copy.copy(batch)
    for name in ("x", "x_dense", "pos"):
        if name in batch:
            documents[name] = batch[name][order]
    documents.batch = document
    documents.ptr = torch.searchsorted(document, torch.arange(2 * batch.num_graphs + 1, device=document.device))
    documents.num_graphs, documents.max_nodes = 2 * batch.num_graphs, batch.longest_document
    return documents, order
