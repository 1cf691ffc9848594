"""Read checkpoints of other programs without running code from them, including those in an archive."""

from __future__ import annotations

import re
import tempfile
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch.serialization import get_unsafe_globals_in_checkpoint, safe_globals

from graphbench.data.download import extract
from graphbench.errors import BadInput, CorruptData
from graphbench.runs.checkpoints import check_whole, unreadable_reason


class Unread:
    """Placeholder for an object of a class that is not imported, such as `argparse.Namespace`; it is empty."""

    def __new__(cls, *_: Any, **__: Any) -> Unread:
        """Create a placeholder, whatever the arguments of the class it replaces."""
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        """Ignore the arguments."""

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignore an item."""


def read_released(path: Path, member: str | None = None) -> Mapping[str, Any]:
    """Read a checkpoint that `torch.save` wrote elsewhere, onto the CPU.

    Only tensors and plain values are read. Options and optimizers of training programs are objects of classes that a
    checkpoint names; an `Unread` replaces each, and nothing is imported. `member` is the pattern of the checkpoint's
    path if the file is an archive. If several match, the one with the largest number in its name is used, `149.ckpt`
    before `50.ckpt`.

    Raises:
        BadInput: there is no such file.
        CorruptData: it is damaged, is not a mapping, or names code of the operating system.

    Examples:
        >>> import argparse
        >>> file = Path(tempfile.mkdtemp(), "checkpoint.pt")
        >>> torch.save({"args": argparse.Namespace(lr=0.1), "model": {"weight": torch.ones(2)}}, file)
        >>> content = read_released(file)
        >>> content["model"]["weight"].tolist(), type(content["args"]).__name__
        ([1.0, 1.0], 'Unread')
    """
    if not path.is_file():
        raise BadInput(f"There is no file {path}.")
    if member is not None and (inside := _members(path, member)):
        with tempfile.TemporaryDirectory(prefix="graphbench-") as folder:
            extract(path, Path(folder), {"checkpoint": max(inside, key=_number)})
            return _load(Path(folder, "checkpoint"), path)
    return _load(path, path)


def _members(path: Path, pattern: str) -> list[str]:
    """List the members of an archive that match a pattern; a torch checkpoint is also a zip file, and has none."""
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        return [name for name in archive.namelist() if fnmatchcase(name, pattern)]


def _number(name: str) -> int:
    """Return the last number in a file's name, -1 without one."""
    numbers = re.findall(r"\d+", Path(name).stem)
    return int(numbers[-1]) if numbers else -1


def _load(file: Path, shown: Path) -> Mapping[str, Any]:
    check_whole(file)
    try:
        foreign = get_unsafe_globals_in_checkpoint(file) if zipfile.is_zipfile(file) else []
        with safe_globals([(Unread, name) for name in foreign]):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle may raise anything
        raise CorruptData(f"The checkpoint {shown} cannot be read: {unreadable_reason(file, error)}") from error
    if not isinstance(content, Mapping):
        raise CorruptData(f"The checkpoint {shown} is not a mapping, but {type(content).__name__}.")
    return content
