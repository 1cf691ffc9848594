"""What the point clouds share: points sampled from stored ones, scaling and rotations, all on the training device."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.points.rotations import random_rotations, random_turns, rotate
from graphbench.contracts import SPLITS, GraphBatch, GraphTable
from graphbench.contracts.table import EDGE, EDGE_INDEX, GRAPH, NODE, Column, pointer
from graphbench.errors import BadInput, check_choice, check_range

#: How clouds are turned in training and in evaluation: not at all, about the upright axis (z), or in any way.
Rotations = Literal["none", "z/z", "z/SO(3)", "SO(3)/SO(3)"]
#: Column with the rotation of each cloud in evaluation.
ROTATION = "rotation"
#: Column of clouds of a user whose points are all answered, however many they are.
WHOLE = "whole"


class PointCloudBenchmark(GraphBenchmark):
    """Base of benchmarks whose graphs are point clouds: `pos [num_nodes, 3]`, normals `x_dense`, no edges.

    Stored clouds are centred and of radius 1. After a batch has reached the training device:

    * clouds get `num_points` points, where more (or fewer) are stored: in training some sampled at random without
      replacement, in evaluation the first ones; a smaller cloud repeats its points;
    * in training, every cloud is scaled by a factor sampled uniformly from `scaling`;
    * clouds are rotated as `rotations` says, with their normals.

    What is random in training depends on (seed, epoch, first cloud of the batch) alone, and on the kind of device: a
    resumed run samples what an uninterrupted one would. A cloud's rotation in evaluation depends on `rotation_seed`,
    its split and its number alone.

    Args:
        num_points: points per cloud.
        rotations: training / evaluation: `none`, `z/z`, `z/SO(3)` or `SO(3)/SO(3)`; z is the upright axis of the data,
            SO(3) all rotations alike.
        scaling: range of the random scale in training; (1, 1) for none.
        rotation_seed: of the rotations in evaluation.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for options out of range.
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
        **options: Any,
    ) -> None:
        super().__init__(**options)
        check_choice("rotations", rotations, get_args(Rotations))
        check_range("num_points", num_points, at_least=1, whole=True)
        if not 0 < scaling[0] <= scaling[1]:
            raise BadInput(f"scaling must be a range above 0, but got {tuple(scaling)}.")
        self.num_points, self.rotations = num_points, rotations
        self.scaling, self.rotation_seed = (scaling[0], scaling[1]), rotation_seed

    # -- opening -------------------------------------------------------------------------------------------------

    def open_tables(self) -> None:
        """Open the store; every cloud gets its rotation in evaluation."""
        super().open_tables()
        if self.encodings and any(bool((t.num_nodes != self.num_points).any()) for t in self.tables.values()):
            names = ", ".join(encoding.name for encoding in self.encodings)
            raise BadInput(
                f"{self.spec.name} draws {self.num_points} points anew from larger clouds, so nothing can be computed "
                f"for them in advance; the model asks for {names}."
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

    # -- after a batch has reached the device --------------------------------------------------------------------

    def on_before_batch_transfer(self, batch: GraphBatch, dataloader_idx: int) -> GraphBatch:
        """Choose the seed of what is random, while the batch's numbers can be read without waiting for a device."""
        if self.trainer is not None and self.trainer.training:
            epoch, first = self.trainer.current_epoch, int(batch.graph_id[0])
            batch.augmentation_seed = _seed(self.sampling_seed(), epoch, first)
        return batch

    def on_after_batch_transfer(self, batch: GraphBatch, dataloader_idx: int) -> GraphBatch:
        """Draw points, scale and rotate."""
        generator = None
        if "augmentation_seed" in batch:
            generator = torch.Generator(batch.pos.device).manual_seed(batch.augmentation_seed)
            del batch.augmentation_seed
        return self.transform(batch, generator)

    def transform(self, batch: GraphBatch, generator: torch.Generator | None = None) -> GraphBatch:
        """The batch as a model sees it.

        Args:
            batch: as it was cut; is changed.
            generator: of what is random in training, on the batch's device; None for evaluation.
        """
        columns = ["pos", "x_dense", *(["x"] if self.spec.node.vocabularies else [])]
        columns += ["y"] if self.spec.task == "node-classification" else []
        if WHOLE in batch:
            del batch[WHOLE]
        else:
            sample_points(batch, columns, self.num_points, generator)
        rotation = batch.get(ROTATION, None)
        if rotation is not None:
            del batch[ROTATION]
        if generator is not None:
            low, high = self.scaling
            scale = torch.rand(batch.num_graphs, 1, generator=generator, device=generator.device)
            batch.pos = batch.pos * (low + (high - low) * scale)[batch.batch]
            if rotation is not None:
                rotation = self._draw_rotations(self.rotations.partition("/")[0], batch.num_graphs, generator)
        if rotation is not None:
            batch.pos = rotate(batch.pos, rotation, batch.batch)
            batch.x_dense = rotate(batch.x_dense, rotation, batch.batch)
        return batch


def _seed(*parts: int) -> int:
    """One seed out of several, the same on every machine."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")


def sample_points(
    batch: GraphBatch, columns: Sequence[str], num_points: int, generator: torch.Generator | None
) -> None:
    """Give every cloud of a batch `num_points` points, in place; clouds that all have them stay as they are.

    Args:
        batch: clouds of any sizes, without edges.
        columns: names of what has one row per point.
        num_points: points P each gets: without replacement, and all again from the first when there are fewer.
        generator: of the sample, on the batch's device; None takes the points in their order.
    """
    sizes, device = batch.ptr.diff(), batch.pos.device
    if batch.max_nodes == num_points and batch.num_nodes == batch.num_graphs * num_points:
        return
    order = torch.arange(batch.num_nodes, device=device)
    if generator is not None:
        keys = torch.rand(batch.num_nodes, generator=generator, device=device, dtype=torch.float64)
        order = (keys + batch.batch).argsort()  # at random within each cloud
    place = torch.arange(num_points, device=device) % sizes[:, None] + batch.ptr[:-1, None]
    chosen = order[place.reshape(-1)]
    for name in columns:
        batch[name] = batch[name][chosen]
    clouds = torch.arange(batch.num_graphs, device=device)
    batch.batch = clouds.repeat_interleave(num_points, output_size=batch.num_graphs * num_points)
    batch.ptr = torch.arange(batch.num_graphs + 1, device=device) * num_points
    batch.num_nodes, batch.max_nodes = batch.num_graphs * num_points, num_points


def cloud_table(points: np.ndarray, normals: np.ndarray, labels: np.ndarray | None) -> GraphTable:
    """Clouds of one size `[S, P, 3]` as a table, with their classes where they are known; half precision on disk."""
    count, size = points.shape[:2]
    columns = {
        "pos": torch.from_numpy(points).reshape(-1, 3).half(),
        "x_dense": torch.from_numpy(normals).reshape(-1, 3).half(),
        "edge_index": torch.zeros(0, 2, dtype=torch.uint8),
    }
    layout = {"pos": Column(NODE), "x_dense": Column(NODE), "edge_index": EDGE_INDEX}
    if labels is not None:
        columns["y"], layout["y"] = torch.from_numpy(labels)[:, None], Column(GRAPH)
    nodes = torch.full((count,), size, dtype=torch.int64)
    return GraphTable(columns, layout, {NODE: pointer(nodes), EDGE: pointer(torch.zeros_like(nodes))})
