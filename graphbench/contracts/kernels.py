"""Named operations that an installed package may compute faster, and how such packages are found.

An operation is a function of tensors in plain torch. `operation` registers it with `torch.library` as a composite of
other operations, so that autograd, autocast, fake tensors and dispatch modes see torch's own operations. A package
of kernels, such as `graphbench-kernels`, registers faster versions for some devices under the same name; it is found
by its entry point in the group `graphbench.kernels` when the first operation is called. Without such a package, the
plain functions compute everything. `one_operation` registers a function only for programs of torch.compile.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, wraps
from importlib import import_module, metadata
from typing import Any, ParamSpec, TypeVar, cast

import torch
from torch import Tensor

from graphbench.contracts.versions import warn_of_version
from graphbench.errors import check_choice

__all__ = [
    "VARIABLE",
    "in_program",
    "kernels_run",
    "one_operation",
    "operation",
    "plain_form",
    "register_kernels",
    "runs_numba",
    "runs_triton",
]

#: `numba` (default) uses installed kernels, `torch` uses only the plain functions.
VARIABLE = "GRAPHBENCH_KERNELS"
#: Entry points of packages with kernels: functions without arguments that register them.
GROUP = "graphbench.kernels"

P = ParamSpec("P")
T = TypeVar("T")


def operation(namespace: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Make a function an operation of `torch.ops.<namespace>` that kernels can replace.

    The schema is inferred from the annotations. A call costs two microseconds more than calling the function. Programs
    of torch.compile and torch.export contain the operations inside the function, so that they load without graphbench.
    The namespace is `graphbench`, or the package of a plug-in.

    Examples:
        >>> @operation("an_example")
        ... def double(x: Tensor) -> Tensor:
        ...     return 2 * x
        >>> double(torch.ones(2)), torch.ops.an_example.double(torch.ones(1))
        (tensor([2., 2.]), tensor([2.]))
    """

    def decorate(plain: Callable[P, T]) -> Callable[P, T]:
        name = plain.__name__
        whole = f"{namespace}::{name}"
        library = _library(namespace)
        library.define(name + torch.library.infer_schema(plain, mutates_args=()))
        library.impl(name, plain, "CompositeImplicitAutograd")
        registered = getattr(getattr(torch.ops, namespace), name).default

        @wraps(plain)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # Not through the dispatcher: a program that names the operation could not be loaded without graphbench,
            # and no kernel has a rule for `torch.func.vmap`.
            if torch.compiler.is_compiling() or _is_transformed() or whole in _LEFT_OUT or not kernels_run():
                return plain(*args, **kwargs)
            return cast("T", registered(*args, **kwargs))

        _PLAIN[whole] = plain
        return call

    return decorate


