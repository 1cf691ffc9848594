"""The superpixel graphs of the Long Range Graph Benchmark: PascalVOC-SP and COCO-SP."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.lrgb import specs
from graphbench.benchmarks.lrgb.files import COCO_CATEGORIES, address, fetch, read_superpixels
from graphbench.contracts import GraphTable

_ADVICE = "Without a network, SatelliteSuperpixels has graphs of the same kind; its scores do not compare."

#: Means and standard deviations of columns.
Moments = tuple[tuple[float, ...], tuple[float, ...]]


class LRGBBenchmark(GraphBenchmark):
    """Base of the five data sets of the Long Range Graph Benchmark, as published by PyG.

    The archive is fetched from its address in PyG; existing files of PyG's `LRGBDataset(root/LRGB)` in
    `root`/LRGB/NAME/raw are used unchanged. Reading the files runs no code from them.
    """

    #: Name in PyG.
    published_name: ClassVar[str]
    #: Alternative without a network, as whole sentences.
    advice: ClassVar[str] = ""

    @abstractmethod
    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Read tables from one split's file."""

    def source_key(self) -> dict[str, Any]:
        """Return the address of the published archive."""
        return {"address": address(self.published_name)}

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Fetch and convert the archive."""
        files = fetch(self.published_name, Path(self.root, "LRGB"), self.advice)
        return {split: self.read_split(file) for split, file in files.items()}


class SuperpixelBenchmark(LRGBBenchmark):
    """Base of the two data sets of superpixels.

    Args:
        standardised: subtract a mean from each column of nodes and edges and divide by a standard deviation, those of
            the training graphs in the code of Toenshoff et al. ("Where Did the Gap Go?", TMLR 2024). GNN+ does so. LRGB
            itself, GraphGPS and their successors use centroids of hundreds of pixels and colours from 0 to 1.
        options: see `GraphBenchmark`.
    """

    #: Label of each class in the file.
    categories: ClassVar[Sequence[int]]
    #: Mean and standard deviation of each node column and of each edge column.
    node_moments: ClassVar[Moments]
    edge_moments: ClassVar[Moments]

    def __init__(self, standardised: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.standardised = standardised

    def source_key(self) -> dict[str, Any]:
        """Return the address of the published archive, and `standardised`."""
        key = super().source_key()
        if self.standardised:  # keeps the key of earlier stores
            key["standardised"] = True
        return key

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Read tables from one split's file."""
        columns = {"x_dense": self.node_moments, "edge_dense": self.edge_moments} if self.standardised else {}
        for table in read_superpixels(path, self.categories):
            for name, moments in columns.items():
                mean, deviation = torch.tensor(moments)
                table.columns[name] = (table.columns[name].float() - mean) / deviation
            yield table


class PascalVOCSP(SuperpixelBenchmark):
    """PascalVOC-SP of LRGB: photographs as graphs of up to 500 superpixels; each node has one of 21 classes.

    Nodes have colours and centroids; edges join superpixels that touch (region boundary graph, SLIC compactness 30).
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.1). To create such graphs from other images,
    see `graphbench.benchmarks.superpixels.boundary`.

    Args:
        standardised: see `SuperpixelBenchmark`.
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "pascalvoc-sp"
    categories: ClassVar[Sequence[int]] = range(21)
    node_moments: ClassVar[Moments] = (
        (
            0.45824501, 0.43857411, 0.40561178, 0.067938097, 0.065604292, 0.065742709, 0.65212941, 0.62894762,
            0.60173863, 0.27769071, 0.26425251, 0.23729359, 193.44997, 234.72206,
        ),
        (
            0.25952947, 0.25716761, 0.27130592, 0.054822665, 0.054429270, 0.054474957, 0.26238337, 0.26600540,
            0.27750680, 0.25197381, 0.24986187, 0.26069802, 117.68297, 140.07195,
        ),
    )  # fmt: skip
    edge_moments: ClassVar[Moments] = ((0.07640745, 33.73478), (0.0868775, 20.945076))
    advice: ClassVar[str] = _ADVICE
    spec = specs.PASCAL_VOC_SP


class COCOSP(SuperpixelBenchmark):
    """COCO-SP of LRGB: like `PascalVOCSP`, with 123,286 photographs and 81 classes.

    Labels are renumbered as in PyG, since COCO's 80 category numbers have gaps. The files may be larger than memory and
    are read in parts.

    Args:
        standardised: see `SuperpixelBenchmark`.
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "coco-sp"
    categories: ClassVar[Sequence[int]] = COCO_CATEGORIES
    node_moments: ClassVar[Moments] = (
        (
            0.46977347, 0.44679317, 0.40790915, 0.070808627, 0.068686441, 0.068498217, 0.67777938, 0.65244222,
            0.62096798, 0.27554795, 0.25910738, 0.22901227, 242.61935, 289.85367,
        ),
        (
            0.26218116, 0.25831082, 0.27416739, 0.057440419, 0.056832556, 0.057100497, 0.25929087, 0.26201612,
            0.27675411, 0.25456995, 0.25140920, 0.26182330, 151.52475, 176.30779,
        ),
    )  # fmt: skip
    edge_moments: ClassVar[Moments] = ((0.07848548, 43.68736), (0.08902349, 28.473562))
    advice: ClassVar[str] = _ADVICE
    spec = specs.COCO_SP
