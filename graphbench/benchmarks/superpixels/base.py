"""Base class of superpixel benchmarks: converts images to graphs on all cores, reads published graphs, splits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.gnn_benchmark_files import Graph
from graphbench.benchmarks.inputs import is_graph, parts_of_items
from graphbench.benchmarks.superpixels.images import IMAGES, LabelledImages, as_pixels, check_images, image_files
from graphbench.benchmarks.superpixels.slic import ImageChunk, SlicSettings, SuperpixelGraphs, superpixel_graphs
from graphbench.benchmarks.tables import make_table
from graphbench.contracts import SPLITS, GraphTable, InputPart
from graphbench.contracts.table import EDGE, GRAPH, NODE, Column
from graphbench.data.splits import check_fractions, random_split
from graphbench.data.worker_pool import map_in_processes
from graphbench.errors import BadInput, GraphbenchError, MissingExtra, check_range

_CHUNK = 100  # images per job: a few tenths of a second; another number would change the node order


class SuperpixelBenchmark(GraphBenchmark):
    """Base of benchmarks that cut images into superpixels, and new images in the same way.

    Args:
        settings: settings of SLIC and the graphs.
        graph_seed: seed of the random order of nodes.
        options: see `GraphBenchmark`.
    """

    python_input: ClassVar[str] = IMAGES
    #: Whether images have three channels instead of one.
    colour: bool = False

    def __init__(self, settings: SlicSettings, graph_seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        check_range("num_segments", settings.num_segments, at_least=1, whole=True)
        check_range("surplus", settings.surplus, at_least=0)
        check_range("compactness", settings.compactness, above=0)
        self.settings, self.graph_seed = settings, graph_seed

    @abstractmethod
    def image_key(self) -> dict[str, Any]:
        """Return JSON values that identify the images and their split."""

    @abstractmethod
    def images(self) -> Mapping[str, LabelledImages]:
        """Load the images of each split; called only if the store lacks the graphs."""

    def source_key(self) -> dict[str, Any]:
        """Return images, settings, and the version of scikit-image, on which superpixels also depend."""
        slic = slic_version(f"{self.spec.name} from images") | asdict(self.settings)
        return {"images": self.image_key(), "slic": slic, "graph_seed": self.graph_seed}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Cut the images on all cores."""
        parts = self.images()
        # An empty split needs the columns of the others: take those of one training image, without its graph.
        one = parts["train"].select(np.arange(1))
        return {
            split: self._cut(split, images) if len(images) else (t.slice(0, 0) for t in self._cut("train", one))
            for split, images in parts.items()
        }

    def _cut(self, split: str, images: LabelledImages) -> Iterator[GraphTable]:
        number = SPLITS.index(split)
        starts = range(0, len(images), _CHUNK)
        jobs = (
            ImageChunk(images.images[start : start + _CHUNK], self.settings, (self.graph_seed, number, start // _CHUNK))
            for start in starts
        )
        description = f"Superpixels of {self.spec.name} {split}"
        unit = f"chunks of {_CHUNK} images"
        parts = map_in_processes(superpixel_graphs, jobs, len(starts), description, unit=unit)
        for start, graphs in zip(starts, parts, strict=True):
            labels = torch.from_numpy(images.labels[start : start + _CHUNK])[:, None].to(torch.int32)
            yield to_table(graphs).with_columns({"y": labels}, {"y": Column(GRAPH)})

    def read_input(self, source: str, column: str | None = None, size: int = 128) -> Iterator[InputPart]:
        """Cut the images in a folder and its subfolders, or one image, in the order of their paths.

        Rows have one column, `file`, with the path below the folder; an image has no `column`. The order of an image's
        nodes is random, by `graph_seed`, and independent of other images. As published, the neighbours of a node depend
        slightly on that order, so a training image gets the same superpixels again, but not exactly the same edges.
        """
        files, root = image_files(Path(source), column, self.spec.name)
        names = pd.DataFrame({"file": [file.relative_to(root).as_posix() for file in files]}, dtype=object)
        return self._read(files, names, f"Superpixels of {root}", size)

    def read_objects(self, objects: Sequence[Any], size: int = 128) -> Iterator[InputPart]:
        """Cut Pillow images or arrays of uint8 pixels like those of files; or read graphs, see `GraphBenchmark`.

        Arrays are `[height, width]` for grey, or `[height, width, 3]` for red, green and blue.
        """
        if all(map(is_graph, objects)):
            return super().read_objects(objects, size)
        check_images(objects, self.spec.name)
        return self._read(objects, pd.DataFrame(index=range(len(objects))), "Superpixels of images", size)

    def _read(self, images: Sequence[Any], rows: pd.DataFrame, description: str, size: int) -> Iterator[InputPart]:
        cut = partial(cut_image, self.settings, self.graph_seed, self.colour)

        def build(graphs: list[SuperpixelGraphs]) -> GraphTable:
            return to_table(_concatenate(graphs))

        return parts_of_items(cut, images, rows, size, build, description, workers=None)


def cut_image(settings: SlicSettings, graph_seed: int, colour: bool, image: object) -> SuperpixelGraphs | str:
    """Create the graph of one image, see `as_pixels`, or describe the problem."""
    try:
        pixels = as_pixels(image, colour)
    except BadInput as error:
        return str(error)
    try:
        return superpixel_graphs(ImageChunk([pixels], settings, (graph_seed,)))
    except MissingExtra:
        raise
    except (GraphbenchError, ValueError, IndexError) as error:
        return f"no superpixels could be cut: {error}"


def _concatenate(parts: Sequence[SuperpixelGraphs]) -> SuperpixelGraphs:
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return SuperpixelGraphs(empty, empty, np.empty((0, 3), np.float16), np.empty((0, 2), np.uint8),
                                np.empty((0, 1), np.float16))  # fmt: skip
    names = [field.name for field in fields(SuperpixelGraphs)]
    return SuperpixelGraphs(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def slic_version(purpose: str) -> dict[str, str]:
    """Return the version of scikit-image, or raise `MissingExtra` with the purpose."""
    try:
        return {"scikit-image": version("scikit-image")}
    except PackageNotFoundError as error:
        raise MissingExtra("scikit-image", "images", purpose) from error


def to_table(graphs: SuperpixelGraphs) -> GraphTable:
    """Create a table of graphs without classes."""
    columns = {"x_dense": NODE, "edge_index": EDGE, "edge_dense": EDGE}
    arrays = {name: (getattr(graphs, name), axis) for name, axis in columns.items()}
    return make_table(arrays, graphs.num_nodes, graphs.num_edges)


def from_published(graphs: Sequence[Graph], channels: int) -> dict[str, tuple[Tensor, str]]:
    """Convert PyG's superpixel graphs: intensities `x`, positions `pos`, edge weights `edge_attr`, class `y`."""
    x = torch.cat([torch.cat([graph["x"], graph["pos"]], dim=1) for graph in graphs])
    if x.shape[1] != channels + 2:
        raise ValueError(f"x and pos have {x.shape[1]} columns instead of {channels + 2}")
    weights = torch.cat([graph["edge_attr"].reshape(-1, 1) for graph in graphs])
    y = torch.stack([torch.as_tensor(graph["y"]).reshape(1) for graph in graphs])
    return {"x_dense": (x.half(), NODE), "edge_dense": (weights.half(), EDGE), "y": (y.to(torch.int32), GRAPH)}


def leading_validation(train: LabelledImages, test: LabelledImages, share: int) -> dict[str, LabelledImages]:
    """Split as published: the first 1 / `share` of the training images are for validation."""
    val, rest = np.split(np.arange(len(train)), [len(train) // share])
    return {"train": train.select(rest), "val": train.select(val), "test": test}


def stratified_rows(
    labels: np.ndarray, fractions: Sequence[float], seed: int, classes: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """Split rows at random with the same shares of every class; return ascending rows of each split.

    Raises:
        BadInput: a class has too few rows; names it as in `classes`, else by its number.
    """
    shares: dict[str, float] = dict(zip(SPLITS, check_fractions(fractions), strict=True))
    parts: dict[str, list[np.ndarray]] = {name: [] for name in SPLITS}
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        try:
            split = random_split(len(rows), shares, seed + int(label))
        except BadInput as error:
            name = int(label) if classes is None else classes[int(label)]
            raise BadInput(
                f"fractions={list(fractions)}: class {name} has too few images, {len(rows)}. {error} Add images of it "
                "or leave a part out: its share may be 0."
            ) from error
        for name in SPLITS:
            parts[name].append(rows[split[name].numpy()])
    return {name: np.sort(np.concatenate(rows)) for name, rows in parts.items()}