def _is_transformed() -> bool:
    """Tell whether a transform of `torch.func`, such as `grad` or `vmap`, is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def in_program() -> bool:
    """Tell whether torch.compile is tracing a program that imports this package when it runs.

    Programs of torch.export are loaded without it.

    Examples:
        >>> in_program()
        False
    """
    return torch.compiler.is_compiling() and not torch.compiler.is_exporting()


def one_operation(
    namespace: str, empty: Callable[..., Tensor]
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Make a function with data-dependent steps a single operation in programs of torch.compile.

    A program refers to it as `<namespace>::<its name>`, and for gradients to an operation that runs the function again
    and differentiates it. Only the arguments are saved for the backward pass, which costs one more forward pass. There
    are no second derivatives through a program.

    Args:
        namespace: the package of the function, which a program imports when it runs.
        empty: creates a tensor of the result's shape and dtype from the arguments of the function.

    Examples:
        >>> @one_operation("an_example", lambda x: x.new_empty(x.shape))
        ... def divided_by_the_sum(x: Tensor) -> Tensor:
        ...     return x / float(x.sum())
        >>> torch.compile(lambda x: divided_by_the_sum(x), backend="eager", fullgraph=True)(torch.ones(2))
        tensor([0.5000, 0.5000])
    """

    def decorate(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
        name = f"{namespace}::{plain.__name__.strip('_')}"
        schema = torch.library.infer_schema(plain, mutates_args=())

        def run(*args: Any) -> Tensor:
            return plain(*args).contiguous()

        def differentiate(upstream: Tensor, wanted: list[bool], *args: Any) -> list[Tensor]:
            # An operation runs below autograd; this mode switches autograd on again.
            with torch.inference_mode(False), torch.autocast(upstream.device.type, enabled=False):
                given = [x.detach().requires_grad_() if want else x for x, want in zip(args, wanted, strict=True)]
                leaves = [x for x, want in zip(given, wanted, strict=True) if want]
                by_leaf = torch.autograd.grad(plain(*given), leaves, upstream, materialize_grads=True)
                return [gradient.contiguous() for gradient in by_leaf]

        operation = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
        operation.register_fake(empty)
        given = schema.partition(" -> ")[0].removeprefix("(")
        schema = f"(Tensor upstream, bool[] wanted, {given} -> Tensor[]"
        gradients = torch.library.custom_op(f"{name}_gradients", differentiate, mutates_args=(), schema=schema)
        gradients.register_fake(
            lambda upstream, wanted, *args: [x.new_empty(x.shape) for x, want in zip(args, wanted, strict=True) if want]
        )

        def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
            ctx.save_for_backward(*(x for x in inputs if isinstance(x, Tensor)))
            ctx.others = [None if isinstance(x, Tensor) else (x,) for x in inputs]

        def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
            tensors, wanted = iter(ctx.saved_tensors), list(ctx.needs_input_grad)
            args = [next(tensors) if other is None else other[0] for other in ctx.others]
            by_argument = iter(gradients(upstream, wanted, *args))
            return tuple(next(by_argument) if want else None for want in wanted)

        operation.register_autograd(backward, setup_context=keep)
        return operation

    return decorate


def plain_form(name: str) -> Callable[..., Any]:
    """Return the function in plain torch behind an operation such as `graphbench::sum_neighbours`, for its kernels."""
    return _PLAIN[name]


#: Operation -> its plain form.
_PLAIN: dict[str, Callable[..., Any]] = {}
#: Operations that use their plain form even if there are kernels for them; see `graphbench.testing.computed_by`.
_LEFT_OUT: set[str] = set()


@cache
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "FRAGMENT")  # its registrations last as long as it does


def kernels_run() -> bool:
    """Tell whether a package with kernels is installed and in use."""
    return _are_wanted() and bool(register_kernels())


@cache
def _are_wanted() -> bool:
    choice = os.environ.get(VARIABLE, "numba")
    check_choice(f"the environment variable {VARIABLE}", choice, ("numba", "torch"))
    return choice == "numba"


@cache
def register_kernels() -> tuple[str, ...]:
    """Let all installed packages register their kernels, once; return the names of their entry points."""
    for entry in _entry_points():
        if entry.dist is not None:
            warn_of_version(entry.dist.name)
        entry.load()()
    return tuple(entry.name for entry in _entry_points())


@cache
def _entry_points() -> tuple[metadata.EntryPoint, ...]:
    # Sorted, so that the order of registration does not depend on the order of folders on disk.
    return tuple(sorted(metadata.entry_points(group=GROUP), key=lambda entry: entry.name))


def runs_numba(*tensors: Tensor) -> bool:
    """Tell whether Numba loops accept these tensors: `graphbench_kernels.runs_numba`, False if it is not installed.

    Examples:
        >>> runs_numba(torch.zeros(2, dtype=torch.float16))
        False
    """
    return kernels_run() and bool(_package().runs_numba(*tensors))


def runs_triton(device: torch.device) -> bool:
    """Tell whether Triton kernels run on a device: `graphbench_kernels.runs_triton`, False if it is not installed.

    Examples:
        >>> runs_triton(torch.device("cpu"))
        False
    """
    return kernels_run() and bool(_package().runs_triton(device))


@cache
def _package() -> Any:
    return import_module(_entry_points()[0].module.partition(".")[0])
