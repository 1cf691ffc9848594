"""Stacks of layers, with the paper's normalisations between them.

Legend: n nodes (padded), d edges (padded), m features; a batch adds leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from graphbench.errors import BadInput, check_choice
from graphbench_linear_transformer.incidence import Incidence, as_incidence
from graphbench_linear_transformer.layers import BlockLayer, EfficientLayer, GeneralLayer, MolecularLayer
from graphbench_linear_transformer.normalise import unit_columns, unit_frobenius

#: After every layer: B divided by its Frobenius norm, or unchanged.
IncidenceNorm = Literal["none", "frobenius"]
#: After every layer: each column of Φ with unit norm (6), all of Φ with unit Frobenius norm (section 3.5), or neither.
FeatureNorm = Literal["none", "columns", "frobenius"]
_FEATURE_NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "columns": unit_columns,
    "frobenius": unit_frobenius,
}


class GeneralTransformer(nn.Module):
    """L layers of the general form (3), and with `feature_norm="columns"` of the normalised form (6).

    Pad the incidence of a graph with fewer edges than `num_edges` with zero columns, and incidence and features of a
    graph with fewer nodes with zero rows; both contribute exactly zero.

    Args:
        layers: the layers, or the number of fresh ones to sample; one layer may be used several times.
        num_edges: d, columns of B; 0 for constructions without B.
        num_features: m.
        incidence_norm: see `IncidenceNorm`.
        feature_norm: see `FeatureNorm`.
        scale_by_nodes: divide attention by the number of nodes, as the authors' synthetic experiments do.
        frozen: omit the update of B, and after every layer divide all of `[B, Φ]` by one joint Frobenius norm, so that
            B keeps its direction; the rows of W^V and W^R that would change B are unused. Both norms must be "none".

    Raises:
        BadInput: a normalisation is unknown, or not "none" with `frozen`.

    Examples:
        >>> model = GeneralTransformer(2, num_edges=2, num_features=3)
        >>> incidence = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])  # two edges in a row
        >>> [tuple(part.shape) for part in model(incidence, torch.eye(3))]
        [(3, 2), (3, 3)]
    """

    def __init__(
        self,
        layers: int | Iterable[GeneralLayer],
        num_edges: int,
        num_features: int,
        incidence_norm: IncidenceNorm = "none",
        feature_norm: FeatureNorm = "none",
        scale_by_nodes: bool = False,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        _check_norms(incidence_norm, feature_norm)
        if frozen and (incidence_norm, feature_norm) != ("none", "none"):
            raise BadInput(
                "frozen=True divides B and Φ by one norm of both, so incidence_norm and feature_norm must be 'none', "
                f"but they are {incidence_norm!r} and {feature_norm!r}."
            )
        self.frozen = frozen
        width = num_edges + num_features
        self.layers = _stack(layers, lambda: GeneralLayer(width))
        self.num_edges, self.num_features = num_edges, num_features
        self.incidence_norm, self.feature_norm, self.scale_by_nodes = incidence_norm, feature_norm, scale_by_nodes

    def forward(self, incidence: Tensor, features: Tensor, num_nodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Run all layers.

        Args:
            incidence: B `[..., n, d]`.
            features: Φ_0 `[..., n, m]`.
            num_nodes: number of nodes of each graph `[...]`, the first rows; by default all n rows are nodes.

        Returns:
            B `[..., n, d]` and Φ `[..., n, m]` after the last layer.

        Raises:
            BadInput: the shapes do not match.
        """
        check_shapes(incidence, features)
        if incidence.shape[-1] != self.num_edges or features.shape[-1] != self.num_features:
            raise BadInput(
                f"The transformer was made for {self.num_edges} edges and {self.num_features} features, but got "
                f"{incidence.shape[-1]} and {features.shape[-1]}. Pad absent edges with zero columns."
            )
        incidence, features = _without_absent(num_nodes, incidence, features)
        scale = _attention_scale(self.scale_by_nodes, features, num_nodes)
        # A zero column of B is an absent edge. Features are rows of Z in every graph.
        edges = incidence.ne(0).any(-2, keepdim=True).to(incidence.dtype)
        present = torch.cat([edges, torch.ones_like(features[..., :1, :])], dim=-1)
        for layer in self.layers:
            x = layer(torch.cat([incidence, features], dim=-1), present, scale)
            changed, features = x.split((self.num_edges, self.num_features), dim=-1)
            if self.frozen:
                # One norm for both, so B shrinks relative to Φ if Φ grows.
                whole = unit_frobenius(torch.cat([incidence, features], dim=-1))
                incidence, features = whole.split((self.num_edges, self.num_features), dim=-1)
                continue
            incidence = unit_frobenius(changed) if self.incidence_norm == "frobenius" else changed
            features = _FEATURE_NORMS[self.feature_norm](features)
        return incidence, features


