"""Sequoia's attention to parents, children and siblings, its trees of features and its outputs, against loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from graphbench.errors import BadInput
from graphbench_point_clouds import PointSequoia
from graphbench_point_clouds.clouds import Clouds, nearest
from graphbench_point_clouds.hierarchy import build_levels, replace_repeats
from graphbench_point_clouds.sequoia import FamilyAttention, TreeBlock, _outputs

SIZES = (14, 1, 9)
DIMS = (4, 8, 16)
HEADS, SIBLINGS = 2, 3


@pytest.fixture
def levels(spec, cut):
    """Trees of two levels of cells over three clouds."""
    batch = cut(spec, SIZES)
    clouds = Clouds.from_batch(batch)
    near = nearest(batch.pos, clouds, batch.pos, clouds, SIBLINGS)
    sizes = torch.tensor(SIZES)[batch.batch]
    return build_levels(batch.pos, clouds, replace_repeats(near, sizes), len(DIMS) - 1, 2)


def features(levels):
    rows = [len(level.pos) for level in levels]
    return {i: torch.randn(n, dim, dtype=torch.float64) for i, (n, dim) in enumerate(zip(rows, DIMS, strict=True))}


def place_of(place, offset):
    """Two maps of one offset, with the statistics that the norm has learned."""
    norm = place.first.norm
    x = (place.first.linear(offset) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    return place.second((norm.weight * x + norm.bias).relu())


def looked(query, keys, values, places, scale):
    """One node's attention, head by head and key by key."""
    width, heads = len(places[0]), []
    for start in range(0, len(query), width):
        part = slice(start, start + width)
        scores = [(query[part] * k[part] + p).sum().item() / scale for k, p in zip(keys, places, strict=True)]
        total = sum(math.exp(score) for score in scores)
        mixed = zip(scores, values, places, strict=True)
        heads.append(sum(math.exp(score) / total * (v[part] + p) for score, v, p in mixed))
    return torch.cat(heads)


def family_of(layer, x, levels, level, row):
    """Attention of one node to its family."""
    name, here = str(level), levels[level]
    query = layer.query[name](x[level][row])
    weights, taken = layer.mix.exp() / layer.mix.exp().sum(), 0
    if level < len(DIMS) - 1:
        above, parent = levels[level + 1], here.parent[row]
        value = layer.value_down[name](layer.value[str(level + 1)](x[level + 1][parent]))
        shown = place_of(layer.parent_place[name], here.pos[row] - above.pos[parent])
        taken = taken + weights[0] * (value + shown.repeat(HEADS))
        near = here.siblings[row].tolist()
        assert len(near) == SIBLINGS
        keys = [layer.key[name](x[level][j]) for j in near]
        values = [layer.value[name](x[level][j]) for j in near]
        places = [place_of(layer.sibling_place[name], here.pos[row] - here.pos[j]) for j in near]
        taken = taken + weights[2] * looked(query, keys, values, places, math.sqrt(DIMS[0]) * SIBLINGS)
    if level > 0:
        below, under = levels[level - 1], str(level - 1)
        children = [j for j in range(len(below.pos)) if below.parent[j] == row]
        keys = [layer.key_up[name](layer.key[under](x[level - 1][j])) for j in children]
        values = [layer.value_up[name](layer.value[under](x[level - 1][j])) for j in children]
        places = [place_of(layer.child_place[name], here.pos[row] - below.pos[j]) for j in children]
        taken = taken + weights[1] * looked(query, keys, values, places, math.sqrt(DIMS[0]) * len(children))
    return taken


@pytest.mark.parametrize("outputs", [range(3), range(1), range(2, 3)], ids=["all", "points", "roots"])
def test_nodes_take_from_parent_children_and_siblings(levels, made, outputs):
    layer = made(lambda: FamilyAttention(3, DIMS, HEADS, SIBLINGS, outputs), scale=0.6)
    x = features(levels)
    found = layer(x, levels)
    assert list(found) == list(outputs)
    for level in outputs:
        for row in range(len(levels[level].pos)):
            expected = family_of(layer, x, levels, level, row)
            torch.testing.assert_close(found[level][row], expected, rtol=1e-9, atol=1e-9)


def mapped(linear, norm, x):
    return norm.weight * (linear(x) - norm.running_mean) / (norm.running_var + norm.eps).sqrt() + norm.bias


@pytest.mark.parametrize("residual", [True, False])
def test_a_block_is_a_map_the_family_and_with_a_residual_another_map(levels, made, residual):
    block = made(lambda: TreeBlock(3, DIMS, HEADS, SIBLINGS, range(3), residual), scale=0.6)
    x = features(levels)
    found = block(x, levels)
    before = {i: mapped(block.before[str(i)].linear, block.before[str(i)].norm, rows).relu() for i, rows in x.items()}
    taken = block.attention(before, levels)
    for i, name in enumerate("012"):
        expected = mapped(nn.Identity(), block.norms[name], taken[i]).relu()
        if residual:
            expected = (x[i] + mapped(block.after[name], block.after_norms[name], expected)).relu()
        torch.testing.assert_close(found[i], expected, rtol=1e-10, atol=1e-10)


