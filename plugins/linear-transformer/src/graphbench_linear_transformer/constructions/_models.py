"""Constructions as modules: transformers that take the size of the graph they are called on.

The matrices of the general form (3) have a row per edge and per demand, so a construction knows its transformer only
when it sees a graph. It keeps the lemma's blocks, builds the layers on the first call, and again when sizes change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from graphbench.errors import BadInput
from graphbench_linear_transformer.constructions._weights import (
    Form,
    LayerWeights,
    check_options,
    efficient_layer,
    fill,
    shared,
)
from graphbench_linear_transformer.incidence import Incidence
from graphbench_linear_transformer.layers import BlockLayer, EfficientLayer, GeneralLayer, blank
from graphbench_linear_transformer.transformers import (
    BlockTransformer,
    EfficientTransformer,
    FeatureNorm,
    GeneralTransformer,
    check_shapes,
)


class IncidenceConstruction(nn.Module):
    """A construction that reads the incidence matrix: Lemmas 1 to 3 and 6, Corollary 7, the Chebyshev series.

    Args:
        weights: one record a layer; equal records share one layer.
        form: see `Form`.
        num_blocks: blocks of features, each as wide as there are demands: the first holds the demands, the others
            start at 0. None for eigenvectors: the input is Φ_0 itself and the records are for single columns.
        feature_norm: normalisation after each layer.
        balanced: whether the columns of the input must add up to 0.
        check: further check of (number of nodes, number of columns).

    Raises:
        BadInput: there is no layer, or the form is not known.
    """

    def __init__(
        self,
        weights: Sequence[LayerWeights],
        form: Form,
        num_blocks: int | None,
        feature_norm: FeatureNorm = "none",
        balanced: bool = False,
        check: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__()
        check_options(len(weights), form)
        self.weights, self.form, self.num_blocks = tuple(weights), form, num_blocks
        self.feature_norm: FeatureNorm = feature_norm
        self.balanced, self.check = balanced, check
        self.sized: nn.Module | None = None
        self._size: tuple[object, ...] = ()

    def transformer(
        self, num_edges: int, num_demands: int, dtype: torch.dtype = torch.float64
    ) -> GeneralTransformer | EfficientTransformer:
        """A transformer with the lemma's weights in its parameters, trainable, for graphs of one size.

        Args:
            num_edges: d, columns of B; the efficient form does not depend on it.
            num_demands: k.
            dtype: of the parameters.
        """
        width = num_demands if self.num_blocks else 1
        num_features = num_demands * (self.num_blocks or 1)

        def make(weights: LayerWeights) -> EfficientLayer:
            return efficient_layer(weights, width).to(dtype)

        if self.form == "efficient":
            layers = shared(self.weights, make)
            return EfficientTransformer(layers, num_features, feature_norm=self.feature_norm)
        general = shared(self.weights, lambda weights: make(weights).as_general(num_edges))
        return GeneralTransformer(general, num_edges, num_features, feature_norm=self.feature_norm)

    def forward(self, incidence: Tensor | Incidence, demands: Tensor) -> Tensor:
        """The lemma's answer.

        Args:
            incidence: B `[n, d]` or `[batch, n, d]`; the efficient form also takes another form of `Incidence`.
                Absent nodes and edges are zero rows and columns.
            demands: Ψ (or Φ_0) `[n, k]` or `[batch, n, k]`.

        Returns:
            The last k rows of `Z_L`, `[n, k]` or `[batch, n, k]`.

        Raises:
            BadInput: shapes do not fit, or the demands do not add up to 0 where the lemma needs it.
        """
        self._check_input(incidence, demands)
        width = demands.shape[-1]
        model = self._fitting(incidence.shape[-1] if isinstance(incidence, Tensor) else 0, demands)
        empty = demands.new_zeros(*demands.shape[:-1], width * ((self.num_blocks or 1) - 1))
        _, features = model(incidence, torch.cat([demands, empty], dim=-1))
        return features[..., -width:]

    def _check_input(self, incidence: Tensor | Incidence, demands: Tensor) -> None:
        if isinstance(incidence, Tensor):
            check_shapes(incidence, demands)
        elif self.form == "general":
            raise BadInput("The general form mixes the columns of B, so it needs B as a matrix; use form='efficient'.")
        if self.check is not None:
            self.check(demands.shape[-2], demands.shape[-1])
        if self.balanced and not torch.compiler.is_compiling():
            _check_balanced(demands)

    def _fitting(self, num_edges: int, demands: Tensor) -> nn.Module:
        """The transformer of the last call if it fits, else a new one, without gradients for its parameters."""
        size = (num_edges if self.form == "general" else 0, demands.shape[-1], demands.dtype, demands.device)
        if self.sized is None or size != self._size:
            self.sized = self.transformer(num_edges, demands.shape[-1], demands.dtype)
            self.sized.to(demands.device).requires_grad_(False)
            self._size = size
        return self.sized


class LaplacianConstruction(nn.Module):
    """A multiplicative construction: Lemmas 4 and 5, where Z is made of n x n blocks.

    Args:
        weights: of every layer, on p blocks.
        num_layers: L.
        form: see `Form`.
        read_in: (Laplacian, identity of the present nodes, projection off the constant) -> blocks of Z^T.
        read_out: blocks of Z^T -> answer.

    Raises:
        BadInput: there is no layer, or the form is not known.
    """

    def __init__(
        self,
        weights: LayerWeights,
        num_layers: int,
        form: Form,
        read_in: Callable[[Tensor, Tensor, Tensor], list[Tensor]],
        read_out: Callable[[list[Tensor]], Tensor],
    ) -> None:
        super().__init__()
        check_options(num_layers, form)
        self.weights, self.num_layers, self.form = weights, num_layers, form
        self.read_in, self.read_out = read_in, read_out
        self.sized: nn.Module | None = None
        self._size: tuple[object, ...] = ()

    def transformer(self, num_nodes: int, dtype: torch.dtype = torch.float64) -> GeneralTransformer | BlockTransformer:
        """A transformer with the lemma's weights in its parameters, trainable, for graphs of n nodes.

        Args:
            num_nodes: n; the efficient form does not depend on it.
            dtype: of the parameters.
        """
        if self.form == "efficient":
            layer = fill(blank(lambda: BlockLayer(len(self.weights.value))).to(dtype), self.weights, 1)
            return BlockTransformer([layer] * self.num_layers, len(self.weights.value))
        width = num_nodes * len(self.weights.value)
        general = fill(blank(lambda: GeneralLayer(width)).to(dtype), self.weights, num_nodes)
        return GeneralTransformer([general] * self.num_layers, 0, width)

    def forward(self, laplacian: Tensor, num_nodes: Tensor | None = None) -> Tensor:
        """The lemma's answer.

        Args:
            laplacian: L `[n, n]` or `[batch, n, n]`, symmetric, of connected graphs; absent nodes are zero rows and
                columns.
            num_nodes: nodes of each graph `[batch]`, the first rows; without it all n rows are nodes.

        Returns:
            `[n, n]` or `[batch, n, n]`.

        Raises:
            BadInput: the Laplacian is not a square matrix.
        """
        n = laplacian.shape[-1]
        if laplacian.dim() < 2 or laplacian.shape[-2] != n or not laplacian.is_floating_point():
            raise BadInput(f"Expected a Laplacian [..., n, n], but got {laplacian.dtype} {list(laplacian.shape)}.")
        present = laplacian.new_ones(*laplacian.shape[:-1])
        if num_nodes is not None:
            present = (torch.arange(n, device=laplacian.device) < num_nodes[..., None]).to(laplacian.dtype)
        identity = torch.diag_embed(present)
        mean = present[..., :, None] * present[..., None, :] / present.sum(-1).clamp(min=1)[..., None, None]
        x = torch.cat(self.read_in(laplacian, identity, identity - mean), dim=-1)
        model = self._fitting(n, laplacian)
        if self.form == "efficient":
            return self.read_out(list(model(x).split(n, dim=-1)))
        _, features = model(x[..., :0], x)
        return self.read_out(list(features.split(n, dim=-1)))

    def _fitting(self, num_nodes: int, laplacian: Tensor) -> nn.Module:
        size = (num_nodes if self.form == "general" else 0, laplacian.dtype, laplacian.device)
        if self.sized is None or size != self._size:
            self.sized = self.transformer(num_nodes, laplacian.dtype).to(laplacian.device).requires_grad_(False)
            self._size = size
        return self.sized


def _check_balanced(demands: Tensor) -> None:
    """Columns add up to 0 but for rounding: what flows in flows out."""
    off = demands.sum(-2).abs()
    allowed = torch.finfo(demands.dtype).eps ** 0.5 * demands.abs().sum(-2)
    if bool((off > allowed).any()):
        raise BadInput(
            f"Every demand must add up to 0 over the nodes (what flows in flows out), but one adds up to "
            f"{float(off.max()):.3g}. Subtract its mean: demands - demands.mean(-2, keepdim=True)."
        )
