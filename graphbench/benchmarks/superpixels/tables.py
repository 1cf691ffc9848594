"""Images as rows of a CSV file: pixels, and the class in the last column."""

from __future__ import annotations

import zlib
from math import isqrt
from pathlib import Path

import numpy as np

from graphbench.benchmarks.superpixels.labelled import LabelledImages
from graphbench.errors import CorruptData


def read_image_rows(file: Path, brightest: int = 255) -> LabelledImages:
    """Square grey images out of a CSV file without a header, packed (.gz) or not.

    Args:
        file: one row per image.
        brightest: value of white; pixels are scaled so that it becomes 255.

    Raises:
        CorruptData: the file is damaged, or its rows are no square images of values up to `brightest`.
    """
    try:
        rows = np.loadtxt(file, delimiter=",", dtype=np.float64, ndmin=2)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise CorruptData(f"{file} cannot be read ({type(error).__name__}: {error}).") from error
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
