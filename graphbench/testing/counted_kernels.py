"""Kernels of packages on the pretended GPU: an operation with a kernel counts as the launches of the kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from graphbench.contracts.kernels import plain_form
from graphbench.testing import pretend
from graphbench.testing.pretend import PretendedTensor


@contextlib.contextmanager
def counted_as_kernels(launches: Mapping[str, tuple[int, int]]) -> Iterator[None]:
    """Count operations as kernels within the block; their numbers are computed by the plain forms.

    `launches` maps each operation's name in torch's dispatcher to the launches of its kernels in the forward pass, and
    those of the kernels that compute all gradients.

    Examples:
        >>> from graphbench.nn import sum_neighbours
        >>> def count():
        ...     with pretend.on_pretended_device() as device:
        ...         x, index = torch.ones(3, 2).to(device), torch.tensor([[0, 1], [1, 2]]).to(device)
        ...         with counted_as_kernels({"graphbench::sum_neighbours": (1, 1)}), pretend.counted_work() as work:
        ...             sum_neighbours(x, index)
        ...     return str(dict(work.launches))
        >>> pretend.in_fork(count)
        "{'graphbench::sum_neighbours': 1}"
    """
    pretend.pretended_device()
    kernels = [pretend.implement(name, partial(_as_kernel, name, counts)) for name, counts in launches.items()]
    try:
        yield
    finally:
        for kernel in kernels:
            kernel._destroy()


def _as_kernel(name: str, counts: tuple[int, int], *args: Any, **kwargs: Any) -> Any:
    leaves, structure = tree_flatten((args, kwargs))
    return _Kernel.apply(name, counts, structure, *leaves)


class _Kernel(torch.autograd.Function):
    """An operation on the CPU's numbers, with gradients by autograd."""

    @staticmethod
    def forward(ctx: Any, name: str, counts: tuple[int, int], structure: Any, *leaves: Any) -> Any:
        ctx.count, ctx.needed = partial(_count, name, counts[1]), ctx.needs_input_grad[3:]
        ctx.given = [
            leaf.numbers.detach().requires_grad_(needed) if isinstance(leaf, PretendedTensor) else leaf
            for leaf, needed in zip(leaves, ctx.needed, strict=True)
        ]
        args, kwargs = tree_unflatten(ctx.given, structure)
        # Autograd functions run without gradients; here the plain form records its own graph.
        with torch.enable_grad():
            output = plain_form(name)(*args, **kwargs)
        _count(name, counts[0])
        made = tree_map(lambda x: PretendedTensor(x.detach()), output)
        if isinstance(output, tuple):
            ctx.outputs = output
            ctx.mark_non_differentiable(*(one for one, x in zip(made, output, strict=True) if not x.requires_grad))
        else:
            ctx.outputs = (output,)
        return made

    @staticmethod
    def backward(ctx: Any, *upstream: Any) -> Any:
        ctx.count()
        pairs = [(x, above.numbers) for x, above in zip(ctx.outputs, upstream, strict=True) if x.requires_grad]
        wanted = [leaf for leaf, needed in zip(ctx.given, ctx.needed, strict=True) if needed]
        gradients = iter(torch.autograd.grad([x for x, _ in pairs], wanted, [above for _, above in pairs]))
        grads = (PretendedTensor(next(gradients)) if needed else None for needed in ctx.needed)
        return None, None, None, *grads


def _count(name: str, launches: int) -> None:
    if pretend._work is not None:
        pretend._work.launches[name] += launches
