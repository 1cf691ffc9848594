"""ModelNet40: meshes of 40 classes of objects as point clouds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.points import specs
from graphbench.benchmarks.points.base import Rotations, cloud_table
from graphbench.benchmarks.points.files import Files, find_files
from graphbench.benchmarks.points.inputs import Sampling, ShapeInput
from graphbench.benchmarks.points.meshes import MeshChunk, clouds_of_meshes
from graphbench.contracts import GraphTable
from graphbench.data.splits import permutation
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import CorruptData, MissingData, check_range

ADDRESS = "https://modelnet.cs.princeton.edu/ModelNet40.zip"
ARCHIVE, FOLDER = "ModelNet40.zip", "ModelNet40"
_CHUNK = 16  # meshes per job; a mesh has 20,000 faces on average, the largest one more than a million


class ModelNet40(ShapeInput):
    """12,311 meshes of 40 classes of objects as clouds of 1,024 points with normals.

    Points are sampled once, uniformly by area ("3D ShapeNets", Wu et al., CVPR 2015; as in SFT, appendix D.1). With
    `resample` above 1, that many times `num_points` are stored, and each training step draws a new sample of
    `num_points` from these; evaluation uses the first ones. A normal is that of its face and may point inwards, since
    the published meshes are wound both ways. z is upright.

    The data have no validation split. As in publications, validation uses the test shapes, which thus select the best
    checkpoint; if `held_out` is above 0, that many training shapes are used instead.

    Put `ModelNet40.zip` or its unpacked folder into `root`/ModelNet40 (also as `raw`, where PyG puts it).

    Args:
        num_points: points per shape.
        rotations, scaling, rotation_seed: see `PointCloudBenchmark`.
        resample: stored points of a shape, in multiples of `num_points`.
        held_out: training shapes used for validation; 0 for validation on the test shapes.
        data_seed: seed of the points, and of the held-out shapes.
        options: see `PointCloudBenchmark`.
    """

    spec = specs.MODEL_NET_40

    def __init__(
        self,
        num_points: int = 1_024,
        rotations: Rotations = "none",
        scaling: tuple[float, float] = (0.6, 1.4),
        rotation_seed: int = 0,
        resample: int = 1,
        held_out: int = 0,
        data_seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(num_points, rotations, scaling, rotation_seed, **options)
        train, _, test = type(self).spec.split_sizes or (0, 0, 0)
        check_range("resample", resample, at_least=1, whole=True)
        check_range("held_out", held_out, at_least=0, at_most=train - 1, whole=True)
        self.resample, self.held_out, self.data_seed = resample, held_out, data_seed
        spec, stored = type(self).spec, num_points * resample
        if stored != spec.max_nodes:
            spec = replace(spec, mean_nodes=float(num_points), max_nodes=stored, disk_mb=None)
        if held_out:
            spec = replace(spec, split_sizes=(train - held_out, held_out, test), disk_mb=None, extra={})
        self.spec = spec

    def source_key(self) -> dict[str, Any]:
        """Return the published data set and the options of points and split: a prepared store needs no meshes."""
        return {
            "source": ARCHIVE,
            "num_points": self.num_points * self.resample,
            "held_out": self.held_out,
            "data_seed": self.data_seed,
        }

    def sampling(self) -> Sampling:
        """Sample as for the published shapes: a mesh of the test split gets the same points, based on its name."""
        return Sampling(self.num_points, self.num_points * self.resample, self.data_seed)

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample points from the meshes on all cores."""
        folder = Path(self.root, "ModelNet40")
        files = find_files(folder, ARCHIVE, FOLDER, self.spec.target_names[0])
        if files is None:
            raise MissingData(
                f"ModelNet40 is missing. Put this file into {folder}:\n"
                f"  {ARCHIVE} from {ADDRESS} (2 GB; or the folder {FOLDER} in it)\n"
                "Solids needs no download and is used in the same way."
            )
        train, test = self._listed(files, "train"), self._listed(files, "test")
        parts = {"train": train, "val": test, "test": test}
        if self.held_out:
            order = permutation(len(train), self.data_seed)
            parts["train"] = [train[row] for row in sorted(order[self.held_out :])]
            parts["val"] = [train[row] for row in sorted(order[: self.held_out])]
        return {split: self._drawn(files, part) for split, part in parts.items()}

    def _listed(self, files: Files, split: str) -> list[tuple[str, int]]:
        """List files and classes of a published split, in the order of their names."""
        classes = {name: number for number, name in enumerate(self.spec.target_names)}
        paths = [name.split("/") for name in files.names() if name.lower().endswith(".off")]
        paths = [path for path in paths if path[0] in classes and path[1:2] == [split]]
        if absent := classes.keys() - {path[0] for path in paths}:
            place = f"{min(absent, key=classes.__getitem__)}/{split}"
            raise CorruptData(f"{files.path} has no .off file in {place}. Unpack or fetch it again.")
        return [("/".join(path), classes[path[0]]) for path in paths]

    def _drawn(self, files: Files, shapes: list[tuple[str, int]]) -> Iterator[GraphTable]:
        jobs = [
            MeshChunk(
                files,
                tuple(name for name, _ in shapes[start : start + _CHUNK]),
                np.array([label for _, label in shapes[start : start + _CHUNK]], dtype=np.uint8),
                self.num_points * self.resample,
                self.data_seed,
            )
            for start in range(0, len(shapes), _CHUNK)
        ]
        unit = f"chunks of {_CHUNK} meshes"
        for clouds in map_in_processes(clouds_of_meshes, jobs, len(jobs), "Points of ModelNet40", unit=unit):
            yield cloud_table(clouds.points, clouds.normals, clouds.labels)
