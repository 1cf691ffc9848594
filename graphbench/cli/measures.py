"""What several commands measure of a model, its scores and the process."""

from __future__ import annotations

import contextlib
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import nn


def count_parameters(module: nn.Module) -> int:
    """Trainable parameters, shared ones once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def peak_memory_mb() -> float:
    """Most memory in use so far: of the GPU where there is one, else resident memory of the process, in MB (1e6)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    with contextlib.suppress(OSError):  # as far as Linux tells: `ru_maxrss` counts the process that started this one
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 1e6 if sys.platform == "darwin" else kilobytes * 1024 / 1e6


def scores_of(split: str, logged: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a split (`val/MAE`) among all that was logged, callbacks included.

    Examples:
        >>> scores_of("val", {"val/MAE": 0.25, "capacity/layer_0": 0.5})
        {'val/MAE': 0.25}
    """
    return {key: value for key, value in logged.items() if key.startswith(f"{split}/")}
