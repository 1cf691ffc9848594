"""CIFAR-10's "python version": five training batches and one test batch, pickled by Python 2."""

from __future__ import annotations

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.superpixels.labelled import LabelledImages
from graphbench.data.archives import read_tar
from graphbench.errors import CorruptData, MissingData

ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"
ARCHIVE, FOLDER = "cifar-10-python.tar.gz", "cifar-10-batches-py"
TRAIN = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
TEST = ("test_batch",)
#: MD5 of the published batches, as torchvision checks them too.
CHECKSUMS = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
_SHAPE = (3, 32, 32)
#: What a pickled array is made of, under NumPy's old and new name of one module.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}
#: What the unpickler raises on files that are cut short or are no pickles.
_BAD_PICKLE = (pickle.UnpicklingError, EOFError, ValueError, AttributeError, IndexError, KeyError, TypeError)


class _ArrayUnpickler(pickle.Unpickler):
    """Reads arrays, numbers, bytes and plain containers; refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it holds {module}.{name}, which is no array")
        return _ALLOWED[module, name]


def read_cifar10(folder: Path) -> dict[str, LabelledImages]:
    """Training and test images, in the order of the batches.

    Args:
        folder: holds the archive `cifar-10-python.tar.gz`, which is read without unpacking it, or the folder
            `cifar-10-batches-py` out of it; or is that folder.

    Raises:
        MissingData: nothing is there; says what to fetch, from where, and where to put it.
        CorruptData: a batch is damaged or is not the published one.
    """
    content = _batches(folder)
    parts = {}
    for part, names in (("train", TRAIN), ("test", TEST)):
        read = [_read_batch(name, content[name]) for name in names]
        parts[part] = LabelledImages(
            np.concatenate([images for images, _ in read]), np.concatenate([labels for _, labels in read])
        )
    return parts


def _batches(folder: Path) -> dict[str, bytes]:
    """Name -> content of every batch."""
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
        f"CIFAR-10 is not there. Put this file into {folder}:\n"
        f"  {ARCHIVE} from {ADDRESS} (or the folder {FOLDER}, which it holds)"
    )


def _from_archive(archive: Path) -> dict[str, bytes]:
    """By their exact names: nothing is written anywhere."""
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
    """Images `[count, 32, 32, 3]` and classes `[count]` of one batch, once its checksum is right."""
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if found != CHECKSUMS[name]:
        raise CorruptData(f"{name} is not CIFAR-10's: its MD5 is {found} instead of {CHECKSUMS[name]}. Fetch it again.")
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
        images = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, *_SHAPE).transpose(0, 2, 3, 1)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except _BAD_PICKLE as error:
        raise CorruptData(f"{name} was not read: {error}") from error
    if labels.shape != (len(images),):
        raise CorruptData(f"{name} holds {len(images)} images and labels of shape {list(labels.shape)}.")
    return images, labels
