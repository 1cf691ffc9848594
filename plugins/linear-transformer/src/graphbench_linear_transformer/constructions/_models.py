"""Constructions as modules: transformers with the lemma's weights in their parameters.

The efficient form has the same few scalars for every graph. The general form (3) has a row for every edge and every
demand, so it is told their numbers when it is made. Parameters are frozen; `requires_grad_()` trains them further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from graphbench.errors import BadInput
from graphbench_linear_transformer.checks import check_connected, check_demands, check_laplacian, check_largest
from graphbench_linear_transformer.constructions._weights import (
    Form,
    LayerWeights,
    Limit,
    Sizes,
    check_options,
    check_sizes,
    efficient_layer,
    fill,
    shared,
)
from graphbench_linear_transformer.incidence import Incidence, as_incidence
from graphbench_linear_transformer.layers import BlockLayer, GeneralLayer, blank
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
        weights: one record per layer; equal records share one layer.
        form: see `Form`.
        num_blocks: blocks of features, each as wide as there are demands: the first holds the demands, the others
            start at 0. None for eigenvectors: the input is Φ_0 itself and the records are for single columns.
        sizes: columns of B and demands, for the general form.
        feature_norm: normalisation after each layer.
        balanced: whether the columns of the input must add up to 0 over every connected component.
        limit: the largest eigenvalue for which the weights are made.
        check: further check of (number of nodes, number of columns).

    Attributes:
        transformer: the layers, on `[B, Φ]`.

    Raises:
        BadInput: there is no layer, the form is not known, or the general form lacks its sizes.
    """

    def __init__(
        self,
        weights: Sequence[LayerWeights],
        form: Form,
        num_blocks: int | None,
        sizes: Sizes,
        feature_norm: FeatureNorm = "none",
        balanced: bool = False,
        limit: Limit | None = None,
        check: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__()
        check_options(len(weights), form)
        check_sizes(form, sizes)
        self.form, self.num_blocks, self.sizes = form, num_blocks, sizes
        self.balanced, self.limit, self.check = balanced, limit, check
        self.transformer: GeneralTransformer | EfficientTransformer
        if form == "efficient":
            rows = len(weights[0].value)
            self.transformer = EfficientTransformer(shared(weights, efficient_layer), rows, feature_norm=feature_norm)
        else:
            num_edges, width = sizes["num_edges"] or 0, sizes.get("num_demands") or 1
            layers = shared(weights, lambda record: efficient_layer(record, width).as_general(num_edges))
            num_features = len(weights[0].value) * width
            self.transformer = GeneralTransformer(layers, num_edges, num_features, feature_norm=feature_norm)
        self.requires_grad_(False)

    def forward(self, incidence: Tensor | Incidence, demands: Tensor) -> Tensor:
        """The lemma's answer.

        Args:
            incidence: B `[n, d]` or `[batch, n, d]`; the efficient form also takes another form of `Incidence`.
                Absent nodes and edges are zero rows and columns.
            demands: Ψ (or Φ_0) `[n, k]` or `[batch, n, k]`.

        Returns:
            The last k rows of `Z_L`, `[n, k]` or `[batch, n, k]`.

        Raises:
            BadInput: shapes do not fit, a demand is not finite or does not add up to 0 where the lemma needs it, or
                an eigenvalue is above what the weights are made for.
        """
        self._check_shapes(incidence, demands)
        if not torch.compiler.is_compiling():
            self._check_values(as_incidence(incidence), demands)
        width = demands.shape[-1]
        features = torch.cat([demands, demands.new_zeros(*demands.shape[:-1], width * self._empty_blocks)], dim=-1)
        if isinstance(self.transformer, GeneralTransformer):
            assert isinstance(incidence, Tensor)
            missing = self.transformer.num_edges - incidence.shape[-1]
            incidence = nn.functional.pad(incidence, (0, missing))
        return self.transformer(incidence, features)[1][..., -width:]

    @property
    def _empty_blocks(self) -> int:
        return (self.num_blocks or 1) - 1

    def _check_shapes(self, incidence: Tensor | Incidence, demands: Tensor) -> None:
        if isinstance(incidence, Tensor):
            check_shapes(incidence, demands)
        elif self.form == "general":
            raise BadInput("The general form mixes the columns of B, so it needs B as a matrix; use form='efficient'.")
        if self.check is not None:
            self.check(demands.shape[-2], demands.shape[-1])
        _check_dtype(self, demands)
        if self.form == "efficient" or not isinstance(incidence, Tensor):
            return
        found = {"num_edges": incidence.shape[-1], "num_demands": demands.shape[-1]}
        made = found | {name: size or 0 for name, size in self.sizes.items()}
        if found["num_edges"] > made["num_edges"] or found["num_demands"] != made["num_demands"]:
            raise BadInput(
                f"The construction was made for num_edges={made['num_edges']} and num_demands={made['num_demands']}, "
                f"but B has {found['num_edges']} columns and there are {found['num_demands']} demands. Make it for "
                "these, or take form='efficient', whose weights fit every graph."
            )

    def _check_values(self, incidence: Incidence, demands: Tensor) -> None:
        labels = incidence.components() if self.balanced else None
        if labels is not None and labels.shape != demands.shape[:-1]:
            raise BadInput(f"B has nodes {list(labels.shape)}, but demands are for nodes {list(demands.shape[:-1])}.")
        check_demands(demands, labels)
        if self.limit is not None:
            check_largest(incidence.product, demands, *self.limit)


class LaplacianConstruction(nn.Module):
    """A multiplicative construction: Lemmas 4 and 5, where Z is made of n x n blocks.

    Args:
        weights: of every layer, on p blocks.
        num_layers: L.
        form: see `Form`.
        sizes: nodes, for the general form.
        read_in: (Laplacian, identity of the present nodes, projection off the constant) -> blocks of Z^T.
        read_out: blocks of Z^T -> answer.
        limit: the largest eigenvalue for which the weights are made.
        connected: whether graphs must be connected.

    Attributes:
        transformer: the layers, on Z^T.

    Raises:
        BadInput: there is no layer, the form is not known, or the general form lacks its sizes.
    """

    def __init__(
        self,
        weights: LayerWeights,
        num_layers: int,
        form: Form,
        sizes: Sizes,
        read_in: Callable[[Tensor, Tensor, Tensor], list[Tensor]],
        read_out: Callable[[list[Tensor]], Tensor],
        limit: Limit,
        connected: bool = False,
    ) -> None:
        super().__init__()
        check_options(num_layers, form)
        check_sizes(form, sizes)
        self.form, self.read_in, self.read_out, self.limit, self.connected = form, read_in, read_out, limit, connected
        self.num_nodes = sizes["num_nodes"]
        self.transformer: GeneralTransformer | BlockTransformer
        num_blocks = len(weights.value)
        if form == "efficient":
            layer = fill(blank(lambda: BlockLayer(num_blocks)).double(), weights, 1)
            self.transformer = BlockTransformer([layer] * num_layers, num_blocks)
        else:
            width = num_blocks * (self.num_nodes or 0)
            general = fill(blank(lambda: GeneralLayer(width)).double(), weights, self.num_nodes or 0)
            self.transformer = GeneralTransformer([general] * num_layers, 0, width)
        self.requires_grad_(False)

    def forward(self, laplacian: Tensor, num_nodes: Tensor | None = None) -> Tensor:
        """The lemma's answer.

        Args:
            laplacian: L `[n, n]` or `[batch, n, n]`, symmetric; absent nodes are zero rows and columns.
            num_nodes: nodes of each graph `[batch]`, the first rows; without it all n rows are nodes.

        Returns:
            `[n, n]` or `[batch, n, n]`.

        Raises:
            BadInput: the Laplacian is not a symmetric matrix, not that of a connected graph where the lemma needs it,
                of another size than the general form was made for, or has an eigenvalue above what the weights are
                made for.
        """
        check_laplacian(laplacian)
        _check_dtype(self, laplacian)
        n = laplacian.shape[-1]
        if self.form == "general" and n != self.num_nodes:
            raise BadInput(
                f"The construction was made for num_nodes={self.num_nodes}, but the Laplacian has {n}. Make it for "
                "these, or take form='efficient', whose weights fit every graph."
            )
        present = laplacian.new_ones(*laplacian.shape[:-1])
        if num_nodes is not None:
            present = (torch.arange(n, device=laplacian.device) < num_nodes[..., None]).to(laplacian.dtype)
        if not torch.compiler.is_compiling():
            check_largest(lambda x: laplacian @ x, laplacian, *self.limit)
            if self.connected:
                check_connected(laplacian, present)
        identity = torch.diag_embed(present)
        mean = present[..., :, None] * present[..., None, :] / present.sum(-1).clamp(min=1)[..., None, None]
        x = torch.cat(self.read_in(laplacian, identity, identity - mean), dim=-1)
        if isinstance(self.transformer, BlockTransformer):
            return self.read_out(list(self.transformer(x).split(n, dim=-1)))
        return self.read_out(list(self.transformer(x[..., :0], x)[1].split(n, dim=-1)))


def _check_dtype(model: nn.Module, given: Tensor) -> None:
    """Refuse input of another precision or on another device than the weights."""
    weight = next(model.parameters())
    if weight.dtype != given.dtype or weight.device != given.device:
        raise BadInput(
            f"The construction is {weight.dtype} on {weight.device}, but its input is {given.dtype} on "
            f"{given.device}: move it there, model.to(demands)."
        )
