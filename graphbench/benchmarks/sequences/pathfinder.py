"""Pathfinder of the Long Range Arena, sampled with its constants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from graphbench.benchmarks.base import with_sizes
from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.dashed_paths import PathfinderSettings, sample_pathfinder
from graphbench.benchmarks.sequences.inputs import ImageInput
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput, check_range

_CHUNK = 500  # images per job; another number would sample other images
_PIXELS_PER_DASH = 56  # 18 dashes in 32 x 32 pixels, 4 in 16 x 16; of 1,000 attempts then 15 and 91 succeed
_SMALLEST, _PUBLISHED = 12, 32  # pixels per side


class Pathfinder(ImageInput):
    """Two dots joined by one dashed path, or not, in 200,000 images of 32 x 32 pixels, read row by row.

    Two paths of 14 dashes, five distractors of four; see `sequences.dashed_paths` for the constants of the arena's hard
    set ("Long Range Arena", Tay et al., 2021; Linsley et al., NeurIPS 2018) and for the difference: dashes may lie off
    the grid. A token is a grey value.

    Args:
        data_seed: of the images.
        sizes: images in train, validation and test for a smaller (or larger) set.
        image_size: pixels per side; fewer than the arena's 32 make shorter sequences of the same task for smaller
            machines. The distance between paths is scaled, the size of dashes is not.
        path_dashes: dashes of the two long paths; the arena's easier sets have 6 and 9.
        distractors: short paths.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for numbers out of range.
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
