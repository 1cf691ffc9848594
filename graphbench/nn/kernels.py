"""Where kernels that a plug-in writes in Triton can run."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


@cache
def runs_triton(device: torch.device) -> bool:
    """Whether Triton is installed and compiles for this device.

    The builds of torch for CUDA and ROCm bring Triton with them. What a plug-in has in Triton stands in a module of its
    own, which is imported after this says yes; everywhere else the same is computed by torch.

    Args:
        device: of the tensors.

    Returns:
        False on a CPU, without Triton, and on cards older than compute capability 7.0.

    Examples:
        >>> runs_triton(torch.device("cpu"))
        False
    """
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= (7, 0)
