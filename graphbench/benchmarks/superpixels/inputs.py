"""Images that nobody trained on, as superpixel graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import fields
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.superpixels.base import SuperpixelBenchmark, to_table
from graphbench.benchmarks.superpixels.labelled import image_files, read_image
from graphbench.benchmarks.superpixels.slic import ImageChunk, SlicSettings, SuperpixelGraphs, superpixel_graphs
from graphbench.contracts import InputPart
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import CorruptData, GraphbenchError, MissingExtra


class ImageInput(SuperpixelBenchmark):
    """Base of benchmarks whose graphs are cut out of images, so that other images can be cut alike."""

    #: Images have three channels instead of one.
    colour: bool = False

    def read_input(self, source: str, column: str | None = None, size: int = 128) -> Iterator[InputPart]:
        """Graphs of the images in a folder and the folders in it, or of one image, in the order of their paths.

        Rows have one column, `file`: the path below the folder. The order of an image's nodes is random, by
        `graph_seed`, and the same whatever other images there are. Which neighbours a node is joined to depends on that
        order a little, as published, so an image of the fit gets the superpixels that it had there, but not edge by
        edge the same graph.

        Args:
            source: the folder or the image.
            column: not used: a file is an image.
            size: images per part.

        Raises:
            BadInput: `source` is neither a folder with images nor an image, or there is a column.
        """
        return self._read(*image_files(Path(source), column, self.spec.name), size)

    def _read(self, files: Sequence[Path], root: Path, size: int) -> Iterator[InputPart]:
        names = [file.relative_to(root).as_posix() for file in files]
        cut = partial(cut_image, self.settings, self.graph_seed, self.colour)
        workers = min(available_cores(), len(files) // 8)
        with closing(ordered_map(cut, files, workers, f"Superpixels of {root}")) as results:
            for start in range(0, len(files), size):
                outcomes = list(islice(results, size))
                graphs = {row: one for row, one in enumerate(outcomes) if isinstance(one, SuperpixelGraphs)}
                problems = {row: one for row, one in enumerate(outcomes) if isinstance(one, str)}
                frame = pd.DataFrame({"file": names[start : start + size]}, dtype=object)
                yield InputPart(frame, to_table(_joined(list(graphs.values()))), list(graphs), problems)


def cut_image(settings: SlicSettings, graph_seed: int, colour: bool, file: Path) -> SuperpixelGraphs | str:
    """The graph of one image, or why there is none.

    Raises:
        MissingExtra: scikit-image is not installed.
    """
    try:
        return superpixel_graphs(ImageChunk([read_image(file, colour)], settings, (graph_seed,)))
    except MissingExtra:
        raise
    except CorruptData as error:
        return str(error).replace(f"{file} cannot", "the file cannot")
    except (GraphbenchError, ValueError, IndexError) as error:
        return f"no superpixels could be cut: {error}"


def _joined(parts: Sequence[SuperpixelGraphs]) -> SuperpixelGraphs:
    """Graphs one after the other; without any, arrays of the same types without rows."""
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return SuperpixelGraphs(empty, empty, np.empty((0, 3), np.float16), np.empty((0, 2), np.uint8),
                                np.empty((0, 1), np.float16))  # fmt: skip
    names = [field.name for field in fields(SuperpixelGraphs)]
    return SuperpixelGraphs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})
