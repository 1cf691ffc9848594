"""Show the progress of work that takes longer than a few seconds: a bar in a terminal, two log lines elsewhere."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

#: Seconds of work before anything is shown: short work stays silent.
DELAY = 2.0
_OWNER = os.getpid()


class _Terminal:
    """Live display of this process; a console can show only one, so nested bars share it."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.users = 0

    def add(self, description: str, total: float | None) -> int:
        if self.progress is None:
            columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
            self.progress = Progress(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
            self.progress.start()
        self.users += 1
        return self.progress.add_task(description, total=total)

    def update(self, task: int, done: float) -> None:
        if self.progress is not None:
            self.progress.update(task, completed=done)  # type: ignore[arg-type]

    def release(self) -> None:
        self.users -= 1
        if self.users == 0 and self.progress is not None:
            self.progress.stop()
            self.progress = None


_TERMINAL = _Terminal()


def _reports() -> bool:
    """Return whether this process reports: only the first of its machine does, and no worker forked from it."""
    return os.environ.get("LOCAL_RANK", "0") == "0" and os.getpid() == _OWNER


@contextmanager
def progress(description: str, total: float | None = None, unit: str = "") -> Iterator[Callable[[float], None]]:
    """Show the progress of some work, once it has taken longer than `DELAY` seconds.

    Args:
        description: description of the work, for the bar or log line.
        total: amount of work; None if unknown.
        unit: unit of the amount ("graphs"), for the log line.

    Yields:
        A function that takes the amount done since the last call.
    """
    started, done, task = time.monotonic(), 0.0, None
    shown = False

    def advance(amount: float = 1.0) -> None:
        nonlocal done, task, shown
        done += amount
        if not shown and time.monotonic() - started > DELAY and _reports():
            shown = True
            if Console(stderr=True).is_terminal:
                task = _TERMINAL.add(description, total)
            else:
                whole = "an unknown number of" if total is None else f"{total:,.0f}"
                logger.info("%s: %s of %s %s so far", description, f"{done:,.0f}", whole, unit)
        if task is not None:
            _TERMINAL.update(task, done)

    try:
        yield advance
    finally:
        if task is not None:
            _TERMINAL.release()
        elif shown:
            logger.info("%s: %s %s in %.1f s", description, f"{done:,.0f}", unit, time.monotonic() - started)


def track(
    iterable: Iterable[Item], description: str, total: float | None = None, unit: str = "items"
) -> Iterator[Item]:
    """Iterate and show progress; `total` is `len(iterable)` by default, if it has a length."""
    if total is None and isinstance(iterable, Sized):
        total = len(iterable)
    with progress(description, total, unit) as advance:
        for item in iterable:
            yield item
            advance(1)
