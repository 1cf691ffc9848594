"""Checks of options that all encodings share."""

from __future__ import annotations

from collections.abc import Sequence

from graphbench.errors import BadInput


def check_at_least(minimum: int, owner: str, option: str, value: int) -> int:
    """`value` itself; raises `BadInput` unless it is an integer of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise BadInput(f"{owner}: {option} must be an integer of at least {minimum}, but it is {value!r}.")
    return value


def check_choice(choices: Sequence[str], owner: str, option: str, value: str) -> str:
    """`value` itself; raises `BadInput` unless it is one of `choices`."""
    if value not in choices:
        raise BadInput(f"{owner}: {option} must be one of {', '.join(choices)}, but it is {value!r}.")
    return value
