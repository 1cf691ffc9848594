"""Estimate the memory of encodings and attention for a large graph, and refuse what does not fit before it starts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from graphbench.contracts import Encoding
from graphbench.errors import BadInput

logger = logging.getLogger(__name__)

_GIB = 2**30
_LOGGED_FROM = 2**27  # bytes above which an encoding is logged


def memory_of(device: torch.device | None = None) -> int | None:
    """Return the memory in bytes of this machine, or of a GPU; None if the platform does not report it."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_encodings(
    encodings: Iterable[Encoding], num_nodes: int, num_edges: int, limit: float | None, name: str
) -> None:
    """Refuse an encoding that needs more than `limit` GiB for the largest graph, by default what the machine has."""
    # Check before the first edge is read: a job that the kernel kills after hours does not report the reason.
    for encoding in encodings:
        needed, what = encoding.memory(num_nodes, num_edges), f"{name}: {encoding!r} of a graph of {num_nodes:,} nodes"
        if needed > _LOGGED_FROM:
            logger.info("%s takes about %s.", what, _format_size(needed))
        advice = "Use a model without it, LapPE or RWSE, which grow with the edges,"
        _check(needed, limit, memory_of(), what, advice)


def check_attention(
    model: nn.Module, num_nodes: int, limit: float | None, name: str, device: torch.device | None = None
) -> None:
    """Refuse attention between all pairs of nodes whose weights need over `limit` GiB, by default what `device` has.

    Layers with a method `pair_bytes(num_nodes)` are added up, since training keeps the weights of all of them.
    """
    layers: list[Any] = [module for module in model.modules() if callable(getattr(module, "pair_bytes", None))]
    _check(
        sum(layer.pair_bytes(num_nodes) for layer in layers),
        limit,
        memory_of(device),
        f"{name}: attention among all pairs of {num_nodes:,} nodes, in {len(layers)} layers,",
        "Use attention that is linear or runs along edges (GPS with attention: Performer, or only message passing),",
    )


def _check(needed: int, limit: float | None, available: int | None, what: str, advice: str) -> None:
    allowed = available if limit is None else limit * _GIB
    if allowed is not None and needed > allowed:
        whose = "which is all there is" if limit is None else "the option memory_limit"
        raise BadInput(
            f"{what} takes up to {_format_size(needed)}, more than {_format_size(allowed)}, {whose}. {advice} "
            "or raise data.memory_limit."
        )


def _format_size(size: float) -> str:
    size /= _GIB
    return f"{size:,.1f} GiB" if size >= 1 else f"{size:.2g} GiB"
