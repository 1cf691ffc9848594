"""One layer of the linear transformer in its four forms, all without softmax.

"Graph Transformers Dream of Electric Flow" (Cheng, Carin, Sra, ICLR 2025, arXiv 2410.16699). The paper writes Z with a
column per node. Here a node is a row, so `x = Z^T [..., n, h]` and every equation is transposed:

    Attn(Z) = W^V Z (Z^T W^Q^T W^K Z)    is    (x W^K^T) (x W^Q^T)^T (x W^V^T).

Legend: n nodes, d edges, h = d + m rows of Z, m features (2k for k demands); a batch adds leading axes. There are no
biases, so the zero rows of absent nodes remain zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from graphbench.errors import BadInput
from graphbench_linear_transformer.incidence import Incidence
from graphbench_linear_transformer.normalise import inverse_root

#: Standard deviation of freshly sampled weights, as in the authors' synthetic experiments.
_INITIAL_STD = 0.1
_Layer = TypeVar("_Layer", bound=nn.Module)


class GeneralLayer(nn.Module):
    """Equation (3): `Z+ = Z + W^V Z Z^T W^Q^T W^K Z + W^R Z` with full matrices; 4 h^2 parameters.

    Args:
        dim: h, the rows of Z.

    Examples:
        >>> layer = GeneralLayer(dim=6)
        >>> layer(torch.ones(4, 6)).shape, sum(p.numel() for p in layer.parameters())
        (torch.Size([4, 6]), 144)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.value, self.query, self.key, self.residual = (_drawn(dim, dim) for _ in range(4))

    def forward(self, x: Tensor, present: Tensor | None = None, scale: Tensor | float = 1.0) -> Tensor:
        """Return the next `Z^T` `[..., n, h]`.

        Args:
            x: `Z^T` `[..., n, h]`.
            present: 1 for the rows of Z that exist, 0 for those of absent edges, `[..., 1, h]`. The layer then equals
                one with the other rows and columns removed from its weights.
            scale: factor of the attention.
        """
        value, query, key = x @ self.value.mT, x @ self.query.mT, x @ self.key.mT
        if present is not None:
            # Full matrices mix present rows of Z into absent ones; masking removes these from the attention.
            query, key = query * present, key * present
        out = x + x @ self.residual.mT + scale * _attend(key, query, value)
        return out if present is None else out * present


