"""SignNet: learned features of eigenvectors that do not depend on their signs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts import GraphBatch, PositionalEncoder
from graphbench.encodings import LapPE, Normalization
from graphbench.errors import check_choice, check_range
from graphbench.nn.convolution import GINConvolution
from graphbench.nn.norms import BatchNorm
from graphbench.nn.positional._fields import encoded_field, valid_eigenvectors

Model = Literal["deepset", "mlp"]


class SignNetEncoder(PositionalEncoder):
    """rho([phi(v_k) + phi(-v_k)]_k) (Lim et al. 2022, arXiv 2202.13013, equation 4), as GraphGPS configures it.

    phi is a GIN on the graph in which every node has one entry of one eigenvector; rho is an MLP on every node.
    "deepset" sums over the eigenvectors before rho, "mlp" concatenates them. Both signs pass through phi as one set of
    tokens without padding, so batch norms see every eigenvector with both signs and nothing else. Flipping a sign
    therefore changes nothing, even in training (GraphGPS normalises the two signs separately and includes padding).

    Args:
        num_eigenvectors: K.
        dim: width of the result.
        hidden_dim: width of phi and rho.
        num_layers: GIN layers of phi, each with an MLP of two maps.
        num_post_layers: maps of rho.
        model: "deepset" or "mlp".
        normalization: Laplacian, see `LapPE`.

    Raises:
        BadInput: the model is unknown, or a number of layers is below 1.

    Examples:
        >>> from graphbench.nn import add_encodings
        >>> encoder = SignNetEncoder(num_eigenvectors=3, dim=8)
        >>> graph = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3)
        >>> encoder(add_encodings(graph, encoder)).shape
        torch.Size([3, 8])
    """

    encodings: tuple[LapPE]

    def __init__(
        self,
        num_eigenvectors: int = 37,
        dim: int = 28,
        hidden_dim: int = 64,
        num_layers: int = 8,
        num_post_layers: int = 3,
        model: Model = "deepset",
        normalization: Normalization = "none",
    ) -> None:
        super().__init__()
        check_choice("SignNetEncoder: model", model, get_args(Model))
        check_range("SignNetEncoder: num_layers", num_layers, at_least=1, whole=True)
        check_range("SignNetEncoder: num_post_layers", num_post_layers, at_least=1, whole=True)
        self.dim = dim
        self.encodings = (LapPE(num_eigenvectors, normalization),)
        self.deepset = model == "deepset"
        widths = [1, *[hidden_dim] * num_layers]
        self.phi = nn.ModuleList(GINConvolution(_mlp([width, hidden_dim, hidden_dim])) for width in widths[:-1])
        self.norms = nn.ModuleList(BatchNorm(hidden_dim) for _ in range(num_layers - 1))
        slots = 1 if self.deepset else num_eigenvectors
        self.rho = _mlp([slots * hidden_dim, *[hidden_dim] * (num_post_layers - 1), dim])

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """List the tokens and their edges, whose number depends on how many eigenvectors the graphs have."""
        (encoding,) = self.encodings
        valid = valid_eigenvectors(batch, encoding)
        place = valid.flatten().nonzero().squeeze(1)
        return dict(zip(self._fields, (place, _token_edges(valid, batch.edge_index)), strict=True))

    @property
    def _fields(self) -> tuple[str, str]:
        """Names of the precomputed fields, which depend on the requested eigenvectors."""
        (encoding,) = self.encodings
        # Two encoders of one model must not overwrite each other's fields.
        kind = f"{encoding.num_eigenvectors}_{int(encoding.skip_trivial)}"
        return f"signnet_tokens_{kind}", f"signnet_edges_{kind}"

    def forward(self, batch: Data) -> Tensor:
        """Return the features of every node `[num_nodes, dim]`."""
        (encoding,) = self.encodings
        vectors = encoded_field(batch, "lap_pe_vectors", encoding, next(self.rho.parameters()).dtype)
        fields = batch if self._fields[0] in batch else self.precompute(batch)
        place, edges = (fields[name] for name in self._fields)
        tokens = vectors.flatten().index_select(0, place)[:, None]
        # Both signs as two copies of the token graph, so that batch norms see them together.
        encoded = self._phi(torch.cat([tokens, -tokens]), torch.cat([edges, edges + tokens.shape[0]], dim=1))
        summed = encoded[: tokens.shape[0]] + encoded[tokens.shape[0] :]
        empty = summed.new_zeros(vectors.numel(), summed.shape[-1])
        slots = empty.index_copy_(0, place, summed).view(*vectors.shape, summed.shape[-1])
        return self.rho(slots.sum(1) if self.deepset else slots.flatten(1))

    def _phi(self, tokens: Tensor, token_edges: Tensor) -> Tensor:
        """Apply the GIN to tokens `[T, 1]` -> `[T, hidden_dim]`."""
        hidden = self.phi[0](tokens, token_edges)
        for norm, layer in zip(self.norms, self.phi[1:], strict=True):
            hidden = layer(norm(hidden), token_edges)
        return hidden


def _mlp(widths: list[int]) -> nn.Sequential:
    """Create linear maps through `widths` with ReLU, then batch norm, between them."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths[:-1]):
        # ReLU before the norm, as in GraphGPS.
        layers += [nn.Linear(width_in, width_out), nn.ReLU(), BatchNorm(width_out)]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def _token_edges(valid: Tensor, edge_index: Tensor) -> Tensor:
    """Return every edge of the graph once per eigenvector `[2, ...]`, between rows of `valid.nonzero()`.

    Both ends are in the same graph, so they have the same eigenvectors.
    """
    number = (valid.flatten().cumsum(0) - 1).view_as(valid)
    shared = valid[edge_index[0]].flatten().nonzero().squeeze(1)
    return number[edge_index].flatten(1).index_select(1, shared)
