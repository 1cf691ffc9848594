"""Pathfinder of the Long Range Arena: sample many images of two dots that are joined by one dashed path, or not.

This is the task of Linsley et al. (2018) in the form of "Long Range Arena" (Tay et al., 2021): two long dashed paths
that keep apart, short dashed paths as distractors, a dot at the start of a path and a dot at the end of that path
(class 1) or of the other one (class 0). The constants are those documented in the arena's code for its 32 x 32 images
of the hard set, "curv_contour_length_14". The published generator moves on a grid of pixels; here dashes may be off the
grid, but keep the published distances. Numbers are in pixels unless stated otherwise.

How a path grows: a dash begins one `margin` behind a pivot and is `dash_length` long; the next pivot is one margin
after its end. The turn t between two dashes has odds `cos(continuity t)^2` among the free directions, and none above a
right angle. A direction is free if its dash stays inside the image and at least two margins from all other dashes
except the previous one. Without a free direction the attempt fails: long paths are sampled again, distractors retried.

Legend: A images, K candidate directions, P points that represent a dash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.base import Sequences
from graphbench.benchmarks.sequences.inputs import ImageInput
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.data.worker_pool import random_state
from graphbench.errors import BadInput, check_range

_CHUNK = 500  # images per job; another number would change the images
_PIXELS_PER_DASH = 56  # 18 dashes in 32 x 32 pixels, 4 in 16 x 16; of 1,000 attempts, 15 and 91 then succeed
_SMALLEST, _PUBLISHED = 12, 32  # pixels per side
_CELLS = 2  # cells of the occupancy grid per pixel
_BORDER = 6  # spare cells around the grid, so that discs at the border need no clipping
_DIRECTIONS = 16  # candidate turns between -90 and 90 degrees, at random offsets
_SPREAD = np.array([0.0, 0.5, 1.0], dtype=np.float32)  # points of a dash, in its length
_ATTEMPTS = 1_000  # images started at once


class Pathfinder(ImageInput):
    """Two dots joined by one dashed path, or not, in 200,000 images of 32 x 32 pixels, read row by row.

    Images have two paths of 14 dashes and five distractors of four, with the constants of the arena's hard set ("Long
    Range Arena", Tay et al., 2021; Linsley et al., NeurIPS 2018), but dashes may be off the grid; details are in
    `graphbench.benchmarks.sequences.pathfinder`. A token is a grey value.

    Args:
        data_seed: seed of the images.
        sizes: images in train, validation and test for a smaller (or larger) set.
        image_size: pixels per side; fewer than the arena's 32 give shorter sequences of the same task for smaller
            machines. The distance between paths is scaled, but not the size of dashes.
        path_dashes: dashes of the two long paths; the arena's easier sets have 6 and 9.
        distractors: number of short paths.
        options: see `GraphBenchmark`.
    """

    spec = specs.PATHFINDER

    def __init__(
        self,
        data_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        image_size: int = _PUBLISHED,
        path_dashes: int = 14,
        distractors: int = 5,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_range("image_size", image_size, at_least=_SMALLEST, at_most=_PUBLISHED, whole=True)
        most = image_size**2 // _PIXELS_PER_DASH
        if not 2 <= path_dashes <= most or not 0 <= distractors <= most:
            raise BadInput(
                f"path_dashes must be 2 to {most} and distractors 0 to {most} ({image_size} x {image_size} pixels have "
                f"no room for more), got {path_dashes} and {distractors}."
            )
        published = PathfinderSettings()
        self.settings = replace(
            published,
            side=image_size,
            seed_distance=published.seed_distance * image_size / _PUBLISHED,
            path_dashes=path_dashes,
            distractors=distractors,
        )
        self.data_seed = data_seed
        spec = type(self).spec
        if image_size != _PUBLISHED:
            spec = replace(spec, mean_nodes=float(image_size**2), max_nodes=image_size**2, disk_mb=None)
        self.spec = with_sizes(spec, sizes)

    def source_key(self) -> dict[str, Any]:
        """Return the options that define the images."""
        return {
            "data_seed": self.data_seed,
            "sizes": list(self.spec.split_sizes or ()),
            "settings": asdict(self.settings),
            "chunk": _CHUNK,
        }

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample the images on all cores."""
        return self.drawn(partial(sample_pathfinder, settings=self.settings), self.data_seed, _CHUNK)


