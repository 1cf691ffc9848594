"""The one door for imports by a name that stands in a configuration.

Importing a module runs its code, and a configuration may have been sent by somebody. So a class or a function whose
name is data goes through `import_object`, or through `check` where another library imports it. Who works on a folder
that was sent sets a gate with `limited_to`, which refuses what it does not admit; `graphbench.runs.trust` has that
gate. Without one, everything is imported: a name on one's own command line, or in one's own Python, is one's own.
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
    """Decides about names."""

    def check(self, path: str, listed: bool, shown: str) -> None:
        """Refuse a name; see `check`.

        Raises:
            BadInput: it is not admitted.
        """


_gate: ContextVar[Gate | None] = ContextVar("gate", default=None)


def current_gate() -> Gate | None:
    """The gate that is set; None where everything may be imported."""
    return _gate.get()


def set_gate(gate: Gate | None) -> None:
    """Set the gate until the `limited_to` around this call ends."""
    _gate.set(gate)


@contextlib.contextmanager
def limited_to(gate: Gate | None) -> Iterator[None]:
    """Within the block, names go through this gate."""
    token = _gate.set(gate)
    try:
        yield
    finally:
        _gate.reset(token)


def check(path: str, *, listed: bool = True, shown: str = "") -> None:
    """Refuse a name that may not be imported, before it is.

    Args:
        path: dotted.
        listed: whether the gate's own list counts; not for what is called with arguments that the configuration gives.
        shown: what to call it in the message; `path` by default.

    Raises:
        BadInput: the gate does not admit it.
    """
    gate = _gate.get()
    if gate is not None:
        gate.check(path, listed, shown or path)


def import_object(module: str, name: str, *, listed: bool = True) -> Any:
    """What a module has under a name.

    Both the name and the place where the object is defined are checked: `admitted.module.os.system` is `os.system`.

    Args:
        module: dotted.
        name: in it; with dots for parts of a class.
        listed: as `check` takes it.

    Raises:
        BadInput: the gate does not admit it.
        ImportError: there is no such module, or it cannot be imported.
        AttributeError: the module has no such name.

    Examples:
        >>> import_object("collections", "OrderedDict.fromkeys").__name__
        'fromkeys'
    """
    check(f"{module}.{name}", listed=listed)
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if listed:
        for path in _defined(found):
            check(path)
    return found


def _defined(found: Any) -> Iterator[str]:
    """Where an object is defined; of what was bound to arguments the function, of another object its class."""
    if isinstance(found, functools.partial):
        yield from _defined(found.func)
    elif inspect.ismodule(found):
        yield found.__name__
    elif inspect.isclass(found) or inspect.isroutine(found):
        yield f"{found.__module__}.{found.__qualname__}"
    else:
        yield from _defined(type(found))
