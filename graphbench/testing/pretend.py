"""A pretended GPU: its tensors store numbers on the CPU, report another device, and count their cost.

A program runs ahead of a GPU until it reads a number from it, copies to it from pageable memory, or needs a shape
that depends on numbers. On this device all of this works, on any machine, and is counted with the calling line; so are
the operations that a GPU would launch. Tensors of the device and of the CPU do not mix, as with a GPU.

Tensors may also have no numbers (`PretendedTensor(meta tensor)`), and then results computed from them have none either:
sizes are known and no memory is used, as `graphbench.testing.memory` requires. The numbers of a batch can be kept, so
that shapes that depend on them are the real ones.

With `apple` it is a pretended Apple GPU: float64 tensors and operations without a Metal kernel raise an error.
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
#: Operations whose results have a shape that depends on numbers, or are numbers on the host.
_WAITING = {
    "_coalesce", "_local_scalar_dense", "_unique", "_unique2", "argwhere", "bincount", "equal", "histc", "is_nonzero",
    "linalg_cholesky", "linalg_eigh", "linalg_qr", "linalg_svd", "masked_select", "multinomial", "nonzero",
    "unique_consecutive", "unique_dim", "unique_dim_consecutive",
}  # fmt: skip
#: Files that are skipped when the calling line is determined.
_OWN_FILES = {__file__, card_kernels.__file__, without_numbers.__file__}
#: Operations with kernels for CPUs and CUDA and none for Apple's GPUs in PyTorch 2.13, as far as graph models may use
#: them.
NOT_ON_APPLE = {
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_segment_reduce_backward",
    "_to_sparse_csc", "_to_sparse_csr", "linalg_eig", "linalg_matrix_exp", "put_", "segment_reduce", "take",
}  # fmt: skip
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}

#: Libraries with the device's own implementations, which are registered as long as these objects exist.
_LASTING: list[torch.library.Library] = []


class _Backend:
    """Interface that PyTorch requires of a device; numbers are drawn on the CPU, so the device has no state."""

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
    """Return the device; the first call registers it with PyTorch, for the rest of the process."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Backend())
    _LASTING.append(implement("aten::scaled_dot_product_attention", attend))
    return torch.device(NAME, 0)


def implement(operation: str, function: Callable[..., Any]) -> torch.library.Library:
    """Implement an operation on the device by a function, gradients included, until `_destroy` of the library."""
    namespace, _, name = operation.partition("::")
    library = torch.library.Library(namespace, "IMPL")
    library.impl(name, function, "AutogradPrivateUse1")
    return library


class PretendedTensor(Tensor):
    """A tensor of the pretended device; `numbers` is a CPU tensor with its numbers, or a `meta` tensor without."""

    numbers: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls: type[PretendedTensor], inner: Tensor) -> PretendedTensor:
        """Create a tensor of this size and kind without memory on the device."""
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
        """Return the inner tensors, as PyTorch requires to move parameters of tensor subclasses between devices."""
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
    #: operation -> how often it was computed; views and empty tensors are free.
    launches: Counter[str] = field(default_factory=Counter)
    #: line -> number of host tensors that it copied to the device.
    copies: Counter[str] = field(default_factory=Counter)


_work: Work | None = None
#: Called with the inner tensor of each new tensor of the device.
_made: Callable[[Tensor], None] | None = None
#: Operations that compute nothing: they return views, or allocate memory.
_FREE = {
    "_local_scalar_dense", "_reshape_alias", "_unsafe_view", "alias", "detach", "empty", "empty_like", "empty_strided",
    "lift_fresh", "new_empty", "new_empty_strided",
}  # fmt: skip


@contextlib.contextmanager
def counted_work() -> Iterator[Work]:
    """Count the work of the device within the block.

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
    """Call `watch` with the inner tensor of each new tensor of the device, including views, within the block."""
    global _made
    before, _made = _made, watch
    try:
        yield
    finally:
        _made = before


def in_fork(action: Callable[[], str]) -> str:
    """Run `action` in a child process, so that only the child registers the device; return its text or traceback."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            torch.set_num_threads(1)  # threads of the parent do not exist in the child
            text = action()
        except BaseException:
            text = traceback.format_exc()
        os.write(writing, text.encode()[-8_000:])
        os._exit(0)  # not `exit`: the child must not run handlers of the parent, such as those of pytest
    os.close(writing)
    with os.fdopen(reading) as file:  # before waiting: a full pipe would stop the child
        text = file.read()
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the process with the pretended device ended with status {status}"
    return text


@contextlib.contextmanager
def on_pretended_device(apple: bool = False) -> Iterator[torch.device]:
    """Allow tensors to be created on the device within the block, and modules to be moved to it.

    Args:
        apple: whether the device has the limitations of Apple's GPUs.
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
        """Create a generator."""
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device of the drawn numbers."""
        return pretended_device()


class _Generators(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, torch._C.Generator)


class _Generator(metaclass=_Generators):
    """Replacement for `torch.Generator` within `on_pretended_device`."""

    def __new__(cls, device: Any = "cpu") -> Any:
        """Create a generator for that device."""
        return PretendedGenerator() if _is_here(device) else torch._C.Generator(device)


class _Making(TorchDispatchMode):
    """Handle operations without a tensor of the device that create one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _wait(operation: str) -> None:
    if _work is not None:
        _work.waits[f"{operation} at {_caller()}"] += 1


def _count_copy() -> None:
    if _work is not None:
        _work.copies[_caller()] += 1


def _caller() -> str:
    """Return the calling lines outside PyTorch, the innermost first."""
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
    """Compute an operation, on the device of its operands or the requested device."""
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
        # The shape of a mask's result depends on numbers, and an index on the host is copied.
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices) or any(
            not isinstance(index, PretendedTensor) for index in indices
        ):
            _wait(name)
        others = [other for other in others if not any(other is index for index in indices)]
    elif name in _WAITING or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        _wait(name)
    # Host scalars (tensors without a dimension) mix with any device, as in PyTorch.
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
    # An in-place operation returns the given tensor, not a new one with the same numbers.
    written = {id(one.numbers): one for one in here} if func._schema.is_mutable else {}
    return tree_map(lambda one: written[id(one)] if id(one) in written else _outer(one), made)


def _copied(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor:
    """Copy between devices: a copy to the host or from pageable memory waits unless it is `non_blocking`."""
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
