"""Scratch memory that a thread keeps between calls."""

from __future__ import annotations

import math
import threading

import torch
from torch import Tensor

#: Numbers in one buffer of a block of rows, on a CPU and elsewhere. On a CPU the handful of buffers of a block should
#: stay in the last cache and yet be long enough to outweigh the cost of calling an operation.
BLOCK_CPU, BLOCK_GPU = 2**19, 2**24
#: Bytes of such a buffer where kernels in Numba compute and blocks are for steep rows and dropout's factors alone.
BLOCK_ROWS = 2**21
#: Shapes whose views are remembered; batches of graphs bring ever new ones.
_MOST_VIEWS = 64


class _Kept(threading.local):
    """One flat tensor a dtype, and the views that were cut from it last."""

    def __init__(self) -> None:
        self.memory: dict[torch.dtype, Tensor] = {}
        self.views: dict[tuple[torch.dtype, int, tuple[int, ...]], tuple[Tensor, ...]] = {}


_kept = _Kept()


def block_size(device: torch.device) -> int:
    """Numbers that one buffer of a block may hold on this device."""
    return BLOCK_CPU if device.type == "cpu" else BLOCK_GPU


def row_block_size(like: Tensor) -> int:
    """Numbers of the dtype of `like` that a buffer of a block may hold where kernels in Numba compute."""
    return min(BLOCK_CPU, BLOCK_ROWS // like.element_size())


def borrow(number: int, shape: tuple[int, ...], like: Tensor) -> tuple[Tensor, ...]:
    """`number` uninitialised buffers of one shape; the next call from the same thread may hand out the same memory.

    On a CPU fresh memory is expensive: the system clears and maps it page by page, which can cost several times the
    arithmetic done in it. Other devices have a caching allocator of their own.

    Args:
        number: how many buffers.
        shape: shape of each.
        like: tensor whose dtype and device they get.
    """
    if like.device.type != "cpu":
        return tuple(like.new_empty((number, *shape)).unbind(0))
    key = (like.dtype, number, shape)
    if key not in _kept.views:
        size = number * math.prod(shape)
        memory = _kept.memory.get(like.dtype)
        grows = memory is None or memory.numel() < size
        if grows or len(_kept.views) >= _MOST_VIEWS:
            _kept.views.clear()
        with torch.inference_mode(False):  # else they could never be written to outside of inference mode
            if memory is None or grows:
                memory = _kept.memory[like.dtype] = torch.empty(size, dtype=like.dtype)
            _kept.views[key] = tuple(memory[:size].view(number, *shape).unbind(0))
    return _kept.views[key]