@dataclass(frozen=True)
class PathfinderSettings:
    """Parameters of the images; the published constants by default.

    Args:
        side: pixels per side.
        path_dashes: dashes of the two long paths.
        distractors: number of short paths.
        distractor_dashes: dashes of each distractor.
        dash_length: length of a dash.
        margin: half the gap between dashes.
        seed_distance: between the starts of the long paths; the first is twice as far from the border.
        continuity: preference of a path for continuing straight.
        padding: empty pixels at the border.
        dot_radius: radius of the two dots.
        path_light, distractor_light: brightness of dashes before they are thinned to half a pixel.
        distractor_trials: attempts at each distractor before it is omitted.
    """

    side: int = 32
    path_dashes: int = 14
    distractors: int = 5
    distractor_dashes: int = 4
    dash_length: float = 2.0
    margin: float = 1.0
    seed_distance: float = 7.0
    continuity: float = 1.0
    padding: float = 1.0
    dot_radius: float = 1.5
    path_light: float = 1.5
    distractor_light: float = 2.0
    distractor_trials: int = 5


@dataclass(frozen=True)
class Scenes:
    """Content of A images.

    Args:
        dashes: start and end of every dash, row and column `[A, D, 2, 2]`; NaN for missing dashes. The order is: one
            long path, the other long path, the distractors.
        dots: centres of the dots `[A, 2, 2]`.
        labels: 1 if one path joins the dots, uint8 `[A]`.
    """

    dashes: np.ndarray
    dots: np.ndarray
    labels: np.ndarray


def sample_pathfinder(seed: tuple[int, ...], count: int, settings: PathfinderSettings | None = None) -> Sequences:
    """Sample images as sequences of grey values, row after row."""
    settings = settings or PathfinderSettings()
    scenes = sample_scenes(seed, count, settings)
    images = paint(scenes, settings)
    lengths = np.full(count, settings.side**2, dtype=np.int64)
    return Sequences(images.reshape(-1), lengths, scenes.labels)


def sample_scenes(seed: tuple[int, ...], count: int, settings: PathfinderSettings) -> Scenes:
    """Sample paths and dots of `count` images."""
    generator = random_state(*seed)
    growth = _Growth(generator, settings)
    paths, grids = [], []
    missing = count
    while missing > 0:
        grown, grid = growth.long_paths()
        paths.append(grown[:missing])
        grids.append(grid[:missing])
        missing -= len(grown)
    long_paths = np.concatenate(paths)
    short = growth.distractors(np.concatenate(grids))
    labels = generator.randint(0, 2, count).astype(np.uint8)
    first = generator.randint(0, 2, count)
    last = np.where(labels == 1, first, 1 - first)
    rows = np.arange(count)
    dots = np.stack([long_paths[rows, first, 0, 0], long_paths[rows, last, -1, 1]], axis=1)
    dashes = np.concatenate([long_paths.reshape(count, -1, 2, 2), short.reshape(count, -1, 2, 2)], axis=1)
    return Scenes(dashes, dots, labels)


def paint(scenes: Scenes, settings: PathfinderSettings) -> np.ndarray:
    """Draw images `[A, side, side]`, uint8.

    A dash is a line half a pixel wide under a tent filter: a pixel at distance d from it has `light / 2 max(0, 1 - d)`.
    A dot is a disc whose border fades over a pixel. Overlaps use the maximum; 1 becomes 255.
    """
    count, side = len(scenes.labels), settings.side
    reach = int(np.ceil(settings.dash_length / 2 + 1))
    canvas = np.zeros((count, side + 2 * reach, side + 2 * reach), dtype=np.float32)
    steps = np.arange(-reach, reach + 1)
    num_path = 2 * settings.path_dashes
    for number in range(scenes.dashes.shape[1]):  # one dash of every image at a time
        rows = np.flatnonzero(np.isfinite(scenes.dashes[:, number, 0, 0]))
        begin, end = scenes.dashes[rows, number, 0], scenes.dashes[rows, number, 1]
        cell = np.floor((begin + end) / 2).astype(np.int64)
        row, column = cell[:, 0, None, None] + steps[:, None], cell[:, 1, None, None] + steps
        pixel = np.stack(np.broadcast_arrays(row, column), axis=-1) + 0.5  # middles of pixels [rows, 2r+1, 2r+1, 2]
        along = (end - begin) / settings.dash_length
        offset = pixel - begin[:, None, None]
        place = np.clip((offset * along[:, None, None]).sum(-1), 0, settings.dash_length)[..., None]
        distance = np.linalg.norm(offset - place * along[:, None, None], axis=-1)
        light = settings.path_light if number < num_path else settings.distractor_light
        where = rows[:, None, None], row + reach, column + reach
        canvas[where] = np.maximum(canvas[where], light / 2 * np.clip(1 - distance, 0, None))
    canvas = canvas[:, reach : reach + side, reach : reach + side]
    middle = np.arange(side) + 0.5
    for dot in np.moveaxis(scenes.dots, 1, 0):
        distance = np.hypot(middle[:, None] - dot[:, 0, None, None], middle - dot[:, 1, None, None])
        canvas = np.maximum(canvas, np.clip(settings.dot_radius + 0.5 - distance, 0, 1))
    return np.round(np.clip(canvas, 0, 1) * 255).astype(np.uint8)


