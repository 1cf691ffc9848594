"""Walk the nested mappings and lists of configurations and records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flatten(value: Any, name: str = "", lists: bool = False) -> Iterator[tuple[str, Any]]:
    """Yield the values in nested mappings with their dotted names; an empty mapping counts as a value.

    Args:
        value: the mapping.
        name: name of `value` itself, the prefix of all names.
        lists: also walk lists; their items are named by index.

    Examples:
        >>> dict(flatten({"model": {"dim": 3, "sizes": [1, 2]}}))
        {'model.dim': 3, 'model.sizes': [1, 2]}
        >>> dict(flatten({"models": [{"weights": "ab"}]}, lists=True))
        {'models.0.weights': 'ab'}
    """
    inner: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
    if lists and isinstance(value, list):
        inner = dict(enumerate(value))
    if not inner:
        yield name, value
    for key, item in inner.items():
        yield from flatten(item, f"{name}.{key}" if name else str(key), lists)


def texts_in(value: Any) -> Iterator[str]:
    """Yield every text in nested mappings and lists, except for keys.

    Examples:
        >>> list(texts_in({"data": "NCI", "callbacks": ["Timer", {"every": 3, "unit": "step"}]}))
        ['NCI', 'Timer', 'step']
    """
    if isinstance(value, str):
        yield value
    elif isinstance(value, (Mapping, list)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(item)