class EfficientTransformer(nn.Module):
    """L layers of the parameter-efficient form (7); 4 m^2 + 4 parameters per layer for any graph.

    Args:
        layers: the layers, or the number of fresh ones to sample; one layer may be used several times.
        num_features: m.
        evolve_incidence: see `EfficientLayer`; for fresh layers.
        incidence_norm: see `IncidenceNorm`.
        feature_norm: see `FeatureNorm`.
        scale_by_nodes: divide attention by the number of nodes.

    Raises:
        BadInput: a normalisation is unknown.

    Examples:
        >>> model = EfficientTransformer(2, num_features=3)
        >>> incidence = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])  # two edges in a row
        >>> model(incidence, torch.eye(3))[1].shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        layers: int | Iterable[EfficientLayer],
        num_features: int,
        evolve_incidence: bool = True,
        incidence_norm: IncidenceNorm = "none",
        feature_norm: FeatureNorm = "none",
        scale_by_nodes: bool = False,
    ) -> None:
        super().__init__()
        _check_norms(incidence_norm, feature_norm)
        self.layers = _stack(layers, lambda: EfficientLayer(num_features, evolve_incidence))
        self.num_features = num_features
        self.incidence_norm, self.feature_norm, self.scale_by_nodes = incidence_norm, feature_norm, scale_by_nodes

    def forward(
        self, incidence: Tensor | Incidence, features: Tensor, num_nodes: Tensor | None = None
    ) -> tuple[Incidence, Tensor]:
        """Run all layers.

        Args:
            incidence: B, as a matrix `[..., n, d]` or in another form of `Incidence`.
            features: Φ_0 `[..., n, m]`; the rows of absent nodes are zero.
            num_nodes: number of nodes of each graph `[...]`, the first rows; by default all n rows are nodes.

        Returns:
            B and Φ `[..., n, m]` after the last layer.

        Raises:
            BadInput: the shapes do not match.
        """
        check_shapes(incidence, features)
        if features.shape[-1] % max(1, self.num_features):
            raise BadInput(
                f"The transformer was made for {self.num_features} features, or as many blocks of equal width, but got "
                f"{features.shape[-1]}."
            )
        (features,) = _without_absent(num_nodes, features)
        state, scale = as_incidence(incidence), _attention_scale(self.scale_by_nodes, features, num_nodes)
        for layer in self.layers:
            state, features = layer(state, features, scale)
            state = state.normalised() if self.incidence_norm == "frobenius" else state
            features = _FEATURE_NORMS[self.feature_norm](features)
        return state, features


class MolecularTransformer(nn.Module):
    """The paper's form for molecules (16): each layer is repeated, and B and Φ are normalised after every pass.

    Args:
        num_layers: distinct layers.
        num_features: k.
        num_loops: passes through each layer before the next one; 3 layers with 3 loops are the paper's 9 layers.
        released: see `MolecularLayer`.
        evolve_incidence: see `MolecularLayer`.

    Examples:
        >>> model = MolecularTransformer(num_layers=1, num_features=3, num_loops=2)
        >>> incidence = torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]])  # two edges in a row
        >>> model(incidence, torch.eye(3))[1].shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        num_layers: int = 3,
        num_features: int = 8,
        num_loops: int = 3,
        released: bool = False,
        evolve_incidence: bool = True,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MolecularLayer(num_features, released, evolve_incidence) for _ in range(num_layers))
        self.num_loops = num_loops

    def forward(self, incidence: Tensor | Incidence, features: Tensor) -> tuple[Incidence, Tensor]:
        """Return B and Φ `[..., n, k]` after all passes, from B and Φ_0; rows of absent nodes stay zero."""
        check_shapes(incidence, features)
        state = as_incidence(incidence)
        for layer in self.layers:
            for _ in range(self.num_loops):
                state, features = layer(state, features)
                state, features = state.normalised(), unit_columns(features)
        return state, features


