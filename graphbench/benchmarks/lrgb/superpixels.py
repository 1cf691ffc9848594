"""The superpixel graphs of the Long Range Graph Benchmark: PascalVOC-SP and COCO-SP."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.lrgb.archive import address, fetch
from graphbench.benchmarks.lrgb.files import COCO_CATEGORIES, read_superpixels
from graphbench.contracts import BenchmarkSpec, Features, GraphTable

#: Mean, standard deviation, maximum and minimum of each channel (0 to 1), then the centroid in pixels.
_NODE_NAMES = (
    "red_mean",
    "green_mean",
    "blue_mean",
    "red_std",
    "green_std",
    "blue_std",
    "red_max",
    "green_max",
    "blue_max",
    "red_min",
    "green_min",
    "blue_min",
    "row",
    "column",
)
_ADVICE = "Without a network, SatelliteSuperpixels has graphs of the same kind; its scores do not compare."
_EDGE_NAMES = ("boundary_gradient", "boundary_pixels")


class LRGBBenchmark(GraphBenchmark):
    """Base of the five data sets of the Long Range Graph Benchmark, which come as PyG publishes them.

    The archive is fetched from where PyG fetches it; files that lie where PyG's `LRGBDataset(root/LRGB)` puts them
    (`root`/LRGB/NAME/raw) are taken as they are. Nothing read from them runs code.

    Args:
        options: see `GraphBenchmark`.
    """

    #: Name in PyG.
    published_name: ClassVar[str]
    #: What to do without a network, as whole sentences.
    advice: ClassVar[str] = ""

    @abstractmethod
    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""

    def source_key(self) -> dict[str, Any]:
        """Address of the published archive."""
        return {"address": address(self.published_name)}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Download where needed, and convert.

        Raises:
            MissingData: the archive could not be fetched; says what, from where, and where to put it.
            CorruptData: a file is damaged or holds something else.
        """
        files = fetch(self.published_name, Path(self.root, "LRGB"), self.advice)
        return {split: self.read_split(file) for split, file in files.items()}


class PascalVOCSP(LRGBBenchmark):
    """PascalVOC-SP of LRGB: photographs as graphs of up to 500 superpixels; each node belongs to one of 21 classes.

    Nodes carry colours and centroids, edges join superpixels that touch (region boundary graph, SLIC compactness 30).
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.1). How such graphs are made of one's own
    images: `graphbench.benchmarks.superpixels.boundary`.

    Args:
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "pascalvoc-sp"
    advice: ClassVar[str] = _ADVICE
    spec = BenchmarkSpec(
        name="PascalVOCSP",
        task="node-classification",
        node=Features(dense=14, names=_NODE_NAMES),
        edge=Features(dense=2, names=_EDGE_NAMES),
        metric="macro_F1",
        higher_is_better=True,
        loss="weighted_cross_entropy",
        num_classes=21,
        target_names=(
            "background",
            "aeroplane",
            "bicycle",
            "bird",
            "boat",
            "bottle",
            "bus",
            "car",
            "cat",
            "chair",
            "cow",
            "dining table",
            "dog",
            "horse",
            "motorbike",
            "person",
            "potted plant",
            "sheep",
            "sofa",
            "train",
            "tv monitor",
        ),
        split_sizes=(8_498, 1_428, 1_429),
        mean_nodes=479.40,
        max_nodes=500,
        mean_edges=2_710.48,
        disk_mb=527.0,
        licence="that of Pascal VOC 2011, respecting Flickr's terms of use",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)",
        source="pascalvocsp.zip, by the address in PyG",
    )

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""
        return read_superpixels(path, range(21))


class COCOSP(LRGBBenchmark):
    """COCO-SP of LRGB: as `PascalVOCSP`, with 123,286 photographs and 81 classes.

    Labels are renumbered as PyG does: COCO's 80 category numbers have gaps. The files are read in parts, so that the
    graphs never lie in memory together.

    Args:
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "coco-sp"
    advice: ClassVar[str] = _ADVICE
    spec = BenchmarkSpec(
        name="COCOSP",
        task="node-classification",
        node=Features(dense=14, names=_NODE_NAMES),
        edge=Features(dense=2, names=_EDGE_NAMES),
        metric="macro_F1",
        higher_is_better=True,
        loss="weighted_cross_entropy",
        num_classes=81,
        split_sizes=(113_286, 5_000, 5_000),
        mean_nodes=476.88,
        max_nodes=500,
        mean_edges=2_693.67,
        disk_mb=5_690.0,
        licence="CC BY 4.0",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)",
        source="cocosp.zip, by the address in PyG",
    )

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""
        return read_superpixels(path, COCO_CATEGORIES)
