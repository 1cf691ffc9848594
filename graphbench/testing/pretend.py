"""A pretended graphics card: tensors that hold numbers, say that they lie elsewhere, and count what they cost.

A program runs ahead of a card until it reads a number from it, copies to it from ordinary memory, or asks for a shape
that depends on numbers. On this device all of it works, on any machine, and is counted with the line that asked; so are
the operations that a card would launch. Tensors of the device and of the processor do not mix, as with a card.

Tensors may also lie there without numbers (`PretendedTensor(meta tensor)`), and so does all that is computed from them:
sizes are known and no memory is taken, as `graphbench.testing.memory` needs it. Numbers of a batch can stay, so that
shapes that depend on them are the real ones.

With `apple` the card is one of Apple's: tensors of float64 and what PyTorch has no Metal kernels for raise an error.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from graphbench.contracts import devices
from graphbench.errors import BadInput
from graphbench.testing import card_kernels, without_numbers
from graphbench.testing.card_kernels import attend, by_processor, count_launches
from graphbench.testing.without_numbers import UNKNOWN, compute_shape, drop_overwritten

#: PyTorch's name of the device.
NAME = "pretend"
#: Operations whose results depend on numbers in their shape, or are numbers of the host.
_WAITING = {
    "_coalesce", "_local_scalar_dense", "_unique", "_unique2", "argwhere", "bincount", "equal", "histc", "is_nonzero",
    "linalg_cholesky", "linalg_eigh", "linalg_qr", "linalg_svd", "masked_select", "multinomial", "nonzero",
    "unique_consecutive", "unique_dim", "unique_dim_consecutive",
}  # fmt: skip
#: Files that stand between a line and the device.
_OWN_FILES = {__file__, card_kernels.__file__, without_numbers.__file__}
#: Operations with kernels for processors and CUDA and none for Apple's GPUs in PyTorch 2.13, as far as models of graphs
#: have use for them.
NOT_ON_APPLE = {
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_segment_reduce_backward",
    "_to_sparse_csc", "_to_sparse_csr", "linalg_eig", "linalg_matrix_exp", "put_", "segment_reduce", "take",
}  # fmt: skip
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}

#: What the device computes in its own way lasts as long as this does.
_LASTING: list[torch.library.Library] = []


class _Backend:
    """Answers to what PyTorch asks of a device; numbers are drawn on the CPU, so the device has no state of its own."""

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _is_in_bad_fork(self) -> bool:
        return False

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        pass

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]


@cache
def pretended_device() -> torch.device:
    """Return the device; the first call tells PyTorch about it, for the rest of the process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    _LASTING.append(implement("aten::scaled_dot_product_attention", attend))
    return torch.device(NAME, 0)


def implement(operation: str, function: Callable[..., Any]) -> torch.library.Library:
    """Let a function compute an operation on the device, with its own gradients, until `_destroy` of the library."""
    namespace, _, name = operation.partition("::")
    library = torch.library.Library(namespace, "IMPL")
    library.impl(name, function, "AutogradPrivateUse1")
    return library


class PretendedTensor(Tensor):
    """A tensor of the pretended device; another one holds its numbers on the CPU, or on `meta` the shape alone."""

    numbers: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[PretendedTensor], inner: Tensor) -> PretendedTensor:
        """Make a tensor of this size and kind without memory on the device."""
        strided = inner.layout == torch.strided
        made: PretendedTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride() if strided else None,
            storage_offset=inner.storage_offset() if strided else None,
            dtype=inner.dtype,
            layout=inner.layout,
            device=pretended_device(),
        )
        made.numbers = inner
        if inner.dtype in (torch.float64, torch.complex128) and devices.is_apple(made.device):
            raise TypeError(f"an Apple GPU has no {inner.dtype}, at {_caller()}")
        if _made is not None:
            _made(inner)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return _computed(func, args, kwargs or {})

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """Answer what PyTorch asks before it moves parameters of other kinds between devices."""
        return ["numbers"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], context: None, size: Any, stride: Any) -> PretendedTensor:
        return PretendedTensor(inner["numbers"])

    def __repr__(self) -> str:  # type: ignore[override]
        return f"PretendedTensor({tuple(self.shape)}, {self.dtype})"

    def tolist(self) -> Any:
        """Read all numbers."""
        _wait("tolist")
        return self.numbers.detach().tolist()