class _Growth:
    """Grows paths of many images in parallel; `grid` marks cells too close to earlier dashes."""

    def __init__(self, generator: np.random.RandomState, settings: PathfinderSettings) -> None:
        self.generator, self.settings = generator, settings
        self.gap = 2 * settings.margin
        reach = int(np.ceil(self.gap * _CELLS)) + 1
        steps = np.arange(-reach, reach + 1)
        # dashes are marked by cell, hence the extra half diagonal of a cell
        near = np.hypot(steps[:, None], steps) <= self.gap * _CELLS + 0.75
        self.disc = np.argwhere(near) - reach + _BORDER

    def _draw(self, shape: int | tuple[int, ...]) -> np.ndarray:
        """Sample uniform numbers below 1 in single precision."""
        return self.generator.random_sample(shape).astype(np.float32)

    def long_paths(self) -> tuple[np.ndarray, np.ndarray]:
        """Sample long paths; return dashes `[A, 2, n, 2, 2]` and grids `[A, cells, cells]` of successful attempts."""
        s, draw = self.settings, self._draw
        cells = s.side * _CELLS + 2 * _BORDER
        grid = np.zeros((_ATTEMPTS, cells, cells), dtype=bool)
        near, far = 2 * s.seed_distance, s.side - 2 * s.seed_distance
        begin = near + (far - near) * draw((_ATTEMPTS, 2))
        begins = [begin, begin + s.seed_distance * _unit(2 * np.pi * draw(_ATTEMPTS))]
        headings = [2 * np.pi * draw(_ATTEMPTS) for _ in range(2)]
        dashes = np.full((_ATTEMPTS, 2, s.path_dashes, 2, 2), np.nan, dtype=np.float32)
        for path in range(2):
            dashes[:, path, 0] = self._dash(begins[path], headings[path])
        heading = np.stack(headings, axis=1)
        points = [_points(dashes[:, path, 0]) for path in range(2)]
        # The first path always starts far enough from the border.
        good = self._inside(points[1]).all(1) & self._apart(points[1][:, None], points[0])[:, 0]
        dashes, heading, grid = dashes[good], heading[good], grid[good]
        for step in range(1, s.path_dashes):
            # Alternate, so that neither path takes the space of the other; failed attempts are removed from all arrays.
            for path in range(2):
                others = _points(dashes[:, 1 - path, step - 1 + path])  # not marked yet
                dash, angle, good = self._extend(dashes[:, path, step - 1], heading[:, path], grid, others)
                dashes[:, path, step], heading[:, path] = dash, angle
                dashes, heading, grid = dashes[good], heading[good], grid[good]
                self._mark(grid, np.arange(len(grid)), dashes[:, path, step - 1])
        for path in range(2):
            self._mark(grid, np.arange(len(grid)), dashes[:, path, -1])
        return dashes, grid

    def distractors(self, grid: np.ndarray) -> np.ndarray:
        """Sample short paths `[A, distractors, n, 2, 2]`, NaN if none fits, and mark them in `grid`."""
        s = self.settings
        paths = np.full((len(grid), s.distractors, s.distractor_dashes, 2, 2), np.nan, dtype=np.float32)
        for number in range(s.distractors):
            open_rows = np.arange(len(grid))
            for _ in range(s.distractor_trials):
                rows, dashes = self._short_path(grid, open_rows)
                paths[rows, number] = dashes
                for step in range(s.distractor_dashes):
                    self._mark(grid, rows, dashes[:, step])
                open_rows = np.setdiff1d(open_rows, rows, assume_unique=True)
        return paths

    def _short_path(self, grid: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Try one path per image; return the images that succeeded, and the dashes `[rows, n, 2, 2]`."""
        s, draw = self.settings, self._draw
        begin, angle = s.side * draw((len(rows), _DIRECTIONS, 2)), 2 * np.pi * draw((len(rows), _DIRECTIONS))
        dash = self._dash(begin, angle)
        free = self._free(_points(dash), grid[rows], None)
        chosen, good = self._pick(free.astype(np.float32))
        dashes = np.full((len(rows), s.distractor_dashes, 2, 2), np.nan, dtype=np.float32)
        dashes[:, 0], heading = dash[np.arange(len(rows)), chosen], angle[np.arange(len(rows)), chosen]
        rows, dashes, heading = rows[good], dashes[good], heading[good]
        for step in range(1, s.distractor_dashes):
            earlier = _points(dashes[:, : step - 1]).reshape(len(rows), (step - 1) * len(_SPREAD), 2)
            dashes[:, step], heading, good = self._extend(dashes[:, step - 1], heading, grid[rows], earlier)
            rows, dashes, heading = rows[good], dashes[good], heading[good]
        return rows, dashes

    def _extend(
        self, last: np.ndarray, heading: np.ndarray, grid: np.ndarray, others: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sample the next dash `[A, 2, 2]` after `last`, its heading `[A]`, and a mask of success `[A]`.

        It avoids occupied cells of the grid `[A, cells, cells]` and further points `[A, O, 2]`.
        """
        s = self.settings
        steps = np.arange(_DIRECTIONS) + self._draw((len(last), 1))
        turn = (steps / _DIRECTIONS - 0.5) * np.pi
        angle = heading[:, None] + turn
        pivot = last[:, 1] + s.margin * _unit(heading)
        dash = self._dash(pivot[:, None] + s.margin * _unit(angle), angle)
        odds = np.cos(np.minimum(np.abs(turn) * s.continuity, np.pi / 2)) ** 2
        chosen, good = self._pick(odds * self._free(_points(dash), grid, others))
        rows = np.arange(len(last))
        return dash[rows, chosen], angle[rows, chosen], good

    def _pick(self, odds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Sample a column of each row with odds `[A, K]`; the mask is False if all odds are 0."""
        total = odds.cumsum(1)
        threshold = self._draw(len(odds)) * total[:, -1]
        return np.minimum((total <= threshold[:, None]).sum(1), odds.shape[1] - 1), total[:, -1] > 1e-9

    def _dash(self, begin: np.ndarray, angle: np.ndarray) -> np.ndarray:
        """Return start and end `[..., 2, 2]` of a dash."""
        return np.stack([begin, begin + self.settings.dash_length * _unit(angle)], axis=-2)

    def _inside(self, points: np.ndarray) -> np.ndarray:
        """Mask the points `[..., 2]` inside the padding: `[...]`."""
        middle = self.settings.side / 2
        far = np.maximum(np.abs(points[..., 0] - middle), np.abs(points[..., 1] - middle))
        return far <= middle - self.settings.padding

    def _apart(self, points: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Mask the dashes, as points `[A, K, P, 2]`, that keep the gap to all `others` `[A, O, 2]`: `[A, K]`."""
        rows, columns = (points[..., axis, None] - others[:, None, None, :, axis] for axis in range(2))
        # a point is at most half a pixel from the nearest point of its dash
        square = rows * rows + columns * columns
        return square.min((2, 3), initial=np.inf) >= (self.gap + 0.1) ** 2

    def _free(self, points: np.ndarray, grid: np.ndarray, others: np.ndarray | None) -> np.ndarray:
        """Mask the dashes, as points `[A, K, P, 2]`, that may be sampled: `[A, K]`."""
        inside = self._inside(points)
        cell = np.floor(np.clip(points, 0, self.settings.side - 1e-3) * _CELLS).astype(np.int64) + _BORDER
        taken = grid[np.arange(len(grid))[:, None, None], cell[..., 0], cell[..., 1]]
        free = (inside & ~taken).all(-1)
        return free if others is None else free & self._apart(points, others)

    def _mark(self, grid: np.ndarray, rows: np.ndarray, dash: np.ndarray) -> None:
        """Mark cells too close to a dash `[len(rows), 2, 2]` in some of the images."""
        cell = np.floor(_points(dash) * _CELLS).astype(np.int64)[:, :, None] + self.disc
        grid[rows[:, None, None], cell[..., 0], cell[..., 1]] = True


def _unit(angle: np.ndarray) -> np.ndarray:
    """Return unit vectors `[..., 2]`, row and column."""
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1)


def _points(dash: np.ndarray) -> np.ndarray:
    """Return the points `[..., P, 2]` that represent dashes `[..., 2, 2]`."""
    begin, end = dash[..., :1, :], dash[..., 1:, :]
    return begin + _SPREAD[:, None] * (end - begin)
