"""Record the matrix products of a training step, and time the step relative to them.

A step that only multiplies would have a ratio of 1. Fused attention counts as the products that it consists of.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_PRODUCTS = ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm")
ATTENTION = "aten::_scaled_dot_product"


@dataclass(frozen=True)
class Product:
    """Both operands of a product, each as a function that creates a similar tensor."""

    operands: tuple[Callable[[], Tensor], ...]

    @property
    def flops(self) -> int:
        """Return floating-point operations: `2 m k n` for `[..., m, k]` and `[..., k, n]`."""
        left, right = self.make()
        if left.layout is not torch.strided:
            return 2 * left._nnz() * right.shape[-1]
        return 2 * left.numel() * right.shape[-1]

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> Product:
        """Return the product of two tensors."""
        return cls((_like(left), _like(right)))

    def make(self) -> tuple[Tensor, ...]:
        """Return random operands."""
        return tuple(operand() for operand in self.operands)


def _like(operand: Tensor) -> Callable[[], Tensor]:
    """Return a function that creates random numbers of the same shape, stride and dtype.

    A sparse matrix is used itself, since its pattern determines its time.
    """
    if operand.layout is not torch.strided:
        return operand.detach
    size, stride, dtype, device = operand.shape, operand.stride(), operand.dtype, operand.device
    last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))  # expanded ones share numbers
    return lambda: torch.randn(last + 1, dtype=dtype, device=device).as_strided(size, stride)


class Recorded(TorchDispatchMode):
    """Record the products of all operations within the block."""

    def __init__(self) -> None:
        super().__init__()
        self.products: list[Product] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and record it if it is a product."""
        name, tensors = func._schema.name, [argument for argument in args if isinstance(argument, Tensor)]
        if name in _PRODUCTS:
            self.products.append(Product.of(*tensors[-2:]))
        elif name.startswith(ATTENTION):
            self.products += attention_products(tensors, "backward" in name)
        return func(*args, **(kwargs or {}))


def attention_products(tensors: list[Tensor], backward: bool) -> list[Product]:
    """Return Q K^T and P V for a forward pass; for a backward pass Q K^T again, dO V^T, P^T dO, dS K and dS^T Q."""
    query, key, value = tensors[1:4] if backward else tensors[:3]
    weights = query.new_empty(*query.shape[:-1], key.shape[-2])
    if not backward:
        return [Product.of(query, key.mT), Product.of(weights, value)]
    grad = tensors[0]
    pairs = ((query, key.mT), (grad, value.mT), (weights.mT, grad), (weights, key), (weights.mT, query))
    return [Product.of(*pair) for pair in pairs]


def multiply(operands: Sequence[tuple[Tensor, ...]]) -> None:
    """Run only the products."""
    with torch.no_grad():
        for left, right in operands:
            left @ right


@dataclass(frozen=True)
class StepTime:
    """Times of a training step and of its products alone, measured in alternation."""

    step: float  # median seconds
    products: float  # median seconds of its products on random operands of the same layout
    ratio: float  # median over rounds of one over the other
    count: int  # number of products
    flops: int  # floating-point operations of all products


def time_step(step: Callable[[], object], wait: Callable[[], object] = lambda: None, rounds: int = 15) -> StepTime:
    """Time a training step and its products in alternation, so that a busy moment of the machine affects both.

    A step ends with the optimizer, `wait` waits for the device, and two warm-up rounds precede the timed ones.
    """
    step()
    with Recorded() as recorded:
        step()
    operands = [product.make() for product in recorded.products]
    seconds: list[tuple[float, float]] = []
    for number in range(-2, rounds):
        pair = []
        for call in (step, lambda: multiply(operands)):
            wait()
            start = time.perf_counter()
            call()
            wait()
            pair.append(time.perf_counter() - start)
        if number >= 0:
            seconds.append((pair[0], pair[1]))
    step_time, product_time = (statistics.median(column) for column in zip(*seconds, strict=True))
    flops = sum(product.flops for product in recorded.products)
    return StepTime(
        step_time, product_time, statistics.median(one / other for one, other in seconds), len(operands), flops
    )
