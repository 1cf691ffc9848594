"""What encodings and attention of a large graph take, held against the memory there is before anything starts."""

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
#: Bytes from which on it is told what an encoding takes.
_TOLD_FROM = 2**27


def memory_of(device: torch.device | None = None) -> int | None:
    """Bytes of this machine, or of a GPU; None where the platform does not tell."""
    if device is not None and device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def check_encodings(
    encodings: Iterable[Encoding], num_nodes: int, num_edges: int, limit: float | None, name: str
) -> None:
    """Refuse an encoding that takes more memory than there may be.

    Args:
        encodings: that a model needs.
        num_nodes: of the largest graph.
        num_edges: of that graph.
        limit: GiB; None for what the machine has.
        name: of the benchmark.

    Raises:
        BadInput: names the encoding, what it takes, and what to do.
    """
    for encoding in encodings:
        needed, what = encoding.memory(num_nodes, num_edges), f"{name}: {encoding!r} of a graph of {num_nodes:,} nodes"
        if needed > _TOLD_FROM:
            logger.info("%s takes about %s.", what, _in_words(needed))
        _check(
            needed,
            limit,
            memory_of(),
            what,
            "Take a model without it, LapPE or RWSE, which grow with the edges,",
        )


def check_attention(
    model: nn.Module, num_nodes: int, limit: float | None, name: str, device: torch.device | None = None
) -> None:
    """Refuse attention among all pairs of nodes whose weights take more memory than there may be.

    Modules tell by a method `pair_bytes(num_nodes)`; all their layers count, since training keeps what each one weighs.

    Args:
        model: all of it.
        num_nodes: of the largest graph.
        limit: GiB; None for what the device has.
        name: of the benchmark.
        device: where the model runs.

    Raises:
        BadInput: says what the weights take, and what to do.
    """
    layers: list[Any] = [module for module in model.modules() if callable(getattr(module, "pair_bytes", None))]
    _check(
        sum(layer.pair_bytes(num_nodes) for layer in layers),
        limit,
        memory_of(device),
        f"{name}: attention among all pairs of {num_nodes:,} nodes, in {len(layers)} layers,",
        "Take attention that is linear or runs along edges (GPS with attention: Performer; message passing alone),",
    )


def _check(needed: int, limit: float | None, there: int | None, what: str, instead: str) -> None:
    allowed = there if limit is None else limit * _GIB
    if allowed is not None and needed > allowed:
        whose = "which is what there is" if limit is None else "the option memory_limit"
        raise BadInput(
            f"{what} takes up to {_in_words(needed)}, more than {_in_words(allowed)}, {whose}. {instead} "
            "or raise data.memory_limit if you know better."
        )


def _in_words(size: float) -> str:
    """Bytes as GiB, with a digit behind the point where that says enough."""
    size /= _GIB
    return f"{size:,.1f} GiB" if size >= 1 else f"{size:.2g} GiB"