@dataclass
class Work:
    """Work of the device: lines that waited for it or copied to it, and operations that it computed."""

    waits: Counter[str] = field(default_factory=Counter)  # operation and line -> how often the program waited there
    #: operation -> how often it was computed; views and empty tensors cost nothing.
    launches: Counter[str] = field(default_factory=Counter)
    #: line -> how many tensors of the host it copied to the device.
    copies: Counter[str] = field(default_factory=Counter)


_work: Work | None = None
#: Called with what holds each new tensor of the device.
_made: Callable[[Tensor], None] | None = None
#: Operations that compute nothing: they look at memory in another way, or reserve it.
_FREE = {
    "_local_scalar_dense", "_reshape_alias", "_unsafe_view", "alias", "detach", "empty", "empty_like", "empty_strided",
    "lift_fresh", "new_empty", "new_empty_strided",
}  # fmt: skip


@contextlib.contextmanager
def counted_work() -> Iterator[Work]:
    """Count what the device does within the block.

    Examples:
        >>> def count():
        ...     with on_pretended_device() as device:
        ...         numbers = torch.ones(3).to(device)
        ...         with counted_work() as work:
        ...             total = float((2 * numbers).sum())
        ...     return f"{total}: {work.waits.total()} wait, launches {dict(work.launches)}"
        >>> in_fork(count)
        "6.0: 1 wait, launches {'mul': 1, 'sum': 1}"
    """
    global _work
    before, _work = _work, Work()
    try:
        yield _work
    finally:
        _work = before


@contextlib.contextmanager
def watched_tensors(watch: Callable[[Tensor], None]) -> Iterator[None]:
    """Call `watch` with what holds each new tensor of the device, views included, within the block."""
    global _made
    before, _made = _made, watch
    try:
        yield
    finally:
        _made = before


def in_fork(action: Callable[[], str]) -> str:
    """Run `action` in a child of this process, which alone knows a device more then; return its text or traceback."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            torch.set_num_threads(1)  # threads of the parent are not there any more
            text = action()
        except BaseException:
            text = traceback.format_exc()
        os.write(writing, text.encode()[-8_000:])
        os._exit(0)  # not `exit`: handlers of the parent, such as those of pytest, are not the child's to run
    os.close(writing)
    with os.fdopen(reading) as file:  # before waiting: a full pipe would stop the child
        text = file.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the process with the pretended device ended with status {status}"
    return text


@contextlib.contextmanager
def on_pretended_device(apple: bool = False) -> Iterator[torch.device]:
    """Let tensors be made on the device within the block, and modules be moved to it.

    Args:
        apple: whether the device lacks what Apple's GPUs lack.
    """
    device = pretended_device()
    kinds = {*devices._APPLE, NAME} if apple else devices._APPLE
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    lifted = torch._C._only_lift_cpu_tensors()  # type: ignore[attr-defined]
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    torch._C._set_only_lift_cpu_tensors(True)  # type: ignore[attr-defined] # `torch.tensor` copies where modes see it
    try:
        with _Making(), mock.patch.object(torch, "Generator", _Generator), mock.patch.object(devices, "_APPLE", kinds):
            yield device
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)  # type: ignore[attr-defined]
        torch.__future__.set_overwrite_module_params_on_conversion(before)


class PretendedGenerator(torch._C.Generator):
    """A generator of the device; it draws on the CPU, where the numbers are."""

    def __new__(cls) -> PretendedGenerator:
        """Make one."""
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of what is drawn."""
        return pretended_device()


