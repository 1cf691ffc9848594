"""Create superpixel graphs as in "Benchmarking Graph Neural Networks" (Dwivedi et al., JMLR 2023, appendix A.2).

SLIC (Achanta et al., TPAMI 2012) cuts an image into superpixels; each becomes a node that is joined to eight of its
nearest ones. Legend: n superpixels of an image, c channels (1 or 3); a chunk has M images with N nodes and E directed
edges in total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np

from graphbench.data.worker_pool import random_state
from graphbench.errors import GraphbenchError, MissingExtra

#: Number of nearest superpixels in the kernel width, and of out-edges of a node.
NEIGHBOURS = 8
_EPSILON = 1e-8  # keeps the width above 0


@dataclass(frozen=True)
class SlicSettings:
    """Settings of SLIC and of the graphs.

    Args:
        num_segments: maximum number of superpixels.
        compactness: weight of distance relative to colour similarity.
        surplus: the first request is for `num_segments + surplus` superpixels; see `segment`.
        use_intensity: edge weights also decrease with the difference of mean intensities; see `neighbour_graph`.
    """

    num_segments: int = 75
    compactness: float = 0.25
    surplus: int = 20
    use_intensity: bool = False


@dataclass(frozen=True)
class ImageChunk:
    """A job: images, and the seeds of their random node orders."""

    images: Sequence[np.ndarray] | np.ndarray
    settings: SlicSettings
    seeds: tuple[int, ...]


@dataclass
class SuperpixelGraphs:
    """Graphs as arrays, one after the other.

    Args:
        num_nodes, num_edges: sizes per graph `[M]`.
        x_dense: mean intensity of each channel (0 to 1), then row and column of the centroid divided by the longer
            side of the image; float16 `[N, c + 2]`.
        edge_index: node numbers within the graph `[E, 2]`.
        edge_dense: weight of each edge, float16 `[E, 1]`.
    """

    num_nodes: np.ndarray
    num_edges: np.ndarray
    x_dense: np.ndarray
    edge_index: np.ndarray
    edge_dense: np.ndarray


def segment(image: np.ndarray, settings: SlicSettings) -> np.ndarray:
    """Label each pixel of an image (values 0 to 1) by its superpixel: int64 `[height, width]`, from 0 without gaps.

    SLIC returns more or fewer superpixels than requested. As published, the first request is `num_segments + surplus`,
    which is decreased by one until there are at most `num_segments`. Requests with the same grid of initial centres
    have the same result and are tried only once: 1.6 calls per image instead of 21 on Fashion-MNIST.
    """
    slic = load_skimage().segmentation.slic
    for request in _requests(image.shape[0], image.shape[1], settings.num_segments + settings.surplus):
        channels = -1 if image.ndim == 3 else None
        labels = slic(image, n_segments=request, compactness=settings.compactness, channel_axis=channels)
        names, numbers = np.unique(labels, return_inverse=True)  # SLIC leaves gaps in its numbers
        if len(names) <= settings.num_segments:
            return numbers.reshape(labels.shape)
    raise GraphbenchError(
        f"SLIC cuts an image of {image.shape[0]} x {image.shape[1]} pixels into at least {len(names)} superpixels, but "
        f"{settings.num_segments} are allowed. Raise compactness (now {settings.compactness}) or num_segments."
    )


def load_skimage() -> ModuleType:
    """Import scikit-image, whose submodules load on access."""
    try:
        import skimage
    except ModuleNotFoundError as error:
        raise MissingExtra("scikit-image", "images", "Cutting images into superpixels") from error
    return skimage


@cache
def _requests(height: int, width: int, most: int) -> tuple[int, ...]:
    """List requests from `most` down, keeping only the first of those with the same grid of centres."""
    regular_grid = load_skimage().util.regular_grid
    requests: list[int] = []
    previous = None
    for request in range(most, 0, -1):
        grid = regular_grid((1, height, width), request)  # SLIC adds a third axis of length 1
        if grid != previous:
            requests.append(request)
        previous = grid
    return tuple(requests)


def node_features(image: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Compute mean intensities and centroid of each superpixel, float64 `[n, c + 2]`, see `SuperpixelGraphs`."""
    flat, height, width = labels.reshape(-1), *labels.shape
    rows, columns = np.divmod(np.arange(flat.size), width)
    values = [*image.reshape(flat.size, -1).T, rows / max(height, width), columns / max(height, width)]
    count = np.bincount(flat)
    return np.stack([np.bincount(flat, weights=value) / count for value in values], axis=1)


