"""List the files in a folder of untrusted content."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path, hidden: bool = False) -> list[Path]:
    """List the files in a folder and its subfolders, sorted since file systems return any order.

    Links are followed, also to folders, but not to a folder that contains the link.

    Args:
        folder: the folder; its name may begin with a dot.
        hidden: also list files and folders whose names begin with a dot.
    """

    def walk(place: Path, above: frozenset[Path]) -> Iterator[Path]:
        for path in place.iterdir():
            if path.name.startswith(".") and not hidden:
                continue
            if path.is_file():
                yield path
            elif path.is_dir() and (real := path.resolve()) not in above:
                yield from walk(path, above | {real})

    return sorted(walk(folder, frozenset({folder.resolve()})))
