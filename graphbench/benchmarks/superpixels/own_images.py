"""Superpixels: your own images as superpixel graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from graphbench.benchmarks.superpixels import specs
from graphbench.benchmarks.superpixels.base import SuperpixelBenchmark, leading_validation, stratified_rows
from graphbench.benchmarks.superpixels.images import ImageFiles, ImageFolder, LabelledImages, find_images
from graphbench.benchmarks.superpixels.readers import has_idx_files, idx_checksums, read_idx_folder
from graphbench.benchmarks.superpixels.slic import SlicSettings
from graphbench.contracts import SPLITS, Features
from graphbench.data.package_files import remembered_folder
from graphbench.data.splits import USUAL_SHARES, check_fractions, without_share
from graphbench.errors import BadInput, check_range

_COLOUR = Features(dense=5, names=("red", "green", "blue", "row", "column"))


class Superpixels(SuperpixelBenchmark):
    """Your own images as superpixel graphs: a folder per class, or IDX files such as Fashion-MNIST's.

    Built like `MNISTSuperpixels` (or, with `colour`, `num_segments=150`, `compactness=10` and `surplus=50`, like
    `CIFAR10Superpixels`). The folder has MNIST's four IDX files (the first twelfth of the training images is for
    validation), or `train/CLASS/`, `val/CLASS/` and `test/CLASS/`, or `CLASS/`, split at random with the same shares of
    every class. Classes are numbered in the order of their names. Hidden files, transparency and EXIF's orientation are
    ignored. Images elsewhere in the folder, with more than 8 bits for grey, or several in one file, are refused.

    Args:
        images: the folder.
        num_classes: number of classes.
        colour: read red, green and blue; otherwise images are converted to grey.
        num_segments: maximum number of superpixels.
        compactness: SLIC's weight of distance relative to colour similarity.
        surplus: the first request to SLIC is for `num_segments + surplus` superpixels, then for fewer until at most
            `num_segments` result.
        use_intensity: edge weights also decrease with the difference of mean intensities.
        fractions: shares of train, validation and test if the folder has no split. 0 omits validation or test:
            `[1, 0, 0]` trains a final model on all images.
        split_seed: seed of that split.
        graph_seed: seed of the random order of nodes.
        options: see `GraphBenchmark`.
    """

    spec = specs.SUPERPIXELS

    def __init__(
        self,
        images: str,
        num_classes: int = 10,
        colour: bool = False,
        num_segments: int = 75,
        compactness: float = 0.25,
        surplus: int = 20,
        use_intensity: bool = False,
        fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 0,
        graph_seed: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(SlicSettings(num_segments, compactness, surplus, use_intensity), graph_seed, **options)
        check_range("num_classes", num_classes, at_least=2, whole=True)
        self.folder, self.colour = Path(images), colour
        self.fractions, self.split_seed = check_fractions(fractions), split_seed
        self.empty_splits = without_share(fractions)
        self.spec = replace(
            type(self).spec,
            node=_COLOUR if colour else type(self).spec.node,
            num_classes=num_classes,
            max_nodes=num_segments,
            source=f"superpixels of the images in {self.folder.name}",
        )

    @cached_property
    def _class_folders(self) -> ImageFolder | None:
        """Return the class folders; None if the folder contains IDX files.

        Raises:
            MissingData, BadInput: as in `find_images`, or the number of classes is not `num_classes`.
        """
        if has_idx_files(self.folder):
            if self.colour:
                raise BadInput(f"colour: the IDX files in {self.folder} hold grey images.")
            self._check_unsplit()
            return None
        folders = find_images(self.folder)
        if folders.splits is not None:
            self._check_unsplit()
        if len(folders.classes) != self.spec.num_classes:
            raise BadInput(
                f"{self.folder} holds {len(folders.classes)} classes ({', '.join(folders.classes[:10])}), but "
                f"num_classes is {self.spec.num_classes}."
            )
        return folders

    def _check_unsplit(self) -> None:
        """Refuse options of a random split if the folder has its own split, which they would not change."""
        if self.fractions != USUAL_SHARES or self.split_seed:
            raise BadInput(
                f"fractions={list(self.fractions)}, split_seed={self.split_seed}: {self.folder} has a split already. "
                "Leave both out, or put all images of a class into one folder."
            )

    def _rows(self, folders: ImageFolder) -> dict[str, np.ndarray]:
        if folders.splits is None:
            return stratified_rows(folders.labels, self.fractions, self.split_seed, folders.classes)
        return {name: np.flatnonzero(folders.splits == name) for name in SPLITS}

    def image_key(self) -> dict[str, Any]:
        """Return the checksums of all images, and the options of the split."""
        folders = self._class_folders
        if folders is None:
            return {"idx": idx_checksums(self.folder)}
        split = None if folders.splits is not None else [list(self.fractions), self.split_seed]
        checksum = remembered_folder(self.folder, folders.files, self.store.root, folders.checksum)
        return {"folder": checksum, "colour": self.colour, "split": split}

    def images(self) -> Mapping[str, LabelledImages]:
        """Load the images of each split; images in class folders are opened when they are cut."""
        folders = self._class_folders
        if folders is None:
            parts = read_idx_folder(self.folder)
            return leading_validation(parts["train"], parts["test"], share=12)
        images = LabelledImages(ImageFiles(folders.files, self.colour), folders.labels)
        return {name: images.select(rows) for name, rows in self._rows(folders).items()}

    def class_labels(self) -> tuple[str, ...]:
        """Return the names of the class folders; numbers for IDX files, or if the folder is absent."""
        folders = self._class_folders if self.folder.is_dir() else None
        return super().class_labels() if folders is None else folders.classes

    def ids(self, split: str) -> Sequence[Any]:
        """Return the paths of the images below the folder, in row order; numbers for IDX files."""
        folders = self._class_folders
        if folders is None:
            return super().ids(split)
        names = folders.names()
        return [names[row] for row in self._rows(folders)[split]]
