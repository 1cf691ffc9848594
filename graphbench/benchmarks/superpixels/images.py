"""Images with class numbers, in memory or opened file by file, and the layout of a user's folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, overload

import numpy as np

from graphbench.benchmarks.inputs import files_with, input_files
from graphbench.contracts import SPLITS
from graphbench.data.files.foreign import foreign
from graphbench.data.progress import track
from graphbench.errors import BadInput, CorruptData, MissingData

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm", ".pgm"}

#: Pillow's modes with 32 bits per pixel; those with 16 bits begin with "I;".
_DEEP = {"I", "F"}
#: Format of a phone or stereo camera, whose further pictures are previews or other views of the same scene.
_STEREO = "MPO"

#: Images from Python, for messages.
IMAGES = "images of Pillow, or arrays of uint8 pixels [height, width] or [height, width, 3]"


@dataclass(frozen=True)
class LabelledImages:
    """Images of one split.

    Args:
        images: uint8 `[height, width]` (grey) or `[height, width, 3]` each; may be an array `[count, ...]`.
        labels: class numbers `[count]`.
    """

    images: Sequence[np.ndarray] | np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, rows: np.ndarray) -> LabelledImages:
        """Return the chosen images, in the given order."""
        if isinstance(self.images, np.ndarray):
            return LabelledImages(self.images[rows], self.labels[rows])
        if isinstance(self.images, ImageFiles):
            return LabelledImages(self.images.select(rows), self.labels[rows])
        return LabelledImages([self.images[row] for row in rows], self.labels[rows])


class ImageFiles(Sequence[np.ndarray]):
    """Images in files, opened on access, so that a folder may be larger than memory; with `colour`, three channels."""

    def __init__(self, files: Sequence[Path], colour: bool) -> None:
        self.files, self.colour = list(files), colour

    def __len__(self) -> int:
        return len(self.files)

    @overload
    def __getitem__(self, place: int) -> np.ndarray: ...

    @overload
    def __getitem__(self, place: slice) -> ImageFiles: ...

    def __getitem__(self, place: int | slice) -> np.ndarray | ImageFiles:
        if isinstance(place, slice):
            return ImageFiles(self.files[place], self.colour)
        return read_image(self.files[place], self.colour)

    def select(self, rows: np.ndarray) -> ImageFiles:
        """Return the chosen files, in the given order."""
        return ImageFiles([self.files[row] for row in rows], self.colour)


def read_image(file: Path, colour: bool) -> np.ndarray:
    """Read an image as uint8 `[height, width]`, or `[height, width, 3]` with `colour`.

    Pixels are read as stored: transparency and an orientation noted in EXIF are ignored.

    Raises:
        BadInput: the file has several pictures, or more than 8 bits for grey.
        CorruptData: the file cannot be read.
    """
    from PIL import Image  # slow to import and seldom needed

    with foreign(file, is_not="cannot be read as an image"), Image.open(file) as image:
        frames = getattr(image, "n_frames", 1)
        if frames > 1 and image.format != _STEREO:
            raise BadInput(f"{file} holds {frames} pictures, one after the other: save each as a file.")
        return _as_bytes(image, colour, str(file))


def _as_bytes(image: Image.Image, colour: bool, name: str) -> np.ndarray:
    if image.mode in _DEEP or image.mode.startswith("I;"):
        raise BadInput(
            f"{name} has more than 8 bits for a pixel (Pillow's mode {image.mode}), so values above 255 would be "
            "cut off: scale it to 0 to 255 and save it with 8 bits."
        )
    return np.asarray(image.convert("RGB" if colour else "L"))


def as_pixels(image: object, colour: bool) -> np.ndarray:
    """Return the pixels of a file, a Pillow image or an array, like `read_image`.

    Raises:
        BadInput: they cannot be read, have more than 8 bits, or look like a row of a colour image.

    Examples:
        >>> as_pixels(np.array([[[255, 0, 0], [0, 0, 255]]], dtype=np.uint8), colour=False)
        array([[76, 29]], dtype=uint8)
    """
    from PIL import Image  # slow to import and seldom needed

    if isinstance(image, Path):
        try:
            return read_image(image, colour)
        except (BadInput, CorruptData) as error:
            raise BadInput(str(error).replace(f"{image} ", "the file ", 1)) from error
    if isinstance(image, np.ndarray):
        shape = list(image.shape)
        if image.dtype != np.uint8 or not image.size:
            raise BadInput(f"pixels must be numbers of type uint8, but the array has the type {image.dtype}, {shape}")
        if image.ndim == 2 and image.shape[1] in (3, 4):
            raise BadInput(f"an array {shape} is a row of a colour image; put a single image into a list")
        if image.ndim != 2 and (image.ndim != 3 or image.shape[2] not in (3, 4)):
            raise BadInput(f"an image is [height, width], [height, width, 3] or [height, width, 4], not {shape}")
        image = Image.fromarray(image)
    assert isinstance(image, Image.Image)
    return _as_bytes(image, colour, "the image")


def check_images(objects: Sequence[object], name: str) -> None:
    """Refuse anything that is neither a Pillow image nor an array."""
    from PIL import Image

    for number, item in enumerate(objects):
        if not isinstance(item, (Image.Image, np.ndarray)):
            raise BadInput(f"{name}: input {number} is of type {type(item).__name__}; expected {IMAGES}.")


def image_files(source: Path, column: str | None, name: str) -> tuple[list[Path], Path]:
    """List the images in a folder and its subfolders, or one image; also return the folder of their relative names."""
    if column is not None:
        raise BadInput(f"{name} reads a folder of images, which has no column {column!r}.")
    return input_files(source, sorted(IMAGE_SUFFIXES), "images")


@dataclass(frozen=True)
class ImageFolder:
    """Paths and classes of the images in a folder.

    Args:
        root: the folder.
        classes: names of the class folders, sorted; their order numbers the classes.
        files: every image, sorted by class and name.
        labels: class of each image `[count]`.
        splits: split of each image, from the folders; None if there are no folders train, val and test.
    """

    root: Path
    classes: tuple[str, ...]
    files: tuple[Path, ...]
    labels: np.ndarray
    splits: np.ndarray | None

    def names(self) -> list[str]:
        """Return the paths of the images below the folder."""
        return [file.relative_to(self.root).as_posix() for file in self.files]

    def checksum(self) -> str:
        """Compute the SHA-256 over names and contents of all images."""
        total = hashlib.sha256()
        files = track(self.files, f"Checksum of {self.root.name}", unit="images")
        for name, file in zip(self.names(), files, strict=True):
            total.update(f"{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
        return total.hexdigest()


def find_images(root: Path) -> ImageFolder:
    """List a folder: `CLASS/IMAGE`, or `train/CLASS/IMAGE`, `val/CLASS/IMAGE` and `test/CLASS/IMAGE`.

    Raises:
        MissingData: there is no such folder.
        BadInput: an image is elsewhere in it, or a class has no images.
    """
    if not root.is_dir():
        raise MissingData(f"{root}: there is no such folder. It should hold a folder of images for each class.")
    has_splits = all((root / split).is_dir() for split in SPLITS)
    parents = {split: root / split for split in SPLITS} if has_splits else {"": root}
    folders = [path for parent in parents.values() for path in parent.iterdir() if path.is_dir()]
    classes = sorted({folder.name for folder in folders if not folder.name.startswith(".")})
    if not classes:
        raise BadInput(f"{root} holds no class folders: images belong into {root / 'CLASS'}, a folder for each class.")
    images: dict[Path, list[Path]] = {parent / name: [] for parent in parents.values() for name in classes}
    listed = files_with(root, IMAGE_SUFFIXES)
    if strays := [file for file in listed if file.parent not in images]:
        layout = " or ".join(f"{split}/CLASS" for split in SPLITS) if has_splits else "CLASS"
        splits_too = "" if has_splits else f" A split needs all of the folders {', '.join(SPLITS)}, in lower case."
        raise BadInput(
            f"{root}: images outside of the class folders: {len(strays):,}, such as {strays[0].relative_to(root)}. Put "
            f"them into {layout}, not deeper and not next to it, or somewhere else.{splits_too}"
        )
    for file in listed:
        images[file.parent].append(file)
    if empty := next((folder for folder, files in images.items() if not files), None):
        raise BadInput(f"{empty} holds no images ({', '.join(sorted(IMAGE_SUFFIXES))}).")
    files = tuple(file for folder in images for file in images[folder])
    numbers = {name: number for number, name in enumerate(classes)}
    labels = np.array([numbers[file.parent.name] for file in files])
    splits = np.array([file.parent.parent.name for file in files]) if has_splits else None
    return ImageFolder(root, tuple(classes), files, labels, splits)