class BlockLayer(nn.Module):
    """Equation (3) with every block of every weight matrix a multiple of the identity; 4 p^2 parameters.

    Z has p blocks of equal height, W^V = w^V ⊗ I with `w^V [p, p]`, and so on. This extends the parameter-efficient
    form (7) of Lemmas 1 to 3 to the multiplicative expansions of Lemmas 4 and 5, an extension that the paper omits: the
    weights no longer depend on the size of the graph.

    Args:
        num_blocks: p.

    Examples:
        >>> layer = BlockLayer(num_blocks=3)
        >>> layer(torch.ones(5, 12)).shape, sum(p.numel() for p in layer.parameters())
        (torch.Size([5, 12]), 36)
    """

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.value, self.query, self.key, self.residual = (_drawn(num_blocks, num_blocks) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return the next `Z^T` `[..., n, p * q]` for blocks of height q."""
        value, query, key, residual = (
            _mix_blocks(x, weight) for weight in (self.value, self.query, self.key, self.residual)
        )
        return x + residual + _attend(key, query, value)


class EfficientLayer(nn.Module):
    """Equation (7): separate B and features Φ, scalars for B and m x m matrices for Φ; 4 m^2 + 4 parameters.

        S   = α^Q α^K B B^T + Φ W^Q^T W^K Φ^T
        B+^T = (1 + α^R) B^T + α^V B^T S            Φ+^T = (I + W^R) Φ^T + W^V Φ^T S

    For wider features with p q columns, p = `num_features`, the columns are p blocks of q and every matrix W becomes
    W ⊗ I with the identity `[q, q]`, as in `BlockLayer`: the form of Lemmas 1 to 3, for any number of demands.

    Args:
        num_features: m, or p.
        evolve_incidence: False omits α^V, as all of the paper's constructions do: B is only scaled, and a sparse B
            costs O(d m) per layer.

    Examples:
        >>> from graphbench_linear_transformer import DenseIncidence
        >>> layer = EfficientLayer(num_features=2)
        >>> b, features = layer(DenseIncidence(torch.tensor([[1.0], [-1.0]])), torch.ones(2, 2))
        >>> features.shape, sum(p.numel() for p in layer.parameters())
        (torch.Size([2, 2]), 20)
    """

    def __init__(self, num_features: int, evolve_incidence: bool = True) -> None:
        super().__init__()
        self.value, self.query, self.key, self.residual = (_drawn(num_features, num_features) for _ in range(4))
        self.alpha_query, self.alpha_key = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
        self.alpha_value = _drawn() if evolve_incidence else None
        self.alpha_residual = _drawn()

    def forward(self, incidence: Incidence, features: Tensor, scale: Tensor | float = 1.0) -> tuple[Incidence, Tensor]:
        """Return the next B, and the next Φ `[..., n, m]`.

        Args:
            incidence: B.
            features: Φ `[..., n, m]`, or `[..., n, p q]`.
            scale: factor of the attention.
        """
        query, key = _mix(features, self.query), _mix(features, self.key)
        # S^T Φ from right to left, since rows are nodes here: L itself, [n, n], is computed only if B evolves.
        alpha = self.alpha_query * self.alpha_key
        mixed = alpha * incidence.product(features) + _attend(key, query, features)
        updated = features + _mix(features, self.residual) + scale * _mix(mixed, self.value)
        if self.alpha_value is None:
            return incidence.scaled(1 + self.alpha_residual), updated
        attention = alpha * incidence.similarity() + key @ query.mT
        return incidence.evolved(_near_identity(self.alpha_residual, scale * self.alpha_value, attention)), updated

    @torch.no_grad()
    def as_general(self, num_edges: int) -> GeneralLayer:
        """Return the equivalent layer (3) on `[B, Φ]` for graphs with `num_edges` edges (proof of Lemma 9)."""
        layer = blank(lambda: GeneralLayer(num_edges + self.value.shape[0])).to(self.value)
        alpha_value = torch.zeros_like(self.alpha_residual) if self.alpha_value is None else self.alpha_value
        for block, scalar, target in (
            (self.value, alpha_value, layer.value),
            (self.query, self.alpha_query, layer.query),
            (self.key, self.alpha_key, layer.key),
            (self.residual, self.alpha_residual, layer.residual),
        ):
            target.copy_(torch.block_diag(scalar * torch.eye(num_edges).to(block), block))
        return layer


class MolecularLayer(nn.Module):
    """Equation (16) before its normalisation: as (7), with the normalised Laplacian and diagonal weights.

        L~   = D^(-1/2) B B^T D^(-1/2),  D_ii = sum_j |B_ij|,     F = Φ W^Q W^K Φ^T
        B+^T = (1 + α^R) B^T + α^V B^T (β_1 α L~ + β_2 F)        Φ+^T = (1 + r) Φ^T + W^V Φ^T (β_3 α L~ + β_4 F)

    with W^V, W^Q, W^K diagonal and α = α^Q α^K one parameter, since only the product enters: 3 k + 8 parameters.
    W^V and α^V start at 0, so a fresh layer changes only lengths.

    `evolve_incidence=False` omits α^V, α^R, β_1 and β_2: B does not change, as in all of the paper's constructions, and
    a sparse B costs O(d k) per layer. 3 k + 4 parameters.

    Args:
        num_features: k.
        evolve_incidence: see above.
        released: add the two vectors of k factors in the authors' code. Their entries 1 and 3 scale B and Φ before and
            after attention; the others are never read: 5 k + 8 parameters.

    Examples:
        >>> layer = MolecularLayer(num_features=4)
        >>> sum(p.numel() for p in layer.parameters())  # 3 k + 8
        20
    """

    def __init__(self, num_features: int, released: bool = False, evolve_incidence: bool = True) -> None:
        super().__init__()
        if released and not evolve_incidence:
            raise BadInput("released=True is the authors' form, in which B evolves: keep evolve_incidence=True.")
        if released and num_features < 4:
            raise BadInput(f"released=True reads entry 3 of its vectors, so num_features={num_features} must be >= 4.")
        self.value = nn.Parameter(torch.zeros(num_features))
        self.query, self.key = nn.Parameter(torch.ones(num_features)), nn.Parameter(torch.ones(num_features))
        self.residual = nn.Parameter(torch.zeros(()))
        self.alpha = _drawn()
        self.alpha_value = nn.Parameter(torch.zeros(())) if evolve_incidence else None
        self.alpha_residual = nn.Parameter(torch.zeros(())) if evolve_incidence else None
        self.beta = nn.Parameter(torch.ones(4 if evolve_incidence else 2))
        self.edge_factors = nn.Parameter(torch.ones(num_features)) if released else None
        self.node_factors = nn.Parameter(torch.ones(num_features)) if released else None

    def forward(self, incidence: Incidence, features: Tensor) -> tuple[Incidence, Tensor]:
        """Return the next B and the next Φ `[..., n, k]`, not normalised yet."""
        (edge_in, edge_out), (node_in, node_out) = _in_and_out(self.edge_factors), _in_and_out(self.node_factors)
        root = inverse_root(incidence.absolute_sums()).unsqueeze(-1)
        # Queries and keys of B are both scaled by edge_in, hence the square.
        alpha = self.alpha * edge_in**2
        query, key = features * (node_in * self.query), features * (node_in * self.key)
        if self.alpha_value is None or self.alpha_residual is None:
            similar = root * incidence.product(root * features)
        else:
            # B is multiplied by L~ from the left, so L~ is needed as a matrix and also used for Φ.
            laplacian = root * incidence.similarity() * root.mT
            similar = laplacian @ features
        *betas, beta_3, beta_4 = self.beta.unbind()
        mixed = beta_3 * alpha * similar + beta_4 * key @ (query.mT @ features)
        # The diagonal W^V acts on features and the mixing on nodes, so W^V is applied once, after both terms.
        updated = (1 + self.residual) * features + mixed * (node_in * node_out * self.value)
        if self.alpha_value is None or self.alpha_residual is None:
            return incidence, updated
        attention = betas[0] * alpha * laplacian + betas[1] * key @ query.mT
        left = _near_identity(self.alpha_residual, edge_in * edge_out * self.alpha_value, attention)
        return incidence.evolved(left), updated


def blank(make: Callable[[], _Layer]) -> _Layer:
    """Create a layer whose weights will be overwritten, without advancing torch's generator."""
    with torch.random.fork_rng(devices=[]):
        return make()


def _drawn(*shape: int) -> nn.Parameter:
    return nn.Parameter(_INITIAL_STD * torch.randn(shape))


def _attend(key: Tensor, query: Tensor, value: Tensor) -> Tensor:
    """Compute `key query^T value`, each `[..., n, h]`, in the cheaper order."""
    n, h = key.shape[-2:]
    return (key @ query.mT) @ value if n <= h else key @ (query.mT @ value)


def _mix_blocks(x: Tensor, weight: Tensor) -> Tensor:
    """Compute `x (weight ⊗ I)^T` for `x [..., n, p * q]` and `weight [p, p]`."""
    return (weight @ x.unflatten(-1, (weight.shape[0], -1))).flatten(-2)


def _mix(x: Tensor, weight: Tensor) -> Tensor:
    """Compute `x weight^T`, or mix the blocks of x by `weight [p, p]` if x is wider than p."""
    return x @ weight.mT if x.shape[-1] == weight.shape[0] else _mix_blocks(x, weight)


def _near_identity(residual: Tensor, value: Tensor, attention: Tensor) -> Tensor:
    """Compute the left factor of B, `(1 + residual) I + value attention`, `[..., n, n]`."""
    eye = torch.eye(attention.shape[-1], device=attention.device, dtype=attention.dtype)
    return (1 + residual) * eye + value * attention


def _in_and_out(factors: Tensor | None) -> tuple[Tensor | float, Tensor | float]:
    return (1.0, 1.0) if factors is None else (factors[1], factors[3])
