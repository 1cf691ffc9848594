"""Compute in float64 where the device has it, and do without on Apple's GPUs, which have none.

They also lack a few operations of PyTorch, those of segments and of compressed sparse rows. Everything that computes in
float64 asks here, so that one rule holds: on such a device it is done on the CPU where the digits count, and in float32
where they do not.
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor

__all__ = ["as_double", "is_apple", "widest_dtype"]

logger = logging.getLogger(__name__)

#: PyTorch's types of such devices.
_APPLE = {"mps"}
#: Message of a benchmark that needs it.
NO_FLOAT64 = (
    "{name}: float32 cannot tell its targets apart, and an Apple GPU has no float64. Take --trainer.accelerator cpu."
)


def is_apple(device: torch.device) -> bool:
    """Tell whether a device is an Apple GPU.

    Examples:
        >>> is_apple(torch.device("cpu")), is_apple(torch.device("mps"))
        (False, True)
    """
    return device.type in _APPLE


def choose_accelerator(accelerator: str) -> str:
    """Return the accelerator for a configured one: `auto` is the processor of a Mac, whose GPU has to be asked for.

    Lightning would take the GPU, on which no score of ours was computed and nothing timed.

    Examples:
        >>> choose_accelerator("mps")
        'mps'
    """
    if accelerator != "auto" or not torch.backends.mps.is_available():
        return accelerator
    logger.info("auto takes the processor of this Mac; --trainer.accelerator mps takes its GPU, see docs/how-to/gpu.md")
    return "cpu"


def as_double(tensor: Tensor) -> Tensor:
    """Convert a tensor to float64, which autocast leaves alone; on the CPU where the device has none."""
    return (tensor.cpu() if is_apple(tensor.device) else tensor).double()


def widest_dtype(device: torch.device) -> torch.dtype:
    """Return float64, or float32 on a device that has no wider type.

    Examples:
        >>> widest_dtype(torch.device("cpu")), widest_dtype(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    return torch.float32 if is_apple(device) else torch.float64
