"""Superpixel graphs against the published procedure, written out in plain loops."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest
from sklearn.datasets import load_digits

from graphbench.benchmarks.superpixels.slic import (
    ImageChunk,
    SlicSettings,
    neighbour_graph,
    node_features,
    segment,
    superpixel_graphs,
)
from graphbench.errors import GraphbenchError, MissingExtra

if find_spec("skimage") is None:
    pytest.skip("the optional package scikit-image is not installed", allow_module_level=True)

import skimage
from skimage.segmentation import slic

GREY, COLOUR = SlicSettings(75, 0.25, 20), SlicSettings(150, 10.0, 50)


def published_labels(image, settings):
    """Return labels of the published search: one superpixel less is requested each time until the count fits."""
    request = settings.num_segments + settings.surplus
    count = settings.num_segments + 1
    while count > settings.num_segments:
        axis = -1 if image.ndim == 3 else None
        labels = slic(image, n_segments=request, compactness=settings.compactness, channel_axis=axis)
        count = len(np.unique(labels))
        request -= 1
    return labels


def closeness_by_loops(points):
    """Return A_ij before it is made symmetric: the width is the sum of the 8 nearest distances over 8, plus 1e-8."""
    n = len(points)
    distance = [[float(np.linalg.norm(points[i] - points[j])) for j in range(n)] for i in range(n)]
    width = [sum(sorted(row)[:9]) / 8 + 1e-8 for row in distance]
    return np.array([[np.exp(-((distance[i][j] / width[i]) ** 2)) for j in range(n)] for i in range(n)])


def same_cut(labels, others):
    """Return whether two labellings are equal up to renaming."""
    pairs = set(zip(labels.reshape(-1).tolist(), others.reshape(-1).tolist(), strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@pytest.mark.parametrize(
    ("kind", "settings"), [("grey", GREY), ("coloured", COLOUR), ("grey", SlicSettings(40, 1.0, 60))]
)
def test_cut_is_that_of_the_published_search(kind, settings, request):
    for image in request.getfixturevalue(kind):
        scaled = image.astype(np.float32) / 255
        labels = segment(scaled, settings)
        assert same_cut(labels, published_labels(scaled, settings))
        assert set(np.unique(labels)) == set(range(labels.max() + 1))
        assert labels.max() < settings.num_segments


def test_cut_of_real_digits_is_that_of_the_published_search():
    settings = SlicSettings(20, 0.25, 20)
    for image in load_digits().images[:20].astype(np.float32) / 16:
        assert same_cut(segment(image, settings), published_labels(image, settings))


@pytest.mark.parametrize("kind", ["grey", "coloured"])
def test_features_are_means_over_masks(kind, request):
    image = request.getfixturevalue(kind)[0].astype(np.float64) / 255
    labels = segment(image.astype(np.float32), GREY)
    features = node_features(image, labels)
    side = len(image)
    for number in range(labels.max() + 1):
        mask = labels == number
        rows, columns = np.nonzero(mask)
        expected = [*np.atleast_1d(image[mask].mean(axis=0)), rows.mean() / side, columns.mean() / side]
        np.testing.assert_allclose(features[number], expected, atol=1e-12)


def test_centroids_are_divided_by_the_longer_side():
    features = node_features(np.zeros((10, 40)), np.zeros((10, 40), dtype=int))
    np.testing.assert_allclose(features, [[0, 4.5 / 40, 19.5 / 40]])


@pytest.mark.parametrize("use_intensity", [False, True])
@pytest.mark.parametrize("nodes", [10, 11, 40, 75])
def test_edges_are_eight_of_the_nine_closest(nodes, use_intensity):
    features = np.random.RandomState(nodes).random_sample((nodes, 3))
    closeness = closeness_by_loops(features[:, 1:])
    if use_intensity:
        closeness = closeness * closeness_by_loops(features[:, :1])
    closeness = (closeness + closeness.T) / 2
    edges, weights = neighbour_graph(features, use_intensity)
    assert len(edges) == 8 * nodes
    for node in range(nodes):
        mine = edges[:, 0] == node
        nine = sorted((j for j in range(nodes) if j != node), key=lambda j: -closeness[node, j])[:9]
        assert edges[mine, 1].tolist() == sorted(nine)[:8]
        np.testing.assert_allclose(weights[mine], closeness[node, edges[mine, 1]], rtol=1e-9)


@pytest.mark.parametrize("nodes", [1, 2, 5, 8, 9])
def test_few_superpixels_are_joined_all_to_all(nodes):
    edges, weights = neighbour_graph(np.random.RandomState(0).random_sample((nodes, 3)))
    assert sorted(map(tuple, edges.tolist())) == [(i, j) for i in range(nodes) for j in range(nodes) if i != j]
    assert np.isfinite(weights).all()


def test_equal_distances_take_the_first_nodes():
    """All points coincide: each node has edges to the first eight others."""
    edges, _ = neighbour_graph(np.zeros((36, 3)))
    assert edges.tolist() == [[i, j] for i in range(36) for j in [k for k in range(36) if k != i][:8]]


def test_far_cluster_never_joins_nodes_to_themselves():
    """Nine points are close together, and one is so far away that its closeness vanishes."""
    points = np.concatenate([np.random.RandomState(0).random_sample((9, 2)) * 1e-4, [[1.0, 1.0]]])
    edges, _ = neighbour_graph(np.concatenate([np.zeros((10, 1)), points], axis=1))
    assert len(edges) == 80
    assert (edges[:, 0] != edges[:, 1]).all()


def test_chunk_holds_the_graphs_of_its_images_in_random_node_order(grey):
    graphs = superpixel_graphs(ImageChunk(grey, GREY, (1, 2)))
    again = superpixel_graphs(ImageChunk(grey, GREY, (1, 2)))
    other = superpixel_graphs(ImageChunk(grey, GREY, (2, 2)))
    assert graphs.x_dense.dtype == graphs.edge_dense.dtype == np.float16
    assert (graphs.x_dense == again.x_dense).all()
    assert not (graphs.x_dense == other.x_dense).all()
    start = 0
    for number, image in enumerate(grey):
        scaled = image.astype(np.float32) / np.float32(255)
        plain = node_features(scaled, segment(scaled, GREY)).astype(np.float16)
        found = graphs.x_dense[start : start + graphs.num_nodes[number]]
        assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, plain.tolist()))
        start += graphs.num_nodes[number]
    assert start == len(graphs.x_dense)
    assert (graphs.num_edges == 8 * graphs.num_nodes).all()


@pytest.mark.parametrize(
    "image", [np.zeros((28, 28), np.uint8), np.full((1, 1), 7, np.uint8), np.zeros((3, 50, 3), np.uint8)]
)
def test_odd_images_give_finite_graphs(image):
    graphs = superpixel_graphs(ImageChunk([image], GREY, (0,)))
    assert 1 <= graphs.num_nodes[0] <= 75
    assert np.isfinite(graphs.x_dense).all()
    assert np.isfinite(graphs.edge_dense).all()


def test_many_segments_get_wider_node_numbers(coloured):
    graphs = superpixel_graphs(ImageChunk(coloured[:1], SlicSettings(400, 10.0, 50), (0,)))
    assert graphs.edge_index.dtype == np.int32
    assert graphs.edge_index.max() == graphs.num_nodes[0] - 1


def test_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "skimage", None)
    with pytest.raises(MissingExtra, match=r"scikit-image.*graphbench-lightning\[images\]"):
        segment(np.zeros((4, 4), np.float32), GREY)


def test_hopeless_limits_are_told(monkeypatch):
    monkeypatch.setattr(skimage.segmentation, "slic", lambda image, **options: np.arange(16).reshape(4, 4))
    with pytest.raises(GraphbenchError, match=r"4 x 4 .*\b16\b.*\b3\b"):
        segment(np.zeros((4, 4), np.float32), SlicSettings(3))
