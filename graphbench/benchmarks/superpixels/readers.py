"""Readers of image data sets: MNIST's IDX files, CIFAR-10's batches, and rows of a CSV file."""

from __future__ import annotations

import hashlib
import io
from math import isqrt, prod
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.superpixels.images import LabelledImages
from graphbench.data.archives import open_gzip, read_tar
from graphbench.data.files.foreign import foreign, load_pickle
from graphbench.data.package_files import file_sha256
from graphbench.errors import CorruptData, MissingData

_UNSIGNED_BYTE = 8
_PARTS = {"train": "train", "test": "t10k"}
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE, FOLDER = "cifar-10-python.tar.gz", "cifar-10-batches-py"
TRAIN = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
TEST = ("test_batch",)
#: MD5 of the published batches, as in torchvision.
CHECKSUMS = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_SHAPE = (3, 32, 32)
#: Globals in a pickled array, under NumPy's old and new module; the second since protocol 5, Python 3.14's default.
_RECONSTRUCT, _FROM_BUFFER = np.empty(0).__reduce__()[0], np.empty(0).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


def idx_files(folder: Path, origin: str = "") -> dict[str, tuple[Path, Path]]:
    """Find images and labels of the training and test parts: the four files of MNIST, packed (.gz) or not."""
    files, missing = {}, []
    for part, prefix in _PARTS.items():
        names = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
        paths = [next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None) for name in names]
        missing += [name for name, path in zip(names, paths, strict=True) if path is None]
        if paths[0] is not None and paths[1] is not None:
            files[part] = (paths[0], paths[1])
    if missing:
        raise MissingData(
            f"{folder} lacks {', '.join(missing)} (each may end in .gz). Put the four files of MNIST, Fashion-MNIST or "
            f"another set in IDX format there{f', from {origin}' if origin else ''}."
        )
    return files


def idx_checksums(folder: Path, origin: str = "") -> dict[str, list[str]]:
    """Compute the SHA-256 of the images and labels of each part."""
    return {part: [file_sha256(file) for file in pair] for part, pair in idx_files(folder, origin).items()}


def has_idx_files(folder: Path) -> bool:
    """Return whether a folder contains any of the four files."""
    return any(folder.glob("*-idx?-ubyte*"))


def read_idx(file: Path) -> np.ndarray:
    """Read an array of bytes of any shape.

    The file has two zero bytes, the type (8 for unsigned bytes), the number of axes, the length of each axis as a big-
    endian integer of four bytes, and the values.
    """
    with foreign(file, "Fetch it again."), open_gzip(file) if file.suffix == ".gz" else file.open("rb") as stream:
        content = stream.read()
    if len(content) < 4 or content[:2] != b"\0\0":
        raise CorruptData(f"{file} is not in IDX format: it begins with {content[:4]!r}.")
    kind, axes = content[2], content[3]
    if kind != _UNSIGNED_BYTE:
        raise CorruptData(f"{file} holds values of type {kind}; only unsigned bytes (8) are images or labels.")
    start = 4 + 4 * axes  # first byte of the values
    shape = np.frombuffer(content[4:start], dtype=">u4").tolist() if len(content) >= start else []
    expected = start + prod(shape)  # Python integers, since lengths in a damaged file could overflow NumPy's
    if len(shape) != axes or len(content) != expected:
        raise CorruptData(f"{file} has {len(content):,} bytes instead of {expected:,} for the shape {shape}.")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_idx_folder(folder: Path) -> dict[str, LabelledImages]:
    """Read training and test images from MNIST's four files."""
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


def read_cifar10(folder: Path) -> dict[str, LabelledImages]:
    """Read training and test images, in the order of the batches.

    The folder contains the archive `cifar-10-python.tar.gz`, which is read without unpacking it, or its folder
    `cifar-10-batches-py`; or it is that folder.
    """
    content = _batches(folder)
    parts = {}
    for part, names in (("train", TRAIN), ("test", TEST)):
        images, labels = zip(*(_read_batch(name, content[name]) for name in names), strict=True)
        parts[part] = LabelledImages(np.concatenate(images), np.concatenate(labels))
    return parts


def _batches(folder: Path) -> dict[str, bytes]:
    """Read the content of every batch by name."""
    names = TRAIN + TEST
    for place in (folder, folder / FOLDER):
        present = [name for name in names if (place / name).is_file()]
        if len(present) == len(names):
            return {name: (place / name).read_bytes() for name in names}
        if present:
            missing = [name for name in names if name not in present]
            raise MissingData(f"{place} lacks {', '.join(missing)}. Unpack {ARCHIVE} from {ADDRESS} again.")
    if (folder / ARCHIVE).is_file():
        return _from_archive(folder / ARCHIVE)
    raise MissingData(
        f"CIFAR-10 is missing. Put this file into {folder}:\n  {ARCHIVE} from {ADDRESS} (or the folder {FOLDER} in it)"
    )


def _from_archive(archive: Path) -> dict[str, bytes]:
    names = {f"{FOLDER}/{name}": name for name in TRAIN + TEST}
    content = {names[path]: data for path, data in read_tar(archive, names.__contains__, ADDRESS)}
    missing = [name for name in TRAIN + TEST if name not in content]
    if missing:
        raise CorruptData(
            f"{archive} is not the whole archive of CIFAR-10: it lacks {FOLDER}/{missing[0]}. Fetch it again from "
            f"{ADDRESS}."
        )
    return content


def _read_batch(name: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Read images `[count, 32, 32, 3]` and classes `[count]` of one batch after checking its MD5."""
    checksum = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if checksum != CHECKSUMS[name]:
        raise CorruptData(
            f"{name} is not CIFAR-10's: its MD5 is {checksum} instead of {CHECKSUMS[name]}. Fetch it again."
        )
    with foreign(name):
        batch = load_pickle(io.BytesIO(content), _ALLOWED, encoding="bytes")
        images = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    if labels.shape != (len(images),):
        raise CorruptData(f"{name} holds {len(images)} images and labels of shape {list(labels.shape)}.")
    return images, labels


def read_image_rows(file: Path, brightest: int = 255) -> LabelledImages:
    """Read square grey images from a CSV file without a header, packed (.gz) or not.

    A row has the pixels of an image, scaled so that `brightest` becomes 255, then its class.
    """
    with foreign(file):
        rows = np.loadtxt(file, delimiter=",", dtype=np.float64, ndmin=2)
    side = isqrt(max(rows.shape[1] - 1, 0))
    if not len(rows) or side < 1 or side * side != rows.shape[1] - 1:
        raise CorruptData(
            f"{file} has {rows.shape[1]} columns; expected those of a square image and one for the class."
        )
    pixels, labels = rows[:, :-1], rows[:, -1]
    if pixels.min() < 0 or pixels.max() > brightest or (labels % 1).any() or labels.min() < 0:
        raise CorruptData(f"{file}: pixels must be 0 to {brightest} and classes whole numbers from 0.")
    scaled = np.round(pixels * (255 / brightest)).astype(np.uint8)
    return LabelledImages(scaled.reshape(-1, side, side), labels.astype(np.int64))
