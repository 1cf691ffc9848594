"""Gradients that can be differentiated again, using the plain form of an operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def gradients_by(
    plain: Callable[..., Any], inputs: Sequence[Any], asked: Sequence[bool], upstream: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Differentiate the plain form of an operation at its inputs, keeping the graph for a second derivative.

    Backward passes call it if autograd records them (`create_graph`), since those of loops cannot be differentiated.

    Args:
        plain: function of the inputs that returns one or several tensors.
        inputs: inputs from `ctx.saved_tensors` of a backward pass, so that they belong to the graph.
        asked: which of the inputs need a gradient.
        upstream: gradient of each output; None if it has none.

    Returns:
        A gradient for each input; None if it was not requested.
    """
    with torch.enable_grad():
        plain_outputs = plain(*inputs)
    outputs = plain_outputs if isinstance(plain_outputs, tuple) else (plain_outputs,)
    pairs = [(out, grad) for out, grad in zip(outputs, upstream, strict=True) if grad is not None and out.requires_grad]
    wanted = [x for x, needed in zip(inputs, asked, strict=True) if needed]
    outs, above = [out for out, _ in pairs], [grad for _, grad in pairs]
    grads = iter(torch.autograd.grad(outs, wanted, above, create_graph=True, allow_unused=True))
    return tuple(next(grads) if needed else None for needed in asked)
