"""Import objects by names in a configuration, in one place that may refuse them.

Importing a module runs its code, and a configuration may be from an untrusted source. So classes and functions whose
names are data must be imported with `import_object`, or checked with `check` if another library imports them.
`limited_to` sets a gate for work on such a folder, see `graphbench.runs.trust`. Without a gate, everything is imported:
names on a command line or in Python are the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, Protocol


class Gate(Protocol):
    """An object that admits or refuses names."""

    def check(self, path: str, listed: bool, shown: str) -> None:
        """Raise `BadInput` unless a name is admitted; see `check` of this module."""


# A context variable: other threads are not restricted.
_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)


def current_gate() -> Gate | None:
    """Return the gate that is set; None if everything may be imported."""
    return _gate.get()


def set_gate(gate: Gate | None) -> None:
    """Set the gate until the `limited_to` around this call ends."""
    _gate.set(gate)


@contextlib.contextmanager
def limited_to(gate: Gate | None) -> Iterator[None]:
    """Check names within the block with this gate."""
    token = _gate.set(gate)
    try:
        yield
    finally:
        _gate.reset(token)


def check(path: str, *, listed: bool = True, shown: str = "") -> None:
    """Refuse a name that may not be imported.

    `listed` admits names on the gate's own list; False for functions that are called with arguments of the
    configuration. `shown` is the name in the message.
    """
    gate = _gate.get()
    if gate is not None:
        gate.check(path, listed, shown or path)


def import_object(module: str, name: str, *, listed: bool = True) -> Any:
    """Import an object, checking both its name and its definition: `admitted.module.os.system` is `os.system`.

    The name may have dots for attributes of a class; for `listed` see `check`.

    Raises:
        BadInput: the gate does not admit it.
        ImportError: the module cannot be imported.
        AttributeError: the module has no such name.

    Examples:
        >>> import_object("collections", "OrderedDict.fromkeys").__name__
        'fromkeys'
    """
    # Before the import, which runs the module's code.
    check(f"{module}.{name}", listed=listed)
    loaded: Any = importlib.import_module(module)
    for part in name.split("."):
        loaded = getattr(loaded, part)
    # An admitted module does not admit what it imports itself, such as `os`.
    if listed:
        check(_definition(loaded))
    return loaded


def _definition(loaded: Any) -> str:
    """Return the path of an object's definition: that of the function for a partial, of the class for an instance."""
    if isinstance(loaded, functools.partial):
        return _definition(loaded.func)
    if inspect.ismodule(loaded):
        return loaded.__name__
    if inspect.isclass(loaded) or inspect.isroutine(loaded):
        return f"{loaded.__module__}.{loaded.__qualname__}"
    return _definition(type(loaded))
