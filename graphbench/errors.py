"""Errors that say what was expected, what came, and what to do next.

Every error a user can cause derives from `GraphbenchError`; the command line shows it as one message without a
traceback. This module imports nothing of ours and nothing heavy.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any


class GraphbenchError(Exception):
    """Base of all errors that are meant for a person: the message is complete on its own."""


class BadInput(GraphbenchError, ValueError):
    """An option, a file or a tensor is not what the code needs; raised before training starts."""


class UnknownName(GraphbenchError, LookupError):
    """A name is not registered; the message lists near matches and all known names."""

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        folded = {candidate.casefold(): candidate for candidate in self.known}
        near = [folded[match] for match in difflib.get_close_matches(name.casefold(), folded, n=3, cutoff=0.5)]
        parts = [f"No {kind} is called {name!r}."]
        if near:
            parts.append(f"Did you mean {' or '.join(near)}?")
        parts.append(f"Known: {', '.join(self.known) or 'none'}.")
        if hint:
            parts.append(hint)
        super().__init__(" ".join(parts))
        self._arguments = (kind, name, self.known, hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments  # else a worker's error could not reach the process that waits for it


class BrokenPlugin(GraphbenchError, ImportError):
    """A registered class cannot be imported; names the distribution, its version and the reason."""


class NameClash(GraphbenchError):
    """Two distributions register the same name; names both."""


class MissingExtra(GraphbenchError, ImportError):
    """An optional package is absent; the message ends with the pip line that installs it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the optional package {package!r}, which is not installed. "
            f"Install it with: pip install 'graphbench-lightning[{extra}]'"
        )
        self.package, self.extra, self.purpose = package, extra, purpose

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.extra, self.purpose)


class MissingData(GraphbenchError, FileNotFoundError):
    """Data must be fetched by hand; the message says what, from where and into which folder."""


class CorruptData(GraphbenchError):
    """A file on disk is truncated, altered or in another format than its name says."""