def record_first_layer(model, batch):
    """Return the input features of the first layer, its trees, and the output of the model."""
    seen = []
    handle = model.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs))
    result = model(batch)
    handle.remove()
    return (*seen[0], result)


def check_cells(model, x, levels):
    """Each cell starts as a map of the maximum of its own children."""
    for level in range(1, len(levels)):
        rise = model.rise[level - 1]
        for row in range(len(levels[level].pos)):
            held = x[level - 1][levels[level - 1].parent == row].amax(0)
            torch.testing.assert_close(x[level][row], mapped(rise.linear, rise.norm, held).relu(), rtol=1e-9, atol=1e-9)


def test_clouds_start_with_their_neighbours_and_end_with_their_roots(spec, cut, made):
    model = made(lambda: PointSequoia(spec, 4, num_heads=2, divide=2, num_neighbors=5, num_siblings=3))
    batch = cut(spec, SIZES)
    x, levels, result = record_first_layer(model, batch)
    for row in range(SIZES[0]):
        near = (batch.pos[: SIZES[0]] - batch.pos[row]).norm(dim=1).argsort()[:5]
        seen = [model.first(torch.cat([batch.x_dense[j], batch.pos[j] - batch.pos[row]])) for j in near]
        torch.testing.assert_close(x[0][row], torch.stack(seen).amax(0), rtol=1e-9, atol=1e-9)
    check_cells(model, x, levels)
    for layer in model.layers:
        x = layer(x, levels)
    assert list(x) == [3]
    last = model.last.maps[0]
    torch.testing.assert_close(result.graph, mapped(last.linear, last.norm, x[3]).relu(), rtol=1e-9, atol=1e-9)


def test_points_start_with_their_positions_and_end_beside_their_category(parts_spec, cut, made):
    model = made(lambda: PointSequoia(parts_spec, 4, num_heads=2, divide=2, num_siblings=3, use_features=False))
    batch = cut(parts_spec, SIZES)
    x, levels, result = record_first_layer(model, batch)
    torch.testing.assert_close(x[0], mapped(model.first.linear, model.first.norm, batch.pos).relu())
    check_cells(model, x, levels)
    for layer in model.layers:
        x = layer(x, levels)
    assert list(x) == [0]
    category = nn.functional.one_hot(batch.x[:, 0], 16).double()
    expected = model.last(torch.cat([x[0], category], dim=1))
    torch.testing.assert_close(result.node, expected, rtol=1e-9, atol=1e-9)


def test_layers_give_what_the_answer_depends_on():
    """Roots look down one level a layer, points look up; before that, all levels."""
    assert _outputs(3, 4, of_clouds=True) == [range(4), range(1, 4), range(2, 4), range(3, 4)]
    assert _outputs(3, 4, of_clouds=False) == [range(4), range(3), range(2), range(1)]
    assert _outputs(1, 3, of_clouds=False) == [range(2), range(2), range(1)]


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_any_depth_works_with_any_number_of_layers(spec, parts_spec, cut, made, layers, depth):
    for task in (spec, parts_spec):
        model = made(lambda task=task: PointSequoia(task, 4, layers, 2, depth, 2, num_siblings=3))
        assert model(cut(task, SIZES)).node.isfinite().all()


def test_released_weights_start_normal_for_classes(spec, parts_spec):
    torch.manual_seed(0)
    clouds, parts = PointSequoia(spec, 64, 1), PointSequoia(parts_spec, 64, 1)
    query = clouds.layers[0].attention.query["3"].weight.detach()
    assert float(query.std()) == pytest.approx(math.sqrt(2 / query.shape[1]), rel=0.02)
    assert not any(m.bias.any() for m in clouds.modules() if isinstance(m, nn.Linear) and m.bias is not None)
    query = parts.layers[0].attention.query["0"].weight.detach()
    assert query.abs().max() <= 1 / math.sqrt(query.shape[1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_heads": 3, "hidden_dim": 8}, "num_heads must divide hidden_dim, but got num_heads=3"),
        ({"divide": 1}, "divide must be an integer of at least 2, but got 1"),
        ({"depth": 10}, "depth=10 and divide=3 make 3.9 cells along each of 3 axes"),
        ({"num_siblings": 0}, "num_siblings must be an integer of at least 1"),
    ],
)
def test_wrong_options_are_refused(spec, options, said):
    with pytest.raises(BadInput, match=said):
        PointSequoia(spec, **options)
