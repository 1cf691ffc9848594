"""Checks and shapes of arguments that all solvers of the flow share."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from graphbench.errors import BadInput


def solving_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor has it, else float32: half precision cannot hold a water level."""
    return torch.float64 if any(x.dtype == torch.float64 for x in tensors) else torch.float32


def check_rows(resistance: Tensor, friction: Tensor) -> None:
    """Raise `BadInput` unless both are floating-point tensors of one shape `[..., N, K]` with at least one key."""
    for name, tensor in (("resistance", resistance), ("friction", friction)):
        if not tensor.is_floating_point():
            raise BadInput(f"{name} must be a floating-point tensor, but has dtype {tensor.dtype}.")
    if resistance.shape != friction.shape or resistance.dim() < 2 or resistance.shape[-1] == 0:
        raise BadInput(
            "resistance and friction must have one shape [..., N, K] with K >= 1, but have "
            f"{tuple(resistance.shape)} and {tuple(friction.shape)}."
        )


def per_matrix(name: str, value: float | Tensor, lead: tuple[int, ...], device: torch.device, positive: bool) -> Tensor:
    """A weight of the energy as one number per matrix, float64 `[M, 1, 1]` with M the product of `lead`.

    Args:
        name: how messages call it.
        value: number, 0-dim tensor, or tensor that broadcasts to `[*lead, 1, 1]`; gradients flow back to it.
        lead: leading dimensions of the rows.
        device: where the result lies.
        positive: whether 0 is excluded.

    Raises:
        BadInput: a wrong shape, or a value that is negative, zero where excluded, or not finite.
    """
    if not isinstance(value, Tensor):
        number = float(value)
        if not math.isfinite(number) or number < 0 or (positive and number == 0):
            raise _wrong_value(name, number, positive)
        return torch.full((math.prod(lead), 1, 1), number, dtype=torch.float64, device=device)
    smallest, largest = (float(x) for x in value.detach().aminmax()) if value.numel() else (1.0, 1.0)
    if not (smallest >= 0 and math.isfinite(largest)) or (positive and smallest == 0):
        raise _wrong_value(name, smallest if smallest < 0 or math.isfinite(largest) else largest, positive)
    shape = (*lead, 1, 1)
    fits = value.dim() <= len(shape) and all(v in (1, s) for v, s in zip(value.shape[::-1], shape[::-1], strict=False))
    if not fits:
        raise BadInput(
            f"{name} must be a number, a 0-dim tensor or one number per matrix, broadcastable to {shape}, "
            f"but has shape {tuple(value.shape)}."
        )
    return value.to(device, torch.float64).expand(shape).reshape(-1, 1, 1)


def _wrong_value(name: str, value: float, positive: bool) -> BadInput:
    wanted = "positive" if positive else "non-negative"
    hint = " Use alpha=None for the hard constraint (rows that sum to one)." if name == "alpha" else ""
    return BadInput(f"{name} must be {wanted} and finite, but is {value}.{hint}")
