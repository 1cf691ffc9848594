"""Compute in float64 on devices that support it, and without it on Apple's GPUs, which do not.

Apple's GPUs also lack a few operations of PyTorch, those on segments and on compressed sparse rows. All code that
computes in float64 uses this module, so that one rule applies: on such a device, use the CPU if the precision matters,
and float32 if it does not.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

__all__ = ["as_double", "is_apple", "widest_dtype"]

logger = logging.getLogger(__name__)

#: PyTorch's device types of Apple's GPUs.
_APPLE = {"mps"}
#: Error message of a benchmark that needs float64.
NO_FLOAT64 = (
    "{name}: float32 cannot distinguish its targets, and an Apple GPU has no float64. Use --trainer.accelerator cpu."
)


def is_apple(device: torch.device) -> bool:
    """Tell whether a device is an Apple GPU.

    Examples:
        >>> is_apple(torch.device("cpu")), is_apple(torch.device("mps"))
        (False, True)
    """
    return device.type in _APPLE


def choose_accelerator(accelerator: str) -> str:
    """Return the accelerator for a configured one: on a Mac `auto` is the CPU, and its GPU must be requested.

    Lightning would select the GPU, on which none of our scores were computed and nothing was timed.

    Examples:
        >>> choose_accelerator("mps")
        'mps'
    """
    if accelerator != "auto" or not torch.backends.mps.is_available():
        return accelerator
    logger.info("auto uses the processor of this Mac; --trainer.accelerator mps uses its GPU, see docs/how-to/gpu.md")
    return "cpu"


def as_double(tensor: Tensor) -> Tensor:
    """Convert a tensor to float64, which autocast does not change; on the CPU if the device does not support it."""
    return (tensor.cpu() if is_apple(tensor.device) else tensor).double()


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that has no wider type.

    Examples:
        >>> widest_dtype(torch.device("cpu")), widest_dtype(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    return torch.float32 if is_apple(device) else torch.float64
