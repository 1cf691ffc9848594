"""Create superpixel graphs from images with a class for every pixel, like PascalVOC-SP and COCO-SP of LRGB.

"Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.1 and its data scripts): SLIC cuts a photograph
into at most 500 superpixels. Those that touch are joined by an edge with the gradient of the image along the boundary.

    labels = segment(image / 255, PUBLISHED)           # or any other segmentation
    graph = boundary_graph(image, labels, mask)

Legend: n superpixels of an image, E directed edges, c channels (1 or 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import ndimage

from graphbench.benchmarks.superpixels.slic import SlicSettings, load_skimage, segment
from graphbench.errors import BadInput

#: SLIC of PascalVOC-SP and COCO-SP; a published variant has compactness 10.
PUBLISHED = SlicSettings(num_segments=500, compactness=30.0, surplus=50)
_TOUCHING = np.ones((3, 3), dtype=bool)  # a pixel touches its eight neighbours
_MAX_NODES = 1 << 15


@dataclass
class BoundaryGraph:
    """One image as a graph.

    Args:
        x_dense: mean of each channel (0 to 1), then standard deviation, maximum and minimum of each, then row and
            column of the centroid in pixels; float32 `[n, 4 * c + 2]`.
        edge_index: superpixels `[E, 2]`, both directions, sorted; int16.
        edge_dense: mean gradient along the common boundary and the number of its pixels, see `boundary_edges`;
            float32 `[E, 2]`.
        y: class of each superpixel `[n]`, that of the mask at the rounded centroid.
    """

    x_dense: np.ndarray
    edge_index: np.ndarray
    edge_dense: np.ndarray
    y: np.ndarray


def image_graph(image: np.ndarray, mask: np.ndarray, settings: SlicSettings = PUBLISHED) -> BoundaryGraph:
    """Cut an image, uint8 `[height, width, 3]` or `[height, width]`, with SLIC and create its graph.

    `mask` has the class of every pixel `[height, width]`; `settings.use_intensity` is not used.
    """
    scaled = image.astype(np.float32) / np.float32(255)
    return boundary_graph(image, segment(scaled, settings), mask)


def boundary_graph(image: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> BoundaryGraph:
    """Create the graph of a segmented image, with nodes in the order of `labels`.

    Args:
        image: uint8 `[height, width, 3]` or `[height, width]`.
        labels: superpixel of every pixel `[height, width]`, numbered from 0 without gaps.
        mask: class of every pixel `[height, width]`.
    """
    _check(image, labels, mask)
    nodes = region_features(image.astype(np.float32) / np.float32(255), labels)
    edges, features = boundary_edges(labels, gradient(image))
    if len(nodes) == 1:  # as published, a loop without features replaces edges
        edges, features = np.zeros((1, 2), dtype=np.int64), np.zeros((1, 2))
    rows, columns = np.rint(nodes[:, -2:].astype(np.float32)).astype(np.int64).T
    return BoundaryGraph(
        nodes.astype(np.float32), edges.astype(np.int16), features.astype(np.float32), mask[rows, columns]
    )


def _check(image: np.ndarray, labels: np.ndarray, mask: np.ndarray) -> None:
    if image.dtype != np.uint8 or image.ndim not in (2, 3) or image.shape[2:] not in ((), (3,)):
        raise BadInput(
            f"An image must be uint8 [height, width] or [height, width, 3], got {image.dtype} {list(image.shape)}."
        )
    if labels.shape != image.shape[:2] or mask.shape != image.shape[:2]:
        raise BadInput(
            f"labels {list(labels.shape)} and mask {list(mask.shape)} must have the height and width of the image, "
            f"{list(image.shape[:2])}."
        )
    numbers = np.unique(labels)
    if len(numbers) > _MAX_NODES or not np.array_equal(numbers, np.arange(len(numbers))):
        raise BadInput(f"labels must number at most {_MAX_NODES:,} superpixels from 0 without gaps.")


def region_features(image: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute mean, standard deviation, maximum, minimum and centroid of each superpixel: float64 `[n, 4 * c + 2]`."""
    flat = labels.reshape(-1)
    order = np.argsort(flat, kind="stable")
    count = np.bincount(flat)
    starts = np.cumsum(count) - count
    values = image.reshape(flat.size, -1)[order].astype(np.float64)
    mean = np.add.reduceat(values, starts) / count[:, None]
    deviation = values - np.repeat(mean, count, axis=0)  # two passes avoid cancellation
    std = np.sqrt(np.add.reduceat(deviation**2, starts) / count[:, None])
    centre = [np.bincount(flat, weights=place) / count for place in np.divmod(np.arange(flat.size), labels.shape[1])]
    extremes = np.maximum.reduceat(values, starts), np.minimum.reduceat(values, starts)
    return np.concatenate((mean, std, *extremes, np.stack(centre, axis=1)), axis=1)


def gradient(image: np.ndarray) -> np.ndarray:
    """Compute the magnitude of the Sobel gradient of the grey image `[height, width]` with scikit-image."""
    skimage = load_skimage()
    grey = skimage.color.rgb2gray(image) if image.ndim == 3 else skimage.util.img_as_float(image)
    return np.asarray(skimage.filters.sobel(grey))


def boundary_edges(labels: np.ndarray, gradient: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of superpixels that touch, with the gradient and length of their boundary.

    This works like `skimage.graph.rag_boundary` with connectivity 2: for every pixel p of superpixel a, let s be the
    smallest and l the largest number among p and the eight pixels around it. If s < a, p counts for the pair (s, a); if
    l > a, p counts for the pair (a, l). (Where three superpixels meet, the middle one is thus left out.) An edge has
    the mean gradient over its pixels, and their number.

    Returns:
        Both directions `[E, 2]`, int64, sorted, and mean gradient and number of pixels `[E, 2]`, float64.
    """
    smallest = ndimage.minimum_filter(labels, footprint=_TOUCHING, mode="nearest")
    largest = ndimage.maximum_filter(labels, footprint=_TOUCHING, mode="nearest")
    below, above = smallest != labels, largest != labels
    low = np.concatenate((smallest[below], labels[above])).astype(np.int64)
    high = np.concatenate((labels[below], largest[above])).astype(np.int64)
    steep = np.concatenate((gradient[below], gradient[above]))
    size = int(labels.max()) + 1
    keys, pair = np.unique(low * size + high, return_inverse=True)
    count = np.bincount(pair, minlength=len(keys)).astype(np.float64)
    mean = np.bincount(pair, weights=steep, minlength=len(keys)) / count
    ends = np.stack(np.divmod(keys, size), axis=1)
    both = np.concatenate((ends, ends[:, ::-1]))
    order = np.lexsort((both[:, 1], both[:, 0]))
    return both[order], np.tile(np.stack((mean, count), axis=1), (2, 1))[order]
