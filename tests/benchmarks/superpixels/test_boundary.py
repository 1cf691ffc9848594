"""Superpixel graphs over boundaries, against a direct computation pixel by pixel and against scikit-image."""

from collections import defaultdict

import numpy as np
import pytest
from skimage import color, filters, graph

from graphbench.benchmarks.superpixels.boundary import (
    PUBLISHED,
    boundary_edges,
    boundary_graph,
    gradient,
    image_graph,
    region_features,
)
from graphbench.benchmarks.superpixels.slic import SlicSettings, segment
from graphbench.errors import BadInput


def picture(seed, height=30, width=41, regions=12):
    """Return a noisy image, a partition into random cells, and a mask."""
    rng = np.random.default_rng(seed)
    centres = rng.random((regions, 2)) * (height, width)
    places = np.stack(np.meshgrid(np.arange(height), np.arange(width), indexing="ij"), -1)
    nearest = ((places[:, :, None] - centres) ** 2).sum(-1).argmin(-1)
    labels = np.unique(nearest, return_inverse=True)[1].reshape(height, width)
    image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    return image, labels, rng.integers(0, 5, (height, width), dtype=np.uint8)


def edges_by_pixel(labels, steep):
    """Return pair -> gradients of its pixels, by the definition, pixel by pixel."""
    found = defaultdict(list)
    for row, column in np.ndindex(labels.shape):
        around = labels[max(row - 1, 0) : row + 2, max(column - 1, 0) : column + 2]
        own = labels[row, column]
        if around.min() < own:
            found[int(around.min()), int(own)].append(steep[row, column])
        if around.max() > own:
            found[int(own), int(around.max())].append(steep[row, column])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_edges_are_those_of_the_definition(seed):
    image, labels, _ = picture(seed)
    steep = gradient(image)
    edges, features = boundary_edges(labels, steep)
    expected = edges_by_pixel(labels, steep)
    both = {pair: values for (a, b), values in expected.items() for pair in ((a, b), (b, a))}
    assert edges.tolist() == sorted(map(list, both))
    for (a, b), (mean, count) in zip(edges.tolist(), features, strict=True):
        assert count == len(both[a, b])
        assert mean == pytest.approx(np.mean(both[a, b]), rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_edges_are_those_of_scikit_image(seed):
    image, labels, _ = picture(seed, regions=20)
    steep = filters.sobel(color.rgb2gray(image))
    edges, features = boundary_edges(labels, gradient(image))
    other = graph.rag_boundary(labels, steep).to_directed()
    assert sorted(map(list, other.edges)) == edges.tolist()
    expected = [(other.edges[a, b]["weight"], other.edges[a, b]["count"]) for a, b in edges.tolist()]
    np.testing.assert_allclose(features, expected, rtol=1e-12)


def test_nodes_are_those_of_each_superpixel_alone():
    image, labels, _ = picture(0)
    scaled = image / 255
    found = region_features(scaled, labels)
    for number, row in enumerate(found):
        inside = scaled[labels == number]
        centre = np.argwhere(labels == number).mean(0)
        expected = np.concatenate((inside.mean(0), inside.std(0), inside.max(0), inside.min(0), centre))
        np.testing.assert_allclose(row, expected, rtol=1e-12, atol=1e-12)


def test_class_is_the_mask_at_the_rounded_centroid():
    image, labels, mask = picture(1)
    found = boundary_graph(image, labels, mask)
    assert found.x_dense.shape == (labels.max() + 1, 14)
    for number, label in enumerate(found.y):
        row, column = np.rint(np.argwhere(labels == number).mean(0).astype(np.float32)).astype(int)
        assert label == mask[row, column]


def test_grey_images_have_six_features():
    image, labels, mask = picture(2)
    grey = np.ascontiguousarray(image[:, :, 0])
    found, colour = boundary_graph(grey, labels, mask), boundary_graph(np.stack([grey] * 3, -1), labels, mask)
    np.testing.assert_array_equal(found.x_dense, colour.x_dense[:, [0, 3, 6, 9, 12, 13]])
    np.testing.assert_allclose(found.edge_dense, colour.edge_dense, rtol=1e-5)


def test_one_superpixel_has_a_loop_of_zeros():
    image = np.full((4, 6, 3), 128, dtype=np.uint8)
    found = boundary_graph(image, np.zeros((4, 6), dtype=np.int64), np.full((4, 6), 3))
    assert found.edge_index.tolist() == [[0, 0]]
    assert found.edge_dense.tolist() == [[0, 0]]
    assert found.y.tolist() == [3]
    assert found.x_dense[0, -2:].tolist() == [1.5, 2.5]


def test_counting_down_one_by_one_gives_the_same_cut():
    """The published search requests one superpixel less each time; the fast search must stop at the same cut."""
    from skimage.segmentation import slic

    rng = np.random.default_rng(0)
    image = np.kron(rng.random((6, 8, 3)), np.ones((10, 10, 1))).astype(np.float32)
    settings = SlicSettings(num_segments=40, compactness=30.0, surplus=20)
    for request in range(60, 0, -1):
        expected = slic(image, n_segments=request, compactness=30.0, channel_axis=-1, start_label=0)
        if len(np.unique(expected)) <= 40:
            break
    assert request < 60
    np.testing.assert_array_equal(segment(image, settings), expected)


def test_published_settings_cut_into_at_most_500():
    image, _, mask = picture(3, height=120, width=160)
    found = image_graph(image, mask)
    assert 0 < len(found.x_dense) <= PUBLISHED.num_segments == 500
    assert int(found.edge_index.max()) == len(found.x_dense) - 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, s, m: (i / 255, s, m), "must be uint8"),
        (lambda i, s, m: (i[:, :, :2], s, m), "must be uint8"),
        (lambda i, s, m: (i, s[1:], m), "height and width"),
        (lambda i, s, m: (i, s, m[:, 1:]), "height and width"),
        (lambda i, s, m: (i, s + 1, m), "without gaps"),
        (lambda i, s, m: (i, s * 2, m), "without gaps"),
    ],
)
def test_wrong_input_is_told(change, message):
    with pytest.raises(BadInput, match=message):
        boundary_graph(*change(*picture(0)))
