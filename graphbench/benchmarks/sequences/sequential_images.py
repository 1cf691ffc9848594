"""Image of the Long Range Arena: small photographs, or clothes, as sequences of grey values."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.base import Sequences, to_table
from graphbench.benchmarks.sequences.inputs import ImageInput
from graphbench.benchmarks.superpixels.images import LabelledImages
from graphbench.benchmarks.superpixels.readers import CHECKSUMS, idx_checksums, read_cifar10, read_idx_folder
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput

_CHUNK = 5_000  # images per table
_FASHION_ORIGIN = "https://github.com/zalandoresearch/fashion-mnist or the Debian package dataset-fashion-mnist"
_GREY = np.array([0.2989, 0.5870, 0.1140])  # weights of red, green and blue in the arena's conversion


class _SequentialImages(ImageInput):
    """Images read row by row, one token per pixel; the last `held_out` training images are for validation."""

    #: Number of training images for validation, from the end.
    held_out: int = 5_000
    folder_name: str

    def __init__(self, images: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.folder = Path(self.root, self.folder_name) if images is None else Path(images)

    @abstractmethod
    def images(self) -> Mapping[str, LabelledImages]:
        """Load training and test images."""

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Read the images."""
        parts = self.images()
        if len(parts["train"]) <= self.held_out:
            raise BadInput(
                f"images={self.folder}: it holds {len(parts['train']):,} training images, of which the last "
                f"{self.held_out:,} would validate. {self.spec.name} is of {sum(self.spec.split_sizes or ()):,} images "
                "in all; Superpixels reads sets of any size."
            )
        train, val = np.split(np.arange(len(parts["train"])), [-self.held_out])
        splits = {"train": parts["train"].select(train), "val": parts["train"].select(val), "test": parts["test"]}
        return {split: _tables(images) for split, images in splits.items()}


class SequentialImage(_SequentialImages):
    """CIFAR-10 as sequences of 1,024 grey values; ten classes. The Long Range Arena's task "Image".

    Grey is `0.2989 red + 0.587 green + 0.114 blue`, as in the arena (Tay et al., ICLR 2021). The last 5,000 training
    images, in the order of CIFAR-10's files, are for validation; the arena has another order.

    Args:
        images: folder with `cifar-10-python.tar.gz` or its content; by default `root`/CIFAR10.
        options: see `GraphBenchmark`.
    """

    spec = specs.SEQUENTIAL_IMAGE
    folder_name = "CIFAR10"
    colour = True

    def grey_values(self, image: np.ndarray) -> np.ndarray:
        """Convert an image to the arena's grey."""
        return _grey(image)

    def source_key(self) -> dict[str, Any]:
        """Return the published checksums of all batches: a prepared store needs no batches."""
        return {"batches": CHECKSUMS}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load CIFAR-10's parts."""
        return read_cifar10(self.folder)


class SequentialFashionMNIST(_SequentialImages):
    """Fashion-MNIST as sequences of 784 grey values; ten classes of clothes. A stand-in for SequentialImage offline.

    Scores are not comparable to those on CIFAR-10. The last 5,000 training images are for validation. Any data set in
    MNIST's four IDX files with 60,000 training and 10,000 test images of 28 x 28 pixels in ten classes can be read.

    Args:
        images: folder with the four files; by default `root`/FashionMNIST/raw.
        options: see `GraphBenchmark`.
    """

    spec = specs.SEQUENTIAL_FASHION_MNIST
    folder_name = "FashionMNIST/raw"

    def source_key(self) -> dict[str, Any]:
        """Return the checksums of the four files."""
        return {"idx": idx_checksums(self.folder, _FASHION_ORIGIN)}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load the parts of the files."""
        return read_idx_folder(self.folder)


def _tables(images: LabelledImages) -> Iterator[GraphTable]:
    """Create tables of grey values, row after row."""
    for start in range(0, len(images), _CHUNK):
        pixels = np.asarray(images.images[start : start + _CHUNK])
        if pixels.ndim == 4:
            pixels = _grey(pixels)
        lengths = np.full(len(pixels), pixels[0].size, dtype=np.int64)
        labels = images.labels[start : start + _CHUNK].astype(np.uint8)
        yield to_table(Sequences(pixels.reshape(-1).copy(), lengths, labels))


def _grey(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels `[..., 3]` to grey values, uint8 `[...]`."""
    return np.asarray((pixels @ _GREY * (255.5 / 255)).astype(np.uint8))  # truncated after scaling, as in TensorFlow
