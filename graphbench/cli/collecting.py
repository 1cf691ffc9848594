"""How often Python looks for objects that only refer to each other: seldom while a command starts.

Imports and parsers make some hundred thousand objects that stay. Looking through them every few hundred takes a quarter
of the time until the first training step (`speed/start_up.py`), and once more as long when Python ends.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: New objects after which Python looks while a command starts.
_SELDOM = 100_000


@dataclass(frozen=True)
class _Command:
    """A command that runs: how often Python looked before, and whether the process does nothing else."""

    before: tuple[int, int, int]
    own_process: bool


_running: list[_Command] = []


@contextmanager
def seldom_collected(own_process: bool = False) -> Iterator[None]:
    """Look seldom inside, and as before afterwards.

    Args:
        own_process: the process does nothing but what is inside, so that whatever is left of it may stay.

    Examples:
        >>> before = gc.get_threshold()
        >>> with seldom_collected():
        ...     inside = gc.get_threshold()
        >>> inside > before == gc.get_threshold()
        True
    """
    _running.append(_Command(gc.get_threshold(), own_process))
    gc.set_threshold(_SELDOM, *_running[-1].before[1:])
    try:
        yield
    finally:
        command = _running.pop()
        gc.set_threshold(*command.before)
        if command.own_process:
            gc.freeze()  # what remains goes with the process


def collect_as_usual() -> None:
    """Look as often as before `seldom_collected`, because what is trained may hold memory in such objects.

    In a process of its own, what is there by now is not looked at again: nor copied into workers that are forked.

    Examples:
        >>> before = gc.get_threshold()
        >>> with seldom_collected():
        ...     collect_as_usual()
        ...     gc.get_threshold() == before
        True
    """
    if _running:
        if _running[-1].own_process:
            gc.freeze()
        gc.set_threshold(*_running[-1].before)