def neighbour_graph(features: np.ndarray, use_intensity: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Choose eight out-edges of each superpixel and compute their weights.

    With the distance d_ij of centroids and sigma_i = (sum of the 8 smallest d_ij, j != i) / 8 + 1e-8,

        A_ij = (exp(-(d_ij / sigma_i)^2) + exp(-(d_ij / sigma_j)^2)) / 2.

    With `use_intensity` each exponential is multiplied by the same term for the distance between intensities. Of the 9
    largest A_ij of a row, 8 become edges i -> j with weight A_ij. The original drops an arbitrary one (NumPy's
    partition); here it is the node with the highest number, and numbers are random. Up to 9 superpixels are fully
    connected.

    Returns:
        Node numbers `[edges, 2]`, sorted, and weights `[edges]`.
    """
    closeness = _closeness(features[:, -2:])
    if use_intensity:
        closeness = closeness * _closeness(features[:, :-2])
    closeness = (closeness + closeness.T) / 2
    nodes = len(features)
    if nodes <= NEIGHBOURS + 1:
        edges = np.argwhere(~np.eye(nodes, dtype=bool))
    else:
        edges = np.argwhere(_largest(closeness, NEIGHBOURS + 1))
        edges = edges.reshape(nodes, NEIGHBOURS + 1, 2)[:, :NEIGHBOURS].reshape(-1, 2)
    return edges, closeness[edges[:, 0], edges[:, 1]]


def _closeness(points: np.ndarray) -> np.ndarray:
    """Compute exp(-(d_ij / sigma_i)^2) between the rows of `points [n, width]`: `[n, n]`."""
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))
    if len(points) > NEIGHBOURS:  # the smallest of a row is the distance to itself, 0
        sigma = np.partition(distance, NEIGHBOURS, axis=1)[:, : NEIGHBOURS + 1].sum(1) / NEIGHBOURS
    else:
        sigma = np.ones(len(points))
    return np.exp(-((distance / (sigma[:, None] + _EPSILON)) ** 2))


def _largest(values: np.ndarray, count: int) -> np.ndarray:
    """Mask the `count` largest off-diagonal entries of each row, the first ones on ties."""
    values = values.copy()
    np.fill_diagonal(values, -1.0)
    limit = np.partition(values, -count, axis=1)[:, -count, None]
    above, equal = values > limit, values == limit
    return above | (equal & (equal.cumsum(1) <= count - above.sum(1, keepdims=True)))


def superpixel_graphs(chunk: ImageChunk) -> SuperpixelGraphs:
    """Create graphs from images."""
    rng = random_state(*chunk.seeds)
    features, edges, weights = [], [], []
    for image in chunk.images:
        scaled = image.astype(np.float32) / np.float32(255)
        nodes = node_features(scaled, segment(scaled, chunk.settings))
        nodes = nodes[rng.permutation(len(nodes))]  # SLIC numbers superpixels row by row, and ties are broken by number
        ends, weight = neighbour_graph(nodes, chunk.settings.use_intensity)
        features.append(nodes)
        edges.append(ends)
        weights.append(weight)
    small = chunk.settings.num_segments <= np.iinfo(np.uint8).max + 1
    return SuperpixelGraphs(
        num_nodes=np.array([len(nodes) for nodes in features]),
        num_edges=np.array([len(ends) for ends in edges]),
        x_dense=np.concatenate(features).astype(np.float16),
        edge_index=np.concatenate(edges).astype(np.uint8 if small else np.int32),
        edge_dense=np.concatenate(weights).astype(np.float16)[:, None],
    )
