"""Constructions as modules: transformers with the lemma's weights in their parameters.

The efficient form has the same few scalars for every graph. The general form (3) has a row for every edge and every
demand, so it needs their numbers. Parameters are frozen; call `requires_grad_()` to train them further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from graphbench.errors import BadInput, check_choice, check_range
from graphbench_linear_transformer.checks import check_connected, check_demands, check_laplacian, check_largest
from graphbench_linear_transformer.incidence import Incidence, as_incidence
from graphbench_linear_transformer.layers import BlockLayer, EfficientLayer, GeneralLayer, blank
from graphbench_linear_transformer.transformers import (
    BlockTransformer,
    EfficientTransformer,
    FeatureNorm,
    GeneralTransformer,
    check_shapes,
)

#: "general": equation (3) or (6) with full matrices. "efficient": equation (7), and for Lemmas 4 and 5 blocks that are
#: multiples of the identity.
Form = Literal["general", "efficient"]
#: A table of blocks; a number c means c times the identity with the size of the block.
Blocks = tuple[tuple[float, ...], ...]
#: Sizes of the general form: option -> number, or None.
Sizes = Mapping[str, int | None]
#: The largest eigenvalue that the weights support, and the option that sets it with its value.
Limit = tuple[float, str]
_AnyLayer = TypeVar("_AnyLayer", GeneralLayer, BlockLayer, EfficientLayer)
_LemmaLayer = TypeVar("_LemmaLayer", GeneralLayer, EfficientLayer)


class IncidenceConstruction(nn.Module):
    """A construction that reads the incidence matrix: Lemmas 1 to 3 and 6, Corollary 7, the Chebyshev series.

    Args:
        weights: one record per layer; equal records share one layer.
        form: see `Form`.
        num_blocks: blocks of features, each with one column per demand: the first contains the demands, the others
            start at 0. None for eigenvectors: the input is Φ_0 itself and the records are for single columns.
        sizes: columns of B and demands, for the general form.
        feature_norm: normalisation after each layer.
        balanced: the columns of the input must sum to 0 over every connected component.
        limit: the largest eigenvalue that the weights support.
        check: additional check of (number of nodes, number of columns).

    Attributes:
        transformer: the layers, on `[B, Φ]`.

    Raises:
        BadInput: there is no layer, the form is unknown, or the general form lacks its sizes.
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
        """Compute the lemma's answer.

        Args:
            incidence: B `[n, d]` or `[batch, n, d]`; the efficient form also accepts other forms of `Incidence`. Absent
                nodes and edges are zero rows and columns.
            demands: Ψ (or Φ_0) `[n, k]` or `[batch, n, k]`.

        Returns:
            The last k rows of `Z_L`, `[n, k]` or `[batch, n, k]`.

        Raises:
            BadInput: shapes do not match, a demand is not finite or does not sum to 0 although the lemma needs it, or
                an eigenvalue exceeds the limit of the weights.
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
        check_shapes(incidence, demands)
        if self.form == "general" and not isinstance(incidence, Tensor):
            raise BadInput("The general form mixes the columns of B, so it needs B as a matrix; use form='efficient'.")
        if self.check is not None:
            self.check(demands.shape[-2], demands.shape[-1])
        _check_dtype(self, demands)
        if self.form == "efficient" or not isinstance(incidence, Tensor):
            return
        actual = {"num_edges": incidence.shape[-1], "num_demands": demands.shape[-1]}
        expected = actual | {name: size or 0 for name, size in self.sizes.items()}
        if actual["num_edges"] > expected["num_edges"] or actual["num_demands"] != expected["num_demands"]:
            raise BadInput(
                f"The construction was made for num_edges={expected['num_edges']} and "
                f"num_demands={expected['num_demands']}, but B has {actual['num_edges']} columns and there are "
                f"{actual['num_demands']} demands. Build it for these, or use form='efficient', whose weights fit "
                "every graph."
            )

    def _check_values(self, incidence: Incidence, demands: Tensor) -> None:
        check_demands(demands, incidence.components() if self.balanced else None)
        if self.limit is not None:
            check_largest(incidence.product, demands, *self.limit)


class LaplacianConstruction(nn.Module):
    """A multiplicative construction: Lemmas 4 and 5, in which Z consists of n x n blocks.

    Args:
        weights: weights of every layer, on p blocks.
        num_layers: L.
        form: see `Form`.
        sizes: number of nodes, for the general form.
        read_in: (Laplacian, identity of the present nodes, projection off the constant) -> blocks of Z^T.
        read_out: blocks of Z^T -> answer.
        limit: the largest eigenvalue that the weights support.
        connected: graphs must be connected.

    Attributes:
        transformer: the layers, on Z^T.

    Raises:
        BadInput: there is no layer, the form is unknown, or the general form lacks its sizes.
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
        """Compute the lemma's answer.

        Args:
            laplacian: L `[n, n]` or `[batch, n, n]`, symmetric; absent nodes are zero rows and columns.
            num_nodes: number of nodes of each graph `[batch]`, the first rows; by default all n rows are nodes.

        Returns:
            `[n, n]` or `[batch, n, n]`.

        Raises:
            BadInput: the Laplacian is not symmetric, is not that of a connected graph although the lemma needs it, has
                a different size than the general form, or has an eigenvalue above the limit of the weights.
        """
        check_laplacian(laplacian)
        _check_dtype(self, laplacian)
        n = laplacian.shape[-1]
        if self.form == "general" and n != self.num_nodes:
            raise BadInput(
                f"The construction was made for num_nodes={self.num_nodes}, but the Laplacian has {n}. Build it for "
                "these, or use form='efficient', whose weights fit every graph."
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
        # Identity and projection of present nodes only, so that rows of absent ones start at 0 and stay 0.
        x = torch.cat(self.read_in(laplacian, identity, identity - mean), dim=-1)
        if isinstance(self.transformer, BlockTransformer):
            return self.read_out(list(self.transformer(x).split(n, dim=-1)))
        # Z contains only features: B has no columns.
        return self.read_out(list(self.transformer(x[..., :0], x)[1].split(n, dim=-1)))


def _check_dtype(model: nn.Module, tensor: Tensor) -> None:
    """Check that the input has the dtype and the device of the weights."""
    weight = next(model.parameters())
    if weight.dtype != tensor.dtype or weight.device != tensor.device:
        raise BadInput(
            f"The construction is {weight.dtype} on {weight.device}, but its input is {tensor.dtype} on "
            f"{tensor.device}: move it there, model.to(demands)."
        )


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer.

    Args:
        value: W^V among the feature blocks `[p, p]`.
        residual: W^R among the feature blocks.
        features: W^Q^T W^K among the feature blocks; None for 0.
        incidence: W^Q^T W^K in the block of B. (W^V and W^R are 0 there: no lemma changes B.)
    """

    value: Blocks
    residual: Blocks
    features: Blocks | None = None
    incidence: float = 0.0


def blocks(size: int, entries: dict[tuple[int, int], float]) -> Blocks:
    """Create a `[size, size]` table with the given entries and 0 elsewhere."""
    return tuple(tuple(float(entries.get((row, column), 0.0)) for column in range(size)) for row in range(size))


@torch.no_grad()
def fill(layer: _AnyLayer, weights: LayerWeights, width: int) -> _AnyLayer:
    """Write the blocks, each `width` wide, into a layer: W^Q = I and W^K the listed W^Q^T W^K."""
    size = len(weights.value)
    query = blocks(size, {(block, block): 1.0 for block in range(size)})
    for parameter, table in (
        (layer.value, weights.value),
        (layer.residual, weights.residual),
        (layer.query, query),
        (layer.key, weights.features or blocks(size, {})),
    ):
        coefficients = torch.tensor(table, dtype=parameter.dtype)
        parameter.copy_(torch.kron(coefficients, torch.eye(width, dtype=parameter.dtype)))
    return layer


def efficient_layer(weights: LayerWeights, width: int = 1) -> EfficientLayer:
    """Create the layer (7) of Lemma 9 with these weights, in float64 so that no digit is lost.

    Args:
        weights: a lemma's blocks.
        width: width of a block; 1 for the layer that accepts blocks of any width.
    """
    layer = blank(lambda: EfficientLayer(len(weights.value) * width, evolve_incidence=False)).double()
    with torch.no_grad():
        # Only the product α^Q α^K matters; it is 0 in Gram-Schmidt layers, but 1 as printed in Lemma 9.
        layer.alpha_query.fill_(1.0)
        layer.alpha_key.fill_(weights.incidence)
        layer.alpha_residual.zero_()
    return fill(layer, weights, width)


def shared(weights: Sequence[LayerWeights], make: Callable[[LayerWeights], _LemmaLayer]) -> list[_LemmaLayer]:
    """Create a layer for every record; equal records share one."""
    layers: dict[LayerWeights, _LemmaLayer] = {}
    for record in weights:
        if record not in layers:
            layers[record] = make(record)
    return [layers[record] for record in weights]


def check_options(num_layers: int, form: str) -> None:
    """Raise `BadInput` for fewer than one layer or an unknown form."""
    check_range("num_layers", num_layers, at_least=1, whole=True)
    check_choice("form", form, get_args(Form))


def check_sizes(form: str, sizes: Sizes) -> None:
    """Raise `BadInput` unless the general form has its sizes, all at least 1, and the efficient form none."""
    given = [name for name, size in sizes.items() if size is not None]
    if form == "general" and len(given) < len(sizes):
        raise BadInput(
            f"form='general' has weight matrices as large as the graph: pass {' and '.join(sizes)}, or use "
            "form='efficient', whose weights fit every graph."
        )
    if form == "efficient" and given:
        raise BadInput(f"{' and '.join(given)} belong to form='general'; form='efficient' fits every graph.")
    for name in given:
        check_range(name, sizes[name], at_least=1, whole=True)


def check_positive(name: str, value: float) -> None:
    """Raise `BadInput` unless the value is positive and finite."""
    if not 0 < value < math.inf:
        raise BadInput(f"{name} must be a positive number, but got {value}.")


def gradient_step(step: float | None, lambda_max: float | None) -> tuple[float, Limit]:
    """Return δ, given directly or as 1 / λmax, and the largest eigenvalue that it allows.

    Raises:
        BadInput: not exactly one of the two is given, or it is not positive.
    """
    if (step is None) == (lambda_max is None):
        raise BadInput(f"Pass either step or lambda_max, but got step={step} and lambda_max={lambda_max}.")
    if step is not None:
        check_positive("step", step)
        return float(step), (1 / float(step), f"step={step:g}")
    assert lambda_max is not None
    check_positive("lambda_max", lambda_max)
    return 1 / float(lambda_max), (float(lambda_max), f"lambda_max={lambda_max:g}")