class BlockTransformer(nn.Module):
    """L layers of `BlockLayer`.

    Args:
        layers: the layers, or the number of fresh ones to sample; one layer may be used several times.
        num_blocks: p.

    Examples:
        >>> BlockTransformer(2, num_blocks=3)(torch.ones(5, 12)).shape
        torch.Size([5, 12])
    """

    def __init__(self, layers: int | Iterable[BlockLayer], num_blocks: int) -> None:
        super().__init__()
        self.layers = _stack(layers, lambda: BlockLayer(num_blocks))

    def forward(self, x: Tensor) -> Tensor:
        """Compute `Z^T` `[..., n, p * q]` after the last layer."""
        for layer in self.layers:
            x = layer(x)
        return x


def check_shapes(incidence: Tensor | Incidence, features: Tensor) -> None:
    """Raise `BadInput` unless `incidence [..., n, d]` and `features [..., n, m]` belong to the same graphs."""
    node_shape = as_incidence(incidence).node_shape
    if features.dim() < 2 or node_shape != features.shape[:-1]:
        raise BadInput(
            f"Expected an incidence matrix [..., n, d] and features [..., n, m] of the same nodes, but got an "
            f"incidence of nodes {list(node_shape)} and features {list(features.shape)}."
        )
    if isinstance(incidence, Tensor) and incidence.dtype != features.dtype:
        raise BadInput(f"Incidence is {incidence.dtype} and features are {features.dtype}; use one dtype for both.")


def _stack(layers: int | Iterable[nn.Module], make: Callable[[], nn.Module]) -> nn.ModuleList:
    """Return the given layers, or the given number of fresh ones."""
    return nn.ModuleList([make() for _ in range(layers)] if isinstance(layers, int) else layers)


def _check_norms(incidence_norm: str, feature_norm: str) -> None:
    check_choice("incidence_norm", incidence_norm, get_args(IncidenceNorm))
    check_choice("feature_norm", feature_norm, get_args(FeatureNorm))


def _without_absent(num_nodes: Tensor | None, *rows: Tensor) -> tuple[Tensor, ...]:
    """Zero the rows of tensors `[..., n, c]` beyond the nodes of each graph."""
    if num_nodes is None:
        return rows
    number = torch.arange(rows[0].shape[-2], device=rows[0].device)
    absent = (number >= num_nodes.unsqueeze(-1)).unsqueeze(-1)
    return tuple(tensor.masked_fill(absent, 0.0) for tensor in rows)


def _attention_scale(by_nodes: bool, features: Tensor, num_nodes: Tensor | None) -> Tensor | float:
    if not by_nodes:
        return 1.0
    if num_nodes is None:
        return 1 / max(features.shape[-2], 1)
    # A graph without nodes: 0 times infinity would be NaN in the gradients of all graphs. 1.0 also casts the integers.
    return num_nodes.clamp(min=1.0).to(features.dtype).reciprocal()[..., None, None]
