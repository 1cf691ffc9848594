"""Check whether a step waits for its device."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from graphbench.contracts import GraphBatch, Representation

META = "meta"


def check_reads_nothing(model: nn.Module, batch: GraphBatch, loss: Callable[[Representation], Tensor]) -> None:
    """Run a step on torch's device "meta", whose tensors have shapes and no numbers.

    A program runs ahead of a GPU until it reads a number from it, or a shape that depends on numbers (`int(x)`,
    `x[mask]`, `nonzero`, `unique`, `bincount`). On this device all of these are errors, on any machine. The model
    stays there.
    """
    model, batch = model.to(META), batch.to(META)
    try:
        with without_autocast():
            value = loss(model(batch))
            if value.requires_grad:
                value.backward()
    except (RuntimeError, NotImplementedError) as error:
        raise AssertionError(f"a step reads from its device: {str(error).splitlines()[0]}") from error


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """Report autocast, which does not support this device, as off there, and ignore attempts to switch it."""
    enabled, autocast = torch.is_autocast_enabled, torch.autocast

    def is_enabled(device_type: str | None = None) -> bool:
        return device_type != META and (enabled() if device_type is None else enabled(device_type))

    def make(device_type: str, *args: Any, **options: Any) -> contextlib.AbstractContextManager[Any]:
        if device_type == META:
            return contextlib.nullcontext()
        return autocast(device_type, *args, **options)

    with (
        mock.patch.object(torch, "is_autocast_enabled", is_enabled),
        mock.patch.object(torch, "autocast", make),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
