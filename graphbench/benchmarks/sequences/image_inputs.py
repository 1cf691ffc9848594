"""Images that nobody trained on as sequences of grey values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.sequences.base import SequenceBenchmark
from graphbench.benchmarks.sequences.inputs import Tokens, table_of
from graphbench.benchmarks.superpixels.labelled import image_files, read_image
from graphbench.contracts import InputPart
from graphbench.errors import CorruptData

_SIZE = 256  # images per part


class ImageInput(SequenceBenchmark):
    """Base of benchmarks whose sequences are the pixels of images, so that other images can be read alike."""

    #: Images have three channels, which `grey_values` turns into one.
    colour: bool = False

    def image_side(self) -> int:
        """Pixels per side."""
        return int((self.spec.max_nodes or 0) ** 0.5)

    def grey_values(self, image: np.ndarray) -> np.ndarray:
        """uint8 `[height, width]` of an image as it was read."""
        return image

    def read_input(self, source: str, column: str | None = None, size: int = _SIZE) -> Iterator[InputPart]:
        """Images of a folder and the folders in it, or one image, read row by row; none is scaled.

        Args:
            source: the folder or the image.
            column: not used: a file is an image.
            size: images per part.

        Raises:
            BadInput: `source` is none of both, or there is a column.
        """
        return self._read(*image_files(Path(source), column, self.spec.name), size)

    def _read(self, files: Sequence[Path], root: Path, size: int) -> Iterator[InputPart]:
        for start in range(0, len(files), size):
            chosen = files[start : start + size]
            outcomes = [self._sequence(file) for file in chosen]
            found = {row: one for row, one in enumerate(outcomes) if isinstance(one, Tokens)}
            problems = {row: one for row, one in enumerate(outcomes) if isinstance(one, str)}
            frame = pd.DataFrame({"file": [file.relative_to(root).as_posix() for file in chosen]}, dtype=object)
            yield InputPart(frame, table_of(list(found.values()), False), list(found), problems)

    def _sequence(self, file: Path) -> Tokens | str:
        """The pixels of an image, or why there are none."""
        try:
            image = read_image(file, self.colour)
        except CorruptData as error:
            return str(error).replace(f"{file} cannot", "the file cannot")
        side = self.image_side()
        if image.shape[:2] != (side, side):
            return f"the image has {image.shape[1]} x {image.shape[0]} pixels; expected {side} x {side}"
        return Tokens(self.grey_values(image).reshape(-1).copy())
