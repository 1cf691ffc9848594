"""Functions whose steps depend on numbers, as one operation each of the programs that torch.compile makes.

A program holds the name of such a function, and for its gradients the name of one that runs it again and differentiates
what it did: nothing but the arguments is kept for the backward pass, which takes the time of one more forward pass.
Exported programs hold no such names, so that they load without this package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def in_program() -> bool:
    """Tell whether a program is compiled that calls this package when it runs."""
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def weights_in_program(
    penalty: float | Tensor, alpha: float | Tensor | None, device: torch.device
) -> tuple[Tensor, Tensor | None]:
    """Return the weights of the energy as tensors, the one kind that an operation takes."""

    def as_tensor(weight: float | Tensor) -> Tensor:
        return weight if isinstance(weight, Tensor) else torch.full((), weight, dtype=torch.float64, device=device)

    return as_tensor(penalty), None if alpha is None else as_tensor(alpha)


def one_operation(empty: Callable[..., Tensor]) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make a function of tensors and numbers an operation of programs, `graphbench_sfi_former::<its name>`.

    Args:
        empty: makes a tensor of the result's shape and dtype from the arguments.

    Examples:
        >>> @one_operation(lambda x: x.new_empty(x.shape))
        ... def divided_by_the_sum(x: Tensor) -> Tensor:
        ...     return x / float(x.sum())
        >>> torch.compile(lambda x: divided_by_the_sum(x), backend="eager", fullgraph=True)(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def decorate(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = f"graphbench_sfi_former::{plain.__name__.strip('_')}"
        schema = torch.library.infer_schema(plain, mutates_args=())

        def run(*args: Any) -> Tensor:
            return plain(*args).contiguous()

        def differentiate(upstream: Tensor, wanted: list[bool], *args: Any) -> list[Tensor]:
            # An operation runs below autograd; this mode is what switches it on again.
            with torch.inference_mode(False), torch.autocast(upstream.device.type, enabled=False):
                given = [x.detach().requires_grad_() if want else x for x, want in zip(args, wanted, strict=True)]
                leaves = [x for x, want in zip(given, wanted, strict=True) if want]
                found = torch.autograd.grad(plain(*given), leaves, upstream, materialize_grads=True)
                return [gradient.contiguous() for gradient in found]

        operation = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
        operation.register_fake(empty)
        arguments = schema.partition(" -> ")[0].removeprefix("(")
        gradients = torch.library.custom_op(
            f"{name}_gradients",
            differentiate,
            mutates_args=(),
            schema=f"(Tensor upstream, bool[] wanted, {arguments} -> Tensor[]",
        )
        gradients.register_fake(
            lambda upstream, wanted, *args: [x.new_empty(x.shape) for x, want in zip(args, wanted, strict=True) if want]
        )

        def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
            ctx.others = [None if isinstance(x, Tensor) else (x,) for x in inputs]

        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            tensors, wanted = iter(ctx.saved_tensors), list(ctx.needs_input_grad)
            args = [next(tensors) if other is None else other[0] for other in ctx.others]
            found = iter(gradients(upstream, wanted, *args))
            return tuple(next(found) if want else None for want in wanted)

        operation.register_autograd(backward, setup_context=keep)
        return operation

    return decorate
