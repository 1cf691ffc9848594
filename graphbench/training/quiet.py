"""Silence libraries whose logs and warnings contain nothing that a user could act on."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def silenced(loggers: Sequence[str], level: int = logging.ERROR) -> Iterator[None]:
    """Suppress all warnings, and records of these loggers below `level`.

    Examples:
        >>> with silenced(["pytorch_lightning"]):
        ...     logging.getLogger("pytorch_lightning").warning("a small loader")
    """
    chosen = [logging.getLogger(name) for name in loggers]
    levels = [logger.level for logger in chosen]
    for logger in chosen:
        logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, before in zip(chosen, levels, strict=True):
            logger.setLevel(before)
