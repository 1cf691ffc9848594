"""A user's own images: a folder per class, alone or under train, val and test."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, MissingData

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}


@dataclass(frozen=True)
class ImageFolder:
    """Which images there are; none is opened.

    Args:
        root: the folder.
        classes: names of the class folders, sorted; their order numbers the classes.
        files: every image, sorted by class and name.
        labels: class of each `[count]`.
        splits: split of each, as given by the folders; None where the folder has no train, val and test.
    """

    root: Path
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: np.ndarray
    splits: np.ndarray | None

    def names(self) -> list[str]:
        """Paths of the images below the folder."""
        return [file.relative_to(self.root).as_posix() for file in self.files]

    def checksum(self) -> str:
        """SHA-256 over names and contents of all images."""
        total = hashlib.sha256()
        for name, file in zip(self.names(), self.files, strict=True):
            total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
        return total.hexdigest()


def find_images(root: Path) -> ImageFolder:
    """List a folder: `CLASS/IMAGE`, or `train/CLASS/IMAGE`, `val/CLASS/IMAGE` and `test/CLASS/IMAGE`.

    Raises:
        MissingData: there is no such folder.
        BadInput: it holds no class folders with images, or the splits have different classes.
    """
    if not root.is_dir():
        raise MissingData(f"{root}: there is no such folder. It should hold a folder of images for each class.")
    given = all((root / split).is_dir() for split in SPLITS)
    parents = {split: root / split for split in SPLITS} if given else {"": root}
    classes = sorted({folder.name for parent in parents.values() for folder in _folders(parent)})
    files, labels, splits = [], [], []
    for split, parent in parents.items():
        for number, name in enumerate(classes):
            images = sorted(p for p in (parent / name).glob("*") if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())
            if not images:
                raise BadInput(f"{parent / name} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))}).")
            files += images
            labels += [number] * len(images)
            splits += [split] * len(images)
    if not classes:
        raise BadInput(f"{root} holds no class folders: images belong into {root / 'CLASS'}, a folder for each class.")
    return ImageFolder(root, tuple(classes), tuple(files), np.array(labels), np.array(splits) if given else None)


def _folders(parent: Path) -> list[Path]:
    return [folder for folder in parent.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
