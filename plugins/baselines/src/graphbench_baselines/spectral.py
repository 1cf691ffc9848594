"""Positions that a small transformer learns from the Laplacian eigenpairs of a node.

Kreuzer et al., "Rethinking Graph Transformers with Spectral Attention", NeurIPS 2021, arXiv 2106.03893.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphbench import GraphBatch, PositionalEncoder
from graphbench.encodings import Normalization
from graphbench.errors import BadInput, check_range
from graphbench.nn import LapPEEncoder

#: Width between the two maps of its feed-forward networks; the authors keep PyTorch's default.
_FFN_DIM = 2048
#: What training does about the signs of eigenvectors, see `LapPEEncoder`.
Sign = Literal["flip_graph", "flip_batch", "absolute", "none"]


class TransformerLapPE(PositionalEncoder):
    """The sum over eigenvectors k of `Transformer([W (v_ik, lambda_k) + b]_k)_k`, the learned positions of SAN.

    Each node i is a sequence of its own, with a token for each of the K smallest eigenvalues of the Laplacian: the
    eigenvalue and the node's entry of the eigenvector. The layers are PyTorch's `TransformerEncoderLayer` with norms
    after and a feed-forward width of 2048. In a graph with fewer than K nodes the tokens that stand for no eigenvector
    are neither attended to nor summed. A layer of width p has `4 p^2 + 9 p + 4096 p + 2048` parameters, W and b 3 p.

    Args:
        num_eigenvectors: K.
        dim: width p of the tokens and of the result.
        num_layers: layers.
        num_heads: heads; must divide `dim`.
        dropout: of the layers; the authors keep PyTorch's default.
        sign: what training does about the signs of eigenvectors, see `LapPEEncoder`.
        normalization: Laplacian, see `LapPE`.
        unit_rows: scale the K entries of each node to length 1, as SAN's own code does; GraphGPS does not.

    Raises:
        BadInput: `num_heads` does not divide `dim`, or another option is out of range.

    Examples:
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> from graphbench_baselines import SAN
        >>> encoder = TransformerLapPE(num_eigenvectors=4, dim=8, num_layers=1)
        >>> encoder(tiny_batch(SAN(tiny_spec(), positional_encoders=[encoder]))).shape  # 4 graphs of a few nodes
        torch.Size([23, 8])
    """

    def __init__(
        self,
        num_eigenvectors: int = 30,
        dim: int = 16,
        num_layers: int = 3,
        num_heads: int = 4,
        dropout: float = 0.1,
        sign: Sign = "flip_batch",
        normalization: Normalization = "symmetric",
        unit_rows: bool = False,
    ) -> None:
        super().__init__()
        check_range("TransformerLapPE: num_layers", num_layers, at_least=1, whole=True)
        check_range("TransformerLapPE: dropout", dropout, at_least=0, below=1)
        if num_heads < 1 or dim % num_heads:
            raise BadInput(f"TransformerLapPE: num_heads must divide dim, but num_heads={num_heads} and dim={dim}.")
        self.dim, self.unit_rows = dim, unit_rows
        self.entries = LapPEEncoder(
            num_eigenvectors, num_eigenvectors, model="raw", sign=sign, normalization=normalization
        )
        self.encodings = self.entries.encodings
        self.token_map = nn.Linear(2, dim)
        layer = nn.TransformerEncoderLayer(dim, num_heads, _FFN_DIM, dropout, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, num_layers, enable_nested_tensor=False)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Features of every node `[num_nodes, dim]`."""
        vectors: Tensor = self.entries(batch)
        if self.unit_rows:
            vectors = F.normalize(vectors, dim=-1)
        values = batch.lap_pe_values.to(vectors.dtype)[batch.batch]
        tokens = self.token_map(torch.stack([vectors, values], dim=-1))  # [num_nodes, K, dim]
        column = torch.arange(vectors.shape[1], device=vectors.device)
        filling = column >= batch.ptr.diff()[batch.batch][:, None]
        encoded = self.transformer(tokens, src_key_padding_mask=filling)
        return encoded.masked_fill(filling[:, :, None], 0.0).sum(1)
