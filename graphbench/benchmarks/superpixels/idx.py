"""IDX files, the format of MNIST and of all sets that copy it."""

from __future__ import annotations

import zlib
from math import prod
from pathlib import Path

import numpy as np

from graphbench.benchmarks.superpixels.labelled import LabelledImages
from graphbench.data.archives import open_gzip
from graphbench.data.package_files import file_sha256
from graphbench.errors import CorruptData, MissingData

_UNSIGNED_BYTE = 8
_PARTS = {"train": "train", "test": "t10k"}


def idx_files(folder: Path, origin: str = "") -> dict[str, tuple[Path, Path]]:
    """Images and labels of the training and test part: the four files of MNIST, packed (.gz) or not.

    Args:
        folder: where they lie.
        origin: where they can be fetched, for the message.

    Raises:
        MissingData: names the files that are absent.
    """
    found, missing = {}, []
    for part, prefix in _PARTS.items():
        names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        paths = [next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None) for name in names]
        missing += [name for name, path in zip(names, paths, strict=True) if path is None]
        if paths[0] is not None and paths[1] is not None:
            found[part] = (paths[0], paths[1])
    if missing:
        raise MissingData(
            f"{folder} lacks {', '.join(missing)} (each may end in .gz). Put the four files of MNIST, Fashion-MNIST or "
            f"another set in IDX format there{f', from {origin}' if origin else ''}."
        )
    return found


def idx_checksums(folder: Path, origin: str = "") -> dict[str, list[str]]:
    """SHA-256 of the images and labels of each part.

    Raises:
        MissingData: as `idx_files`.
    """
    return {part: [file_sha256(file) for file in pair] for part, pair in idx_files(folder, origin).items()}


def has_idx_files(folder: Path) -> bool:
    """Whether a folder holds any of the four files."""
    return any(folder.glob("*-idx?-ubyte*"))


def read_idx(file: Path) -> np.ndarray:
    """An array of bytes of any shape.

    The file has two zero bytes, the type (8 for unsigned bytes), the number of axes, the length of each axis as four
    bytes, largest first, and the values.

    Raises:
        CorruptData: the file is cut short, altered, or in another format.
    """
    try:
        content = open_gzip(file).read() if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise CorruptData(f"{file} cannot be unpacked ({type(error).__name__}: {error}). Fetch it again.") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise CorruptData(f"{file} is not in IDX format: it begins with {content[:4]!r}.")
    kind, axes = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise CorruptData(f"{file} holds values of type {kind}; only unsigned bytes (8) are images or labels.")
    shape = (
        tuple(np.frombuffer(content[4 : 4 + 4 * axes], dtype=">u4").tolist()) if len(content) >= 4 + 4 * axes else ()
    )
    expected = 4 + 4 * axes + prod(shape)
    if len(shape) != axes or len(content) != expected:
        raise CorruptData(f"{file} has {len(content):,} bytes instead of {expected:,} for the shape {list(shape)}.")
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


def read_idx_folder(folder: Path) -> dict[str, LabelledImages]:
    """Training and test images of MNIST's four files.

    Raises:
        MissingData: files are absent.
        CorruptData: a file is damaged, or images and labels do not belong together.
    """
    parts = {}
    for part, (image_file, label_file) in idx_files(folder).items():
        images, labels = read_idx(image_file), read_idx(label_file)
        if images.ndim != 3 or labels.shape != (len(images),):
            raise CorruptData(
                f"{image_file} has the shape {list(images.shape)} and {label_file.name} {list(labels.shape)}; expected "
                "[count, height, width] and [count]."
            )
        parts[part] = LabelledImages(images, labels.astype(np.int64))
    return parts
