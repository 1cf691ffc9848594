"""List the files of a folder that somebody else filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path, hidden: bool = False) -> list[Path]:
    """List the files in a folder and its subfolders, sorted, as file systems list in any order.

    Links are followed, also to folders, but not to one that they lie in.

    Args:
        folder: its own name may begin with a dot.
        hidden: list files and folders whose names begin with a dot, too.
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
