"""Read and write weights as safetensors, a format of tensors and texts that cannot run code.

PyTorch's extra state of modules is stored as JSON in the header of the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphbench.data.files.writing import writing
from graphbench.errors import BadInput, CorruptData, MissingExtra

#: Suffix of such files.
SUFFIX = ".safetensors"
#: Name of the file in a folder of `graphbench export`.
FILE = "model.safetensors"
_EXTRA = "extra_state"
#: Key of the header: the specification of the model's benchmark, as JSON.
SPECIFICATION = "specification"


def _safetensors(purpose: str) -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ImportError as error:
        raise MissingExtra("safetensors", "hub", purpose) from error
    return safetensors


def save_weights(state: Mapping[str, Any], path: Path, about: Mapping[str, str] | None = None) -> None:
    """Write a `state_dict`, with a copy of each tensor that shares memory.

    `about` has additional texts for the header.
    """
    library = _safetensors("Writing weights as safetensors")
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    plain = {name: value for name, value in state.items() if not isinstance(value, Tensor)}
    try:
        extra = json.dumps(plain, allow_nan=False)
        if json.loads(extra) != plain:
            raise ValueError("it would be read back as another value")
    except (TypeError, ValueError) as error:
        raise BadInput(f"{', '.join(plain)}: what the model stores with its weights is not JSON: {error}.") from error
    header = dict(about or {}) | {"format": "pt"} | ({_EXTRA: extra} if plain else {})
    content = library.torch.save(
        {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}, header
    )
    with writing(path) as file:
        file.write(content)


def read_weights(path: str | Path) -> dict[str, Any]:
    """Read the `state_dict` in a file onto the CPU."""
    if not Path(path).is_file():
        raise BadInput(f"There are no weights {path}.")
    library = _safetensors(f"Reading {path}")
    try:
        with library.safe_open(str(path), framework="pt") as file:
            state: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            extra = json.loads((file.metadata() or {}).get(_EXTRA, "{}"))
    except (library.SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise CorruptData(f"The weights {path} cannot be read: {error}") from error
    if not isinstance(extra, dict):
        raise CorruptData(f"The weights {path} cannot be read: their {_EXTRA} is not a JSON object.")
    return state | extra


def read_specification(path: str | Path) -> Mapping[str, Any]:
    """Read the specification in the header of a file; empty if there is none, as in files of earlier versions."""
    with _safetensors(f"Reading {path}").safe_open(str(path), framework="pt") as file:
        text = (file.metadata() or {}).get(SPECIFICATION, "{}")
    try:
        stored: Any = json.loads(text)
    except (ValueError, RecursionError):  # the weights do not depend on it
        return {}
    return stored if isinstance(stored, Mapping) else {}


def same_weights(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Return whether two `state_dict`s have equal names, types and values, bit for bit.

    Examples:
        >>> same_weights({"a": torch.ones(2)}, {"a": torch.ones(2)}), same_weights({}, {"a": 1})
        (True, False)
    """
    return first.keys() == second.keys() and all(_same(value, second[name]) for name, value in first.items())


def _same(first: Any, second: Any) -> bool:
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        return bool(type(first) is type(second) and first == second)
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    return torch.equal(*(t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for t in (first, second)))
