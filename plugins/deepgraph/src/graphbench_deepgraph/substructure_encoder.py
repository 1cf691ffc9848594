"""What a substructure token holds before the first layer (DeepGraph, equation 2 and Appendix E)."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphbench import GraphBatch
from graphbench.encodings.substructures import Substructures, mix
from graphbench.errors import check_choice
from graphbench_deepgraph.ordering import dfs_order, encode_adjacency, induced_adjacency
from graphbench_deepgraph.tokens import Sample

Content = Literal["adjacency", "type", "random"]
_BITS = 53


class SubstructureEncoder(nn.Module):
    """Vectors of substructures.

    * adjacency (the paper's): `W_2 ReLU(W_1 vec(A_pi) + b_1) + b_2` of the adjacency matrix of the induced subgraph in
      depth-first order pi, padded to s x s; `s^2 d + d + d^2 + d` parameters. Kinds share the network, and neither
      bond types nor node features enter: those come by attention to the nodes.
    * type: one learned vector for each entry of the vocabulary.
    * random: a random vector per token, standard normal, without parameters. "Without substructure encoding, randomly
      initialized embedding is applied to each substructure token" (section 6.7) allows this reading and the previous
      one.

    Args:
        encoding: the vocabulary; its `max_size` is s.
        dim: width d.
        content: see above.
        ordered: order the adjacency depth first. False takes ascending node numbers, like the released code.

    Raises:
        BadInput: `content` is not known.

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
        """What `forward` takes: flattened adjacency `[m, s * s]`, entries of the vocabulary `[m]`, or seeds `[m]`."""
        if self.content == "type":
            return sample.kind
        if self.content == "random":
            return sample.seeds
        adjacency = induced_adjacency(sample.members, batch.edge_index, batch.batch, batch.ptr, batch.max_nodes)
        order = dfs_order(adjacency, sample.size, sample.seeds) if self.ordered else None
        return encode_adjacency(adjacency, order, torch.uint8)

    def forward(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        """Vectors of the substructures `[m, dim]`.

        Args:
            inputs: of the method of this name.
            dtype: of random vectors and of the adjacency.
        """
        if self.network is None:
            return _normal(inputs, self.dim).to(dtype)
        vectors: Tensor = self.network(inputs.to(dtype) if self.content == "adjacency" else inputs)
        return vectors


def _normal(seeds: Tensor, dim: int) -> Tensor:
    """Standard normal numbers `[m, dim]`, float64, that depend on `seeds [m]` alone."""
    bits = mix(torch.arange(dim, device=seeds.device), seeds[:, None]) & ((1 << _BITS) - 1)
    uniform = (bits.double() + 0.5) / (1 << _BITS)
    return torch.erfinv(2 * uniform - 1) * math.sqrt(2)
