"""JSON that somebody else may have written: nested as deep as a record is, and no deeper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_MAX_DEPTH = 100


def load_json(path: Path) -> Any:
    """The value in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no JSON, no UTF-8, or nested too deep for functions that call themselves.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"it is nested more than {_MAX_DEPTH} deep") from error
    level, depth = [value], 0
    while level := [item for one in level for item in _items(one)]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(f"it is nested more than {_MAX_DEPTH} deep")
    return value


def _items(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in inner if isinstance(item, dict | list)]
