"""Encoders of Laplacian eigenvectors."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import PositionalEncoder
from graphbench.contracts.pyg import graphs_of_nodes
from graphbench.encodings import LapPE, Normalization
from graphbench.errors import BadInput, check_choice
from graphbench.nn.positional._fields import encoded_field, valid_eigenvectors

Model = Literal["deepset", "linear", "raw"]
Sign = Literal["flip_graph", "flip_batch", "absolute", "none"]


class LapPEEncoder(PositionalEncoder):
    """Compute node features from the smallest Laplacian eigenpairs (GraphGPS, arXiv 2205.12454, appendix).

    "deepset": every eigenpair of a node is a token (v_ik, lambda_k) in R^2; an MLP 2 -> 2p -> ... -> p with ReLU
    after every map encodes each token, and the tokens of valid eigenvectors are summed. Two layers have 2p^2 + 7p
    parameters. "linear": one map K -> p of the node's eigenvector entries, without eigenvalues (Dwivedi and Bresson,
    arXiv 2012.09699), K p + p parameters. "raw": the node's K eigenvector entries themselves, zero if a graph has
    fewer, for models that map them themselves.

    Signs of eigenvectors are arbitrary, so training samples new ones in every forward pass from torch's global
    generator; evaluation uses the stored signs and is deterministic.

    Args:
        num_eigenvectors: K.
        dim: p; K if the model is "raw".
        num_layers: maps of the token MLP, at least 1; None for GraphGPS's 2. Only for "deepset".
        model: "deepset", "linear" or "raw".
        sign: in training, "flip_graph" samples one sign per graph and eigenvector, "flip_batch" one per column, the
            same for all graphs of the batch, as GraphGPS does; "none" keeps the stored signs. "absolute" uses |v|,
            also in evaluation.
        normalization: Laplacian, see `LapPE`.
        skip_trivial: omit the first eigenvector, see `LapPE`.

    Raises:
        BadInput: an option is unknown or out of range.

    Examples:
        >>> from graphbench.nn import add_encodings
        >>> encoder = LapPEEncoder(num_eigenvectors=4, dim=8)
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> encoder(add_encodings(graph, encoder)).shape
        torch.Size([3, 8])
    """

    encodings: tuple[LapPE]
    #: Empty; it records the dtype that the module was converted to, since a "raw" encoder has no weights.
    weights: Tensor

    by_node = True

    def __init__(
        self,
        num_eigenvectors: int = 10,
        dim: int = 16,
        num_layers: int | None = None,
        model: Model = "deepset",
        sign: Sign = "flip_graph",
        normalization: Normalization = "none",
        skip_trivial: bool = False,
    ) -> None:
        super().__init__()
        check_choice("LapPEEncoder: model", model, get_args(Model))
        check_choice("LapPEEncoder: sign", sign, get_args(Sign))
        if num_layers is not None and (model != "deepset" or num_layers < 1):
            raise BadInput(
                f"LapPEEncoder: num_layers must be at least 1 with model='deepset' and None with another, "
                f"but it is {num_layers} with model={model!r}."
            )
        if model == "raw" and dim != num_eigenvectors:
            raise BadInput(
                f"LapPEEncoder: model='raw' returns the eigenvectors, so dim must be num_eigenvectors = "
                f"{num_eigenvectors}, but it is {dim}."
            )
        self.dim = dim
        self.encodings = (LapPE(num_eigenvectors, normalization, skip_trivial),)
        self.register_buffer("weights", torch.empty(0), persistent=False)
        self.sign = sign
        self.model = model
        self.encode: nn.Module = nn.Identity()
        if model == "deepset":
            self.encode = _token_mlp(dim, num_layers or 2)
        elif model == "linear":
            self.encode = nn.Linear(num_eigenvectors, dim)

    def forward(self, batch: Data) -> Tensor:
        """Return the features of every node `[num_nodes, dim]`."""
        (encoding,) = self.encodings
        vectors = self._signed(encoded_field(batch, "lap_pe_vectors", encoding, self.weights.dtype), batch)
        if self.model != "deepset":
            return self.encode(vectors)
        # Eigenvalues are stored once per graph.
        values = encoded_field(batch, "lap_pe_values", encoding, self.weights.dtype)[graphs_of_nodes(batch)[0]]
        tokens = self.encode(torch.stack([vectors, values], dim=-1))
        # Masked after the MLP: because of its biases padding is not mapped to zero.
        return tokens.masked_fill(~valid_eigenvectors(batch, encoding)[:, :, None], 0.0).sum(1)

    def _signed(self, vectors: Tensor, batch: Data) -> Tensor:
        """Return eigenvectors `[num_nodes, K]` with signs according to `self.sign`."""
        if self.sign == "absolute":
            return vectors.abs()
        if self.sign == "none" or not self.training:
            return vectors
        graph_of, ptr = graphs_of_nodes(batch)
        draws = len(ptr) - 1 if self.sign == "flip_graph" else 1
        flipped = torch.rand(draws, vectors.shape[1], device=vectors.device) < 0.5
        flipped = flipped[graph_of] if draws > 1 else flipped  # one row is broadcast: nothing is gathered
        return torch.where(flipped, -vectors, vectors)


class ESLapPEEncoder(LapPEEncoder):
    """Compute positions P = Linear(eigenvectors) of ES-LapPE, for gates that depend on |P_i - P_j| (Wang et al. 2022).

    It reads the eigenvectors stored by `LapPE`, with neither eigenvalues nor sign flips; K d + d parameters.

    Args:
        num_eigenvectors: K.
        dim: d, the width of P.
        normalization: "symmetric" is what GraphGPS's released code computes, because it reads this option from
            another encoding's section; "none" is what its configurations specify.

    Examples:
        >>> from graphbench.nn import add_encodings
        >>> encoder = ESLapPEEncoder(num_eigenvectors=4, dim=8)
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> encoder(add_encodings(graph, encoder)).shape
        torch.Size([3, 8])
    """

    def __init__(self, num_eigenvectors: int = 10, dim: int = 64, normalization: Normalization = "symmetric") -> None:
        super().__init__(num_eigenvectors, dim, model="linear", sign="none", normalization=normalization)


def _token_mlp(dim: int, num_layers: int) -> nn.Sequential:
    """Create an MLP 2 -> 2 dim -> ... -> 2 dim -> dim with ReLU after every map; a single map is 2 -> dim."""
    widths = [2, *[2 * dim] * (num_layers - 1), dim]
    maps = [nn.Linear(width_in, width_out) for width_in, width_out in pairwise(widths)]
    return nn.Sequential(*(layer for linear in maps for layer in (linear, nn.ReLU())))
