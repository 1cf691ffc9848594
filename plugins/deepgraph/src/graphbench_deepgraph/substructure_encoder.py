"""Encode a substructure by its adjacency matrix in depth-first order (DeepGraph, equation 2 and Appendix E).

All chosen substructures are ordered at once; the only loop is over the positions of the longest one.

Legend: m substructures, s padded size; positions 0 .. size - 1 of a substructure are its nodes in ascending order.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import GraphBatch
from graphbench.encodings.substructures import Substructures, mix
from graphbench.errors import check_choice
from graphbench_deepgraph.tokens import Sample

Content = Literal["adjacency", "type", "random"]
_BITS = 53
#: Random bits below the degree in a sort key.
_CHANCE_BITS = 40
_CHANCE_MASK = (1 << _CHANCE_BITS) - 1
_LARGEST = torch.iinfo(torch.int64).max


class SubstructureEncoder(nn.Module):
    """Vectors of substructures.

    * adjacency (the paper's): `W_2 ReLU(W_1 vec(A_pi) + b_1) + b_2` of the adjacency matrix of the induced subgraph in
      depth-first order pi, padded to s x s; `s^2 d + d + d^2 + d` parameters. Kinds share the network. Neither bond
      types nor node features enter: the token gets those from attention to the nodes.
    * type: one learned vector for each entry of the vocabulary.
    * random: a random vector per token, standard normal, without parameters. "Without substructure encoding, randomly
      initialized embedding is applied to each substructure token" (section 6.7) allows this reading and the previous
      one.

    Args:
        encoding: the vocabulary; its `max_size` is s.
        dim: width d.
        content: see above.
        ordered: order the adjacency depth first. False uses ascending node numbers, like the released code.

    Raises:
        BadInput: `content` is unknown.

    Examples:
        >>> encoding = Substructures(cycles=[3, 4], paths=[], stars=[2], hops=[])
        >>> encoder = SubstructureEncoder(encoding, dim=16, content="type")
        >>> sum(parameter.numel() for parameter in encoder.parameters())
        48
    """

    def __init__(self, encoding: Substructures, dim: int, content: Content = "adjacency", ordered: bool = True) -> None:
        super().__init__()
        check_choice("substructure_content", content, get_args(Content))
        assert encoding.max_size is not None  # the model refuses an encoding without bound
        self.content, self.ordered, self.dim = content, ordered, dim
        self.network: nn.Module | None = None
        if content == "adjacency":
            self.network = nn.Sequential(nn.Linear(encoding.max_size**2, dim), nn.ReLU(), nn.Linear(dim, dim))
        elif content == "type":
            self.network = nn.Embedding(len(encoding.vocabulary), dim)
            nn.init.normal_(self.network.weight, std=0.02)

    def inputs(self, batch: GraphBatch, sample: Sample) -> Tensor:
        """Return the input of `forward`: flat adjacency `[m, s * s]`, vocabulary entries `[m]`, or seeds `[m]`."""
        if self.content == "type":
            return sample.kind
        if self.content == "random":
            return sample.seeds
        adjacency = induced_adjacency(sample.members, batch.edge_index, batch.batch, batch.ptr, batch.max_nodes)
        order = dfs_order(adjacency, sample.size, sample.seeds) if self.ordered else None
        return encode_adjacency(adjacency, order, torch.uint8)

    def forward(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Return vectors of the substructures `[m, dim]`.

        Args:
            inputs: see the method `inputs`.
            dtype: dtype of random vectors and of the adjacency.
        """
        if self.network is None:
            return _normal(inputs, self.dim).to(dtype)
        vectors: Tensor = self.network(inputs.to(dtype) if self.content == "adjacency" else inputs)
        return vectors


def _normal(seeds: Tensor, dim: int) -> Tensor:
    """Hash `seeds [m]` to standard normal numbers `[m, dim]`, float64."""
    bits = mix(torch.arange(dim, device=seeds.device), seeds[:, None]) & ((1 << _BITS) - 1)
    uniform = (bits.double() + 0.5) / (1 << _BITS)
    return torch.erfinv(2 * uniform - 1) * math.sqrt(2)


def induced_adjacency(members: Tensor, edge_index: Tensor, batch: Tensor, ptr: Tensor, max_nodes: int) -> Tensor:
    """Build the adjacency of the subgraphs induced on `members [m, s]`: bool `[m, s, s]`, False where padded.

    Edges are undirected; repeated edges and self-loops do not count.

    Args:
        members: nodes in batch numbering, -1 where padded.
        edge_index: `[2, num_edges]`.
        batch: graph of each node `[num_nodes]`.
        ptr: first node of each graph `[num_graphs + 1]`.
        max_nodes: nodes of the largest graph.
    """
    # Every node has a row of max_nodes entries, one for each node of its graph.
    adjacent = torch.zeros(len(batch) * max_nodes + 1, dtype=torch.bool, device=batch.device)
    source, target = edge_index
    first = ptr[batch[source]]
    adjacent[source * max_nodes + target - first] = True
    adjacent[target * max_nodes + source - first] = True
    adjacent[torch.arange(len(batch), device=batch.device) * (max_nodes + 1) - ptr[batch]] = False
    node = members.clamp(min=0)
    number = node - ptr[batch[node]]
    inside = members >= 0
    # The last entry belongs to no pair of nodes and stays False: padded pairs read it.
    pair = (node[:, :, None] * max_nodes + number[:, None, :]).masked_fill(
        ~(inside[:, :, None] & inside[:, None, :]), len(adjacent) - 1
    )
    return adjacent[pair]


def dfs_order(adjacency: Tensor, size: Tensor, seeds: Tensor | None = None) -> Tensor:
    """Order every substructure depth first.

    The root is a node of least degree within the substructure; at each node the neighbours are visited by ascending
    degree. Equal degrees are in a random order, drawn afresh each time. When a component is done, the search restarts
    from an unvisited node of least degree.

    Args:
        adjacency: bool, symmetric, without self-loops `[m, s, s]`.
        size: nodes of each substructure `[m]`.
        seeds: one 64-bit seed per substructure `[m]`; None prefers the lower position among equal degrees.

    Returns:
        Positions in the order of their visit `[m, s]`; padded positions come last, ascending.
    """
    count, longest = adjacency.shape[:2]
    rows = torch.arange(count, device=adjacency.device)
    places = torch.arange(longest, device=adjacency.device)
    degree = adjacency.sum(2)
    by_degree = degree << _CHANCE_BITS
    chance = places.expand(count, -1) if seeds is None else mix(places, seeds[:, None])
    # An odd multiplier per parent re-samples the random numbers of its children (multiply-shift hashing).
    multiplier = mix(torch.arange(longest + 1, device=adjacency.device), 13) | 1
    open_neighbours, unvisited = degree.clone(), places < size[:, None]
    visit = places.repeat(count, 1)
    # When each position was visited, counted from 1; 0 means not yet.
    visited = torch.zeros_like(visit)
    for step in range(longest):
        # The last visited node with an unvisited neighbour; if there is none, a new root among all nodes.
        when, parent = (visited * (open_neighbours > 0)).max(1)
        new_root = when == 0
        if seeds is None:
            key = by_degree | chance
        else:
            fresh = chance * multiplier[parent + longest * new_root][:, None]
            key = by_degree | (fresh >> (63 - _CHANCE_BITS) & _CHANCE_MASK)
        key = torch.where((adjacency[rows, parent] | new_root[:, None]) & unvisited, key, _LARGEST)
        best, chosen = key.min(1)
        active = best < _LARGEST
        visit[:, step] = torch.where(active, chosen, step)
        visited[rows, chosen] += (step + 1) * active
        unvisited[rows, chosen] = False
        open_neighbours -= adjacency[rows, chosen].to(torch.int64)
    return visit


def encode_adjacency(adjacency: Tensor, order: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
    """Flatten the adjacency in the given order, row by row and padded with zeros: `[m, s * s]`.

    Args:
        adjacency: `[m, s, s]`.
        order: positions in the wanted order `[m, s]`. None keeps ascending node numbers, as in the released code, which
            loses its traversal order in a hash set, so its encoding depends on the numbering of nodes.
        dtype: dtype of the result.
    """
    if order is not None:
        adjacency = adjacency.gather(1, order[:, :, None].expand_as(adjacency))
        adjacency = adjacency.gather(2, order[:, None, :].expand_as(adjacency))
    return adjacency.flatten(1).to(dtype)
