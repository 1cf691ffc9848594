"""Operations on tensors of the pretended GPU that have a shape and no numbers, computed on PyTorch's device `meta`.

Known numbers stay known until an operation mixes them with unknown ones. So indices in a batch determine shapes as in a
real step, while only the shape is known of values that depend on weights.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from graphbench.errors import BadInput

UNKNOWN = "{what} at {where} depends on numbers that only a real step has, so it cannot be estimated."
#: Memory whose numbers were overwritten by unknown ones; views of it are also unknown.
_overwritten: weakref.WeakSet[Any] = weakref.WeakSet()


def compute_shape(func: Any, where: Callable[[], str], *args: Any, **kwargs: Any) -> Any:
    """Compute the shape of a result; operands with numbers lose them. `where` returns the line that called it."""
    name = func._schema.name.removeprefix("aten::")
    if name in ("index", "index_put", "index_put_", "_unsafe_index"):
        args = (args[0], _as_rows(args[1]), *args[2:])
    if "device" in kwargs:  # an operation that creates tensors
        kwargs["device"] = torch.device("meta")
    kwargs.pop("generator", None)
    args, kwargs = tree_map(_without, args), tree_map(_without, kwargs)
    try:
        return func(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        raise BadInput(UNKNOWN.format(what=name, where=where())) from error


def drop_overwritten(func: Any, args: Sequence[Any], tensors: Sequence[Any]) -> None:
    """Drop the numbers of tensors that an operation will fill with unknown ones, and of views of them.

    `tensors` are its operands on the device, each with `numbers`.
    """
    for tensor in tensors:
        if not tensor.numbers.is_meta and _overwritten and tensor.numbers.untyped_storage() in _overwritten:
            tensor.numbers = tensor.numbers.to("meta")
    if not func._schema.is_mutable or not any(tensor.numbers.is_meta for tensor in tensors):
        return
    for argument, value in zip(func._schema.arguments, args, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for tensor in tree_leaves(value):
                if not tensor.numbers.is_meta:
                    _overwritten.add(tensor.numbers.untyped_storage())
                    tensor.numbers = tensor.numbers.to("meta")


def _as_rows(indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Replace known masks by the indices at which they are true."""
    places: list[Tensor | None] = []
    for index in indices:
        is_mask = index is not None and index.dtype in (torch.bool, torch.uint8) and not index.is_meta
        places += index.nonzero().unbind(1) if is_mask and index is not None else [index]
    return places


def _without(value: Any) -> Any:
    # Host scalars, tensors without a dimension, mix with tensors of any device.
    return value.to("meta") if isinstance(value, Tensor) and value.dim() else value
