"""The weights that a lemma lists, block by block, and how they get into layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import torch

from graphbench.errors import BadInput, check_choice, check_range
from graphbench_linear_transformer.layers import BlockLayer, EfficientLayer, GeneralLayer, blank

#: "general": equation (3) or (6) with full matrices. "efficient": equation (7), and for Lemmas 4 and 5 blocks that are
#: multiples of the identity.
Form = Literal["general", "efficient"]
#: A table of blocks; a number c stands for c times the identity of the block's size.
Blocks = tuple[tuple[float, ...], ...]
#: What the general form must be told: option -> number, or None where it was not given.
Sizes = Mapping[str, int | None]
#: The largest eigenvalue for which weights are made, and the option that says so with its value.
Limit = tuple[float, str]
_AnyLayer = TypeVar("_AnyLayer", GeneralLayer, BlockLayer, EfficientLayer)
_Made = TypeVar("_Made", GeneralLayer, EfficientLayer)


@dataclass(frozen=True)
class LayerWeights:
    """Weights of one layer.

    Args:
        value: W^V among the feature blocks `[p, p]`.
        residual: W^R, likewise.
        features: W^Q^T W^K, likewise; None for 0.
        incidence: W^Q^T W^K in the block of B. (W^V and W^R are 0 there: no lemma changes B.)
    """

    value: Blocks
    residual: Blocks
    features: Blocks | None = None
    incidence: float = 0.0


def blocks(size: int, entries: dict[tuple[int, int], float]) -> Blocks:
    """A `[size, size]` table with the given entries and 0 elsewhere."""
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
    """Lemma 9: the layer (7) with these weights, in float64 so that no digit is lost.

    Args:
        weights: a lemma's blocks.
        width: of a block; 1 for the layer that takes blocks of any width.
    """
    layer = blank(lambda: EfficientLayer(len(weights.value) * width, evolve_incidence=False)).double()
    with torch.no_grad():
        layer.alpha_query.fill_(1.0)
        layer.alpha_key.fill_(weights.incidence)
        layer.alpha_residual.zero_()
    return fill(layer, weights, width)


def shared(weights: Sequence[LayerWeights], make: Callable[[LayerWeights], _Made]) -> list[_Made]:
    """A layer for every record; equal records get the same layer."""
    made: dict[LayerWeights, _Made] = {}
    for record in weights:
        if record not in made:
            made[record] = make(record)
    return [made[record] for record in weights]


def check_options(num_layers: int, form: str) -> None:
    """Raise `BadInput` for fewer layers than one or an unknown form."""
    check_range("num_layers", num_layers, at_least=1, whole=True)
    check_choice("form", form, get_args(Form))


def check_sizes(form: str, sizes: Sizes) -> None:
    """Raise `BadInput` unless the general form has its sizes, all at least 1, and the efficient form none."""
    given = [name for name, size in sizes.items() if size is not None]
    if form == "general" and len(given) < len(sizes):
        raise BadInput(
            f"form='general' has its weights in matrices as large as the graph: give {' and '.join(sizes)}, or take "
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
    """δ, given as such or as 1 / λmax, and the largest eigenvalue that it allows.

    Raises:
        BadInput: not exactly one of them is given, or it is not positive.
    """
    if (step is None) == (lambda_max is None):
        raise BadInput(f"Give either step or lambda_max, but got step={step} and lambda_max={lambda_max}.")
    if step is not None:
        check_positive("step", step)
        return float(step), (1 / float(step), f"step={step:g}")
    assert lambda_max is not None
    check_positive("lambda_max", lambda_max)
    return 1 / float(lambda_max), (float(lambda_max), f"lambda_max={lambda_max:g}")
