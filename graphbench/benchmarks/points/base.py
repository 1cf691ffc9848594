"""Base class of point-cloud benchmarks, which samples, scales and rotates points on the training device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.points.augmentation import Augmentation, random_rotations, random_turns, rotate_clouds
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphBatch, GraphTable
from graphbench.contracts.table import GRAPH, NODE, Column
from graphbench.errors import BadInput, check_choice, check_range

#: Rotations in training / evaluation: none, about the upright axis (z), or any.
Rotations = Literal["none", "z/z", "z/SO(3)", "SO(3)/SO(3)"]
#: Unit of length: the radius of a cloud, or the deviation of its coordinates.
Unit = Literal["radius", "deviation"]
#: Column with the rotation of each cloud in evaluation.
ROTATION = "rotation"
#: Column of a user's clouds whose points are all used, whatever their number.
WHOLE = "whole"


class PointCloudBenchmark(GraphBenchmark):
    """Base of benchmarks whose graphs are point clouds: `pos [num_nodes, 3]`, normals `x_dense`, no edges.

    Stored clouds are centred and have radius 1. After a batch has reached the training device:

    * clouds get `num_points` points if more or fewer are stored: in training they are sampled without replacement,
      and a smaller cloud repeats its points; in evaluation they are the first ones, and a smaller cloud keeps its size;
    * with `unit: deviation`, coordinates are divided by the root mean square over the whole cloud;
    * in training, a share of points, sampled uniformly from 0 to `point_dropout` for each cloud, becomes its first
      point; every cloud is turned about the upright axis by up to `max_turn` degrees, either way, and about all three
      axes by normal angles of deviation `tilt`, at most three deviations; it is scaled by a factor sampled uniformly
      from `scaling`, with `scale_axes` by one for each axis, and moved along each axis by up to `max_shift`; and every
      coordinate of every point gets normal noise of deviation `jitter`, at most five deviations;
    * clouds are rotated according to `rotations`.

    Normals are rotated with their points, and stay normal to the surface if axes are scaled.

    Random numbers in training depend only on (seed, epoch, first cloud of the batch) and the kind of device, so a
    resumed run samples the same as an uninterrupted one. A cloud's rotation in evaluation depends only on
    `rotation_seed`, its split and its number.

    Args:
        num_points: points per cloud.
        rotations: training / evaluation: `none`, `z/z`, `z/SO(3)` or `SO(3)/SO(3)`; z is the upright axis of the data,
            SO(3) all rotations.
        scaling: range of the random scale in training; (1, 1) for none.
        rotation_seed: seed of the rotations in evaluation.
        scale_axes: scale each axis by a separate random factor.
        max_turn: maximum angle of the random turn before scaling in training, in degrees; 0 for none.
        unit: unit of length before these changes: the `radius` of a cloud, or the `deviation` of its coordinates.
        max_shift: maximum random shift along each axis in training, in the unit of stored clouds; 0 for none.
        jitter: deviation of the noise of coordinates in training, in the same unit; 0 for none.
        point_dropout: maximum share of points that training drops, below 1; 0 for none.
        tilt: deviation of the random angle about each axis in training, in degrees; 0 for none.
        options: see `GraphBenchmark`.
    """

    takes_graphs: ClassVar[bool] = False
    python_input: ClassVar[str] = ""
    #: Coordinate that points upwards.
    upright: int = 2

    def __init__(
        self,
        num_points: int,
        rotations: Rotations = "none",
        scaling: tuple[float, float] = (0.6, 1.4),
        rotation_seed: int = 0,
        scale_axes: bool = False,
        max_turn: float = 0.0,
        unit: Unit = "radius",
        max_shift: float = 0.0,
        jitter: float = 0.0,
        point_dropout: float = 0.0,
        tilt: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("rotations", rotations, get_args(Rotations))
        check_choice("unit", unit, get_args(Unit))
        check_range("num_points", num_points, at_least=1, whole=True)
        check_range("rotation_seed", rotation_seed, at_least=0, whole=True)
        self.augmentation = Augmentation(
            tuple(scaling) if isinstance(scaling, list) else scaling,
            scale_axes,
            max_turn,
            tilt,
            max_shift,
            jitter,
            point_dropout,
            self.upright,
        )
        self.num_points, self.rotations, self.unit = num_points, rotations, unit
        self.rotation_seed = rotation_seed

    def open_tables(self) -> None:
        """Open the store; add each cloud's rotation in evaluation."""
        super().open_tables()
        if self.encodings and any(bool((t.num_nodes != self.num_points).any()) for t in self.tables.values()):
            names = ", ".join(encoding.name for encoding in self.encodings)
            raise BadInput(
                f"{self.spec.name} resamples {self.num_points} points from larger clouds, so encodings cannot be "
                f"computed in advance; the model needs {names}."
            )
        if self.rotations == "none":
            return
        for number, split in enumerate(SPLITS):
            generator = torch.Generator().manual_seed(_seed(self.rotation_seed, number))
            turns = self._draw_rotations(self.rotations.partition("/")[2], self._num_graphs[split], generator)
            table = self.tables[split]
            chosen = turns if table.graph_ids is None else turns[table.graph_ids]
            self.tables[split] = table.with_columns({ROTATION: chosen}, {ROTATION: Column(GRAPH)})

    def _draw_rotations(self, kind: str, count: int, generator: torch.Generator) -> Tensor:
        return random_turns(count, generator, self.upright) if kind == "z" else random_rotations(count, generator)

    def batch_options(self) -> dict[str, Any]:
        """Return the options that sample, scale and rotate points, in addition to those of every benchmark."""
        names = ("num_points", "rotations", "rotation_seed", "unit")
        return super().batch_options() | {name: getattr(self, name) for name in names} | self.augmentation.options()

    def _precomputed(self) -> None:
        """Return None: points are sampled after the transfer, so nothing computed before it would be valid."""

    def on_before_batch_transfer(self, batch: GraphBatch, dataloader_idx: int) -> GraphBatch:
        """Choose the augmentation seed before the transfer, where reading its inputs needs no host-device sync."""
        if self.trainer is not None and self.trainer.training:
            epoch, first = self.trainer.current_epoch, int(batch.graph_id[0])
            batch.augmentation_seed = _seed(self.sampling_seed(), epoch, first)
        return batch

    def on_after_batch_transfer(self, batch: GraphBatch, dataloader_idx: int) -> GraphBatch:
        """Sample points, scale and rotate."""
        generator = None
        if "augmentation_seed" in batch:
            generator = torch.Generator(batch.pos.device).manual_seed(batch.augmentation_seed)
            del batch.augmentation_seed
        return self.transform(batch, generator)

    def transform(self, batch: GraphBatch, generator: torch.Generator | None = None) -> GraphBatch:
        """Sample points of a batch in place; for training, augment and rotate them with a generator on its device."""
        columns = ["pos", "x_dense", *(["x"] if self.spec.node.vocabularies else [])]
        columns += ["y"] if self.spec.level == "node" else []
        if WHOLE in batch:
            del batch[WHOLE]
        else:
            sample_points(batch, columns, self.num_points, generator)
        if self.unit == "deviation":
            batch.pos = in_deviations(batch.pos, batch.batch, batch.num_graphs)
        rotation = batch.get(ROTATION, None)
        if rotation is not None:
            del batch[ROTATION]
        if generator is not None:
            self.augmentation.apply(batch, columns, generator)
            if rotation is not None:
                rotation = self._draw_rotations(self.rotations.partition("/")[0], batch.num_graphs, generator)
        if rotation is not None:
            rotate_clouds(batch, rotation)
        return batch