class _Generators(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(metaclass=_Generators):
    """Stand-in for `torch.Generator` within `on_pretended_device`."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Make a generator of that device."""
        return PretendedGenerator() if _is_here(device) else torch._C.Generator(device)


class _Making(TorchDispatchMode):
    """Operations without a tensor of the device that make one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _wait(operation: str) -> None:
    if _work is not None:
        _work.waits[f"{operation} at {_caller()}"] += 1


def _count_copy() -> None:
    if _work is not None:
        _work.copies[_caller()] += 1


def _caller() -> str:
    """Return the lines outside of PyTorch that led here, the innermost first."""
    frame = sys._getframe(1)
    lines: list[str] = []
    while frame is not None and len(lines) < 3:
        name = frame.f_code.co_filename
        if name not in _OWN_FILES and "/torch/" not in name and not name.startswith("<"):
            lines.append(f"{name.split('site-packages/')[-1]}:{frame.f_lineno}")
        frame = frame.f_back  # type: ignore[assignment]
    return " < ".join(lines) or "a gradient"


def _is_here(device: Any) -> bool:
    return device is not None and torch.device(device).type == NAME


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Compute an operation, on the device where its operands lie or where it was asked for."""
    leaves = tree_leaves((args, kwargs))
    here = [leaf for leaf in leaves if isinstance(leaf, PretendedTensor)]
    others = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, PretendedTensor)]
    device = kwargs.get("device")
    if not here and not _is_here(device):
        return func(*args, **kwargs)
    name = func._schema.name.removeprefix("aten::")
    if name in NOT_ON_APPLE and devices.is_apple(pretended_device()):
        raise NotImplementedError(f"an Apple GPU has no kernel for {name}, at {_caller()}")
    if name == "_to_copy":
        return _copied(func, args, dict(kwargs))
    if name == "copy_":
        if here and others and not (args[2] if len(args) > 2 else kwargs.get("non_blocking")):
            _wait(name)
        if isinstance(args[0], PretendedTensor) and others:
            _count_copy()
    elif name in _INDEXING:
        indices = [index for index in args[1] if index is not None]
        # A mask is a shape that depends on numbers, and an index of the host is copied.
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices) or any(
            not isinstance(index, PretendedTensor) for index in indices
        ):
            _wait(name)
        others = [other for other in others if not any(other is index for index in indices)]
    elif name in _WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _wait(name)
    # Numbers of the host (tensors without a dimension) mix with any device, as in PyTorch.
    if name != "copy_" and here and any(other.dim() for other in others):
        raise RuntimeError(f"{name}: all tensors must be on one device, but got {NAME}:0 and cpu at {_caller()}")
    if _is_here(device):
        kwargs = {**kwargs, "device": torch.device("cpu"), **({"pin_memory": False} if "pin_memory" in kwargs else {})}
    if _work is not None and not func.is_view and name not in _FREE:
        _work.launches[name] += count_launches(name, args)
    drop_overwritten(func, args, here)
    without = any(one.numbers.is_meta for one in here)
    compute = partial(compute_shape, func, _caller) if without else by_processor(name, func)
    made = compute(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    # An operation in place returns the tensor that it was given, not a new one around its numbers.
    written = {id(one.numbers): one for one in here} if func._schema.is_mutable else {}
    return tree_map(lambda one: written[id(one)] if id(one) in written else _outer(one), made)


def _copied(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Copy between devices: a copy to the host waits unless told otherwise, as does one from ordinary memory."""
    device, without_waiting = kwargs.pop("device", None), kwargs.pop("non_blocking", False)
    kwargs.pop("pin_memory", None)
    source = args[0]
    to_here = _is_here(device if device is not None else source.device)
    if to_here != isinstance(source, PretendedTensor) and not without_waiting:
        _wait("copy to the device" if to_here else "copy to the host")
    if to_here and not isinstance(source, PretendedTensor):
        _count_copy()
    if _work is not None:
        _work.launches["copy"] += 1
    if _inner(source).is_meta and not to_here:
        raise BadInput(UNKNOWN.format(what="a copy to the host", where=_caller()))
    made: Tensor = func(_inner(source), **kwargs)
    return PretendedTensor(made) if to_here else made


def _inner(value: Any) -> Any:
    return value.numbers if isinstance(value, PretendedTensor) else value


def _outer(value: Any) -> Any:
    return PretendedTensor(value) if isinstance(value, Tensor) and not isinstance(value, PretendedTensor) else value
