"""Errors that say what was expected, what was given, and what to do next.

Every error a user can cause derives from `GraphbenchError`; the command line shows it as one message without a
traceback. This module imports nothing else from graphbench and nothing heavy.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

__all__ = [
    "BadInput",
    "BrokenPlugin",
    "CorruptData",
    "GraphbenchError",
    "MissingData",
    "MissingExtra",
    "NameClash",
    "UnknownName",
    "check_choice",
    "check_divides",
    "check_range",
]

#: Control characters except tab and newline, and characters that change the direction of text.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class GraphbenchError(Exception):
    """Base class of all errors that are meant for the user: the message is complete on its own."""


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
        return type(self), self._arguments  # else a worker's error could not be unpickled


class BrokenPlugin(GraphbenchError, ImportError):
    """A registered class cannot be imported; the message names the distribution, its version and the reason."""


class NameClash(GraphbenchError):
    """Two distributions register the same name; the message names both."""


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
    """A file on disk is truncated, altered or not in the format that its name indicates."""


def visible(text: str) -> str:
    r"""Escape control characters, and characters that change the direction of text.

    Names in an untrusted file may contain them to set the title, clear the screen or overwrite a message.

    Examples:
        >>> print(visible("evil.Net\x1b[2K\rall is well"))
        evil.Net\x1b[2K\rall is well
    """
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def listed(names: Sequence[object], most: int = 12) -> str:
    """List the first names for a message, and count the others.

    Examples:
        >>> listed(["logS", "pKa", "mass"], most=2)
        'logS, pKa and 1 more'
    """
    return ", ".join(map(str, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")


def check_choice(option: str, value: object, allowed: Iterable[object]) -> None:
    """Refuse a value that is not among the choices of an option.

    Args:
        option: its name, as a user writes it.
        value: the given value.
        allowed: the valid values.

    Raises:
        BadInput: names the option, the value and all choices.

    Examples:
        >>> check_choice("norm", "batch", ("batch", "layer"))
        >>> check_choice("norm", "bach", ("batch", "layer"))
        Traceback (most recent call last):
        graphbench.errors.BadInput: norm must be one of batch, layer, but got 'bach'.
    """
    choices = list(allowed)
    if value not in choices:
        raise BadInput(f"{option} must be one of {', '.join(map(str, choices))}, but got {value!r}.")


def check_divides(option: str, number: int, of: str, width: int) -> None:
    """Refuse a number, such as a number of heads, that does not divide a width.

    Raises:
        BadInput: names both options and their values.

    Examples:
        >>> check_divides("num_heads", 2, "hidden_dim", 8)
        >>> check_divides("num_heads", 3, "hidden_dim", 8)
        Traceback (most recent call last):
        graphbench.errors.BadInput: num_heads must divide hidden_dim, but got num_heads=3 and hidden_dim=8.
    """
    if number < 1 or width % number:
        raise BadInput(f"{option} must divide {of}, but got {option}={number} and {of}={width}.")


def check_range(
    option: str,
    value: object,
    *,
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    whole: bool = False,
) -> None:
    """Refuse a value outside its range; NaN is in no range, and booleans and text are not numbers.

    Args:
        option: its name, as a user writes it.
        value: the given value.
        at_least: smallest value.
        at_most: largest value.
        above: the value must be larger than this.
        below: the value must be smaller than this.
        whole: the value must be an integer.

    Raises:
        BadInput: names the option, the value and the range.

    Examples:
        >>> check_range("dropout", 0.1, at_least=0, below=1)
        >>> check_range("dropout", 1.5, at_least=0, below=1)
        Traceback (most recent call last):
        graphbench.errors.BadInput: dropout must be at least 0 and below 1, but got 1.5.
        >>> check_range("num_layers", 2.5, at_least=1, whole=True)
        Traceback (most recent call last):
        graphbench.errors.BadInput: num_layers must be an integer of at least 1, but got 2.5.
    """
    limits = (
        ("at least", at_least, operator.ge),
        ("above", above, operator.gt),
        ("at most", at_most, operator.le),
        ("below", below, operator.lt),
    )
    wanted = [(words, limit, holds) for words, limit, holds in limits if limit is not None]
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    if number and value == value and all(holds(value, limit) for _, limit, holds in wanted):  # type: ignore[arg-type]
        return
    bounds = " and ".join(f"{words} {limit}" for words, limit, _ in wanted)
    kind = f"an integer{' of ' if bounds.startswith('at') else ' '}{bounds}".rstrip() if whole else bounds or "a number"
    raise BadInput(f"{option} must be {kind}, but got {value!r}.")