def in_deviations(pos: Tensor, owner: Tensor, num_clouds: int) -> Tensor:
    """Divide coordinates `[num_points, 3]` by their root mean square in the cloud: the deviation of a centred cloud.

    Examples:
        >>> in_deviations(torch.tensor([[-3.0, 0.0, 0.0], [3.0, 0.0, 0.0]]), torch.tensor([0, 0]), 1)[:, 0]
        tensor([-1.7321,  1.7321])
    """
    squares = pos.double().square().mean(1)  # float64: the order of the sum does not change the float32 result
    sums, counts = (squares.new_zeros(num_clouds).index_add_(0, owner, x) for x in (squares, torch.ones_like(squares)))
    return pos / (sums / counts).sqrt().clamp(min=1e-12).to(pos.dtype)[owner][:, None]


def _seed(*parts: int) -> int:
    """Combine seeds into one, with the same result on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


def sample_points(
    batch: GraphBatch, columns: Sequence[str], num_points: int, generator: torch.Generator | None
) -> None:
    """Give every cloud of a batch `num_points` points in place; if all have them, nothing changes.

    A generator on the batch's device samples them without replacement, and a smaller cloud repeats its points. Without
    a generator they are the first points, and a smaller cloud keeps its size, because a repeated point would be its own
    neighbour and change the prediction.
    """
    equal = batch.num_nodes == batch.num_graphs * batch.max_nodes
    if (batch.max_nodes == num_points and equal) or (generator is None and batch.max_nodes <= num_points):
        return
    sizes, device = batch.ptr.diff(), batch.pos.device
    rows = torch.arange(batch.num_nodes, device=device)
    if generator is None and not equal:  # a host-device sync, as in models for clouds of several sizes
        chosen = (rows - batch.ptr[batch.batch] < num_points).nonzero().squeeze(1)
        batch.batch = batch.batch[chosen]
        batch.ptr = torch.cat([batch.ptr[:1], sizes.clamp(max=num_points).cumsum(0)])
    else:
        order = rows
        if generator is not None:
            keys = torch.rand(batch.num_nodes, generator=generator, device=device, dtype=torch.float64)
            order = (keys + batch.batch).argsort()  # at random within each cloud
        place = torch.arange(num_points, device=device) % sizes[:, None] + batch.ptr[:-1, None]
        chosen = order[place.reshape(-1)]
        clouds = torch.arange(batch.num_graphs, device=device)
        batch.batch = clouds.repeat_interleave(num_points, output_size=batch.num_graphs * num_points)
        batch.ptr = torch.arange(batch.num_graphs + 1, device=device) * num_points
    for name in columns:
        batch[name] = batch[name][chosen]
    batch.num_nodes, batch.max_nodes = len(chosen), num_points


def cloud_table(
    points: Sequence[np.ndarray] | np.ndarray, normals: Sequence[np.ndarray] | np.ndarray, labels: np.ndarray | None
) -> GraphTable:
    """Create a table of clouds `[points, 3]` of any sizes, in half precision, with their classes if known."""
    columns = {"pos": (_rows(points), NODE), "x_dense": (_rows(normals), NODE)}
    if labels is not None:
        columns["y"] = torch.from_numpy(labels)[:, None], GRAPH
    return make_table(columns, torch.tensor([len(cloud) for cloud in points], dtype=torch.int64))


def _rows(clouds: Sequence[np.ndarray] | np.ndarray) -> Tensor:
    return torch.from_numpy(np.concatenate([np.zeros((0, 3), dtype=np.float16), *clouds])).half()
