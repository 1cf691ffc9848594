"""Parametric solids as point clouds: a classification that needs no download."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from graphbench.benchmarks.points import specs
from graphbench.benchmarks.points.base import Rotations, cloud_table
from graphbench.benchmarks.points.inputs import ShapeInput
from graphbench.benchmarks.points.parametric import NUM_FAMILIES, SolidChunk, SolidSettings, sample_solids
from graphbench.contracts import SPLITS, GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import check_range

_CHUNK = NUM_FAMILIES  # solids per job: one of each family; another number would change the solids


class Solids(ShapeInput):
    """Noisy solids as clouds of 1,024 points with normals, classified by cross-section and profile into 36 families.

    Six sections (round, three polygons, five and four lobes) times six profiles (straight, tapering, bulging, waisted,
    ball, ring), slanted, bent, twisted and stretched at random; see `points.parametric`. Every split has equal numbers
    of every family (one more or less if sizes are not multiples of 36). z is upright.

    Args:
        num_points: points per solid.
        rotations, scaling, rotation_seed: see `PointCloudBenchmark`.
        data_seed: seed of the solids.
        sizes: solids in train, validation and test for a smaller (or larger) set.
        stretch: every axis is stretched by a factor between 1 / stretch and stretch.
        point_noise: standard deviation of the noise on points, in radii.
        normal_noise: standard deviation of the noise on normals.
        options: see `PointCloudBenchmark`.
    """

    spec = specs.SOLIDS

    def __init__(
        self,
        num_points: int = 1_024,
        rotations: Rotations = "none",
        scaling: tuple[float, float] = (0.6, 1.4),
        rotation_seed: int = 0,
        data_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        stretch: float = 1.8,
        point_noise: float = 0.02,
        normal_noise: float = 0.15,
        **options: Any,
    ) -> None:
        super().__init__(num_points, rotations, scaling, rotation_seed, **options)
        check_range("stretch", stretch, at_least=1, below=math.inf)
        check_range("point_noise", point_noise, at_least=0, below=math.inf)
        check_range("normal_noise", normal_noise, at_least=0, below=math.inf)
        self.settings = SolidSettings(num_points, stretch, point_noise, normal_noise, data_seed)
        spec = with_sizes(type(self).spec, sizes)
        if num_points != spec.max_nodes:
            spec = replace(spec, mean_nodes=float(num_points), max_nodes=num_points, disk_mb=None)
        self.spec = spec

    def source_key(self) -> dict[str, Any]:
        """Return the options that define the solids."""
        return asdict(self.settings) | {"sizes": list(self.spec.split_sizes or ())}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample the solids on all cores."""
        return self.sampled(self._drawn)

    def _drawn(self, split: int, size: int) -> Iterator[GraphTable]:
        jobs = [
            SolidChunk(np.arange(start, min(start + _CHUNK, size)) % NUM_FAMILIES, self.settings, (split, start))
            for start in range(0, size, _CHUNK)
        ]
        unit = f"chunks of {_CHUNK} solids"
        for clouds in map_in_processes(sample_solids, jobs, len(jobs), f"Sampling Solids {SPLITS[split]}", unit=unit):
            yield cloud_table(clouds.points, clouds.normals, clouds.labels)
