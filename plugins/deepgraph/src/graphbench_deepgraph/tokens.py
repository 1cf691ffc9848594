"""The tokens of a batch: its nodes, one graph token per graph, and the substructures that were sampled.

Legend: G graphs, n nodes, m sampled substructures, T = n + G + m tokens; s padded size of a substructure. Within a
graph the nodes come first, then the graph token, then the substructures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphbench import GraphBatch
from graphbench.encodings.substructures import Substructures, mix
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout
from graphbench_deepgraph.sampler import CoverageSampler


@dataclass(frozen=True)
class Sample:
    """The substructures that were sampled for a batch.

    Args:
        graph: graph of each, ascending `[m]`.
        kind: index into the vocabulary of each `[m]`.
        size: nodes of each `[m]`.
        members: nodes of each in batch numbering `[m, s]`, -1 where padded.
        seeds: one 64-bit seed each `[m]`, for its order and content.
    """

    graph: Tensor
    kind: Tensor
    size: Tensor
    members: Tensor
    seeds: Tensor


def sample_substructures(
    batch: GraphBatch, encoding: Substructures, kind_of_type: Tensor, sampler: CoverageSampler, seeds: Tensor
) -> Sample:
    """Sample substructures of every graph.

    Args:
        batch: graphs with the fields of `encoding`.
        encoding: encoding of the substructures.
        kind_of_type: `encoding.kind_of_type` on the batch's device `[vocabulary]`.
        sampler: sampler that chooses them.
        seeds: one 64-bit seed per graph `[G]`.

    Raises:
        BadInput: the batch has no substructures, or one exceeds the size of the encoding.
    """
    missing = [name for name in encoding.layout if name not in batch]
    if missing:
        raise BadInput(
            f"The batch has no {', '.join(missing)}, which {encoding.name} computes. Request it before the data are "
            "prepared: benchmark.require(model.required_encodings())."
        )
    first, types = batch.substructure_ptr, batch.substructure_type
    chosen = sampler(batch.member_node, batch.member_substructure, kind_of_type[types], first, batch.ptr, seeds)
    graph, size = batch.substructure_batch[chosen], batch.substructure_size
    assert encoding.max_size is not None  # the model refuses an encoding without bound
    return Sample(
        graph=graph,
        kind=types[chosen],
        size=size[chosen],
        members=pad_members(batch.member_node, size, chosen, encoding.max_size),
        seeds=ordering_seeds(seeds, graph, chosen - first[graph]),
    )


@dataclass(frozen=True)
class TokenLayout:
    """Layout of the tokens, built once per forward pass and shared by all layers.

    Args:
        dense: layout in padded graphs.
        batch: graph of each token `[T]`.
        node: token of each node `[n]`.
        graph: token of each graph `[G]`.
        substructure: token of each sampled substructure `[m]`.
        member_node: token of a node, for each membership of it in a sampled substructure `[K]`.
        member_substructure: token of that substructure `[K]`.
        num_nodes: nodes of each graph `[G]`.
        traced: layers may record traces.
    """

    dense: DenseLayout
    batch: Tensor
    node: Tensor
    graph: Tensor
    substructure: Tensor
    member_node: Tensor
    member_substructure: Tensor
    num_nodes: Tensor
    traced: bool = True

    @classmethod
    def of(cls, batch: GraphBatch, places: Mapping[str, Any]) -> TokenLayout:
        """Lay out a batch.

        Args:
            batch: the graphs.
            places: places of their tokens, from `token_places`.
        """
        return cls(
            dense=DenseLayout.from_rows(places["batch"], places["ptr"], places["most"]),
            batch=places["batch"],
            node=places["node"],
            graph=places["graph"],
            substructure=places["substructure"],
            member_node=places["member_node"],
            member_substructure=places["member_substructure"],
            num_nodes=batch.ptr.diff(),
        )

    @property
    def is_substructure(self) -> Tensor:
        """Mask of the tokens of substructures, bool `[T]`."""
        marks = torch.zeros_like(self.batch, dtype=torch.bool)
        marks[self.substructure] = True
        return marks

    def assemble(self, node: Tensor, graph: Tensor, substructure: Tensor | None) -> Tensor:
        """Assemble tokens `[T, dim]` of nodes `[n, dim]`, graph tokens `[G, dim]` and substructures `[m, dim]`."""
        parts, places = [node, graph], [self.node, self.graph]
        if substructure is not None:
            parts.append(substructure.to(node.dtype))
            places.append(self.substructure)
        # By token numbers: the released code's offsets are off by one, which leaves a token of the smallest graph zero.
        return torch.cat(parts)[torch.cat(places).argsort()]


def token_places(batch: GraphBatch, sample: Sample | None) -> dict[str, Any]:
    """Assign numbers to the tokens of a batch, once per sample, before the batch goes to its device.

    Args:
        batch: the graphs.
        sample: their substructures; None for graphs without.

    Returns:
        The fields `batch`, `node`, `graph`, `substructure`, `member_node` and `member_substructure` of `TokenLayout`,
        `ptr [G + 1]` with the first token of each graph, and `most`, the tokens of the largest.
    """
    numbers = torch.arange(batch.num_graphs, device=batch.ptr.device)
    none = numbers[:0]
    graphs = none if sample is None else sample.graph
    num_substructures = torch.bincount(graphs, minlength=batch.num_graphs)
    # Tokens of earlier graphs that are not nodes: their substructures, and one graph token each.
    before = num_substructures.cumsum(0) - num_substructures + numbers
    ptr = batch.ptr.clone()
    ptr[1:] += numbers + 1 + num_substructures.cumsum(0)
    node = torch.arange(batch.num_nodes, device=ptr.device) + before[batch.batch]
    rank = torch.arange(len(graphs), device=ptr.device)
    # `rank` counts all substructures before this one; add the nodes and graph tokens up to and including its own graph.
    substructure = rank + batch.ptr[graphs + 1] + graphs + 1
    member_node, member_substructure = none, none
    if sample is not None:
        inside = sample.members >= 0
        member_node = node[sample.members[inside]]
        member_substructure = substructure[inside.nonzero()[:, 0]]
    return {
        "batch": torch.repeat_interleave(numbers, ptr.diff()),
        "node": node,
        "graph": batch.ptr[1:] + before,
        "substructure": substructure,
        "member_node": member_node,
        "member_substructure": member_substructure,
        "ptr": ptr,
        "most": int(ptr.diff().max()) if batch.num_graphs else 0,
    }


def pad_members(member_node: Tensor, substructure_size: Tensor, chosen: Tensor, max_size: int) -> Tensor:
    """List the nodes of the chosen substructures, one row each.

    Args:
        member_node: nodes of all substructures concatenated `[M]`, ascending within a substructure.
        substructure_size: nodes of each substructure `[S]`.
        chosen: substructures `[m]`.
        max_size: s.

    Returns:
        `[m, s]`, padded with -1.

    Raises:
        BadInput: a chosen substructure has more than `max_size` nodes.
    """
    size = substructure_size[chosen]
    if len(size) and int(size.max()) > max_size:
        raise BadInput(
            f"A substructure has {int(size.max())} nodes, but the encoder supports at most {max_size}. Raise the "
            "encoder's size, or prepare the data with a smaller vocabulary or with "
            f"Substructures(max_neighbourhood={max_size})."
        )
    first = (substructure_size.cumsum(0) - substructure_size)[chosen]
    place = torch.arange(max_size, device=chosen.device)
    inside = place < size[:, None]
    # Places past the end of a substructure read entry 0, which always exists, and are then masked.
    return member_node[(first[:, None] + place) * inside].masked_fill(~inside, -1)


def ordering_seeds(seeds: Tensor, graph: Tensor, number: Tensor) -> Tensor:
    """Hash seeds of the orders of substructures `[m]`.

    Args:
        seeds: one 64-bit seed per graph `[num_graphs]`, from the sampler's `sample_seeds` or `evaluation_seeds`.
        graph: graph of each substructure `[m]`.
        number: number of each substructure within its graph `[m]`.
    """
    return mix(number, mix(seeds, 11)[graph])
