"""GPS: published parameter counts, and the attention of Performer and BigBird pair by pair."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from torch_geometric.data import Data

import graphbench_baselines
from graphbench import BenchmarkSpec, Features, registry
from graphbench.errors import BadInput
from graphbench.nn import DenseLayout, DotProductHead, ESLapPEEncoder, HeadConfig, LapPEEncoder, SignNetEncoder
from graphbench_baselines import GPS
from graphbench_baselines.gps import BigBirdBranch, PerformerBranch, fixed_uniforms, random_blocks

CONFIGS = Path(__file__).parents[1] / "configs"
ATOM = Features((119, 5, 12, 12, 10, 6, 6, 2, 2))
OLD_ATOM = Features((119, 4, 12, 12, 10, 6, 6, 2, 2))
BOND = Features((5, 6, 2))


def make_spec(name, task, node, edge, num_targets=1, num_classes=None):
    return BenchmarkSpec(name, task, node, edge, "MAE", False, "L1", num_targets=num_targets, num_classes=num_classes)


SPECS = {
    spec.name: spec
    for spec in (
        make_spec("ZINC", "graph-regression", Features((28,)), Features((4,))),
        make_spec("PATTERN", "node-classification", Features((3,)), Features(), num_classes=2),
        make_spec("CLUSTER", "node-classification", Features((7,)), Features(), num_classes=6),
        make_spec("MNISTSuperpixels", "graph-classification", Features(dense=3), Features(dense=1), num_classes=10),
        make_spec("CIFAR10Superpixels", "graph-classification", Features(dense=5), Features(dense=1), num_classes=10),
        make_spec("PeptidesFunc", "graph-multilabel", ATOM, BOND, num_targets=10),
        make_spec("PeptidesStruct", "graph-regression", ATOM, BOND, num_targets=11),
        make_spec("PascalVOCSP", "node-classification", Features(dense=14), Features(dense=2), num_classes=21),
        make_spec("COCOSP", "node-classification", Features(dense=14), Features(dense=2), num_classes=81),
        make_spec("PCQMContact", "link-ranking", ATOM, BOND),
        make_spec("PCQM4Mv2", "graph-regression", ATOM, BOND),
    )
}


def count(module):
    return sum(p.numel() for p in module.parameters())


def instantiate(value):
    """Create the object of every `class_path` in a configuration."""
    if isinstance(value, list):
        return [instantiate(item) for item in value]
    if isinstance(value, dict) and "class_path" in value:
        name = value["class_path"]
        found = getattr(graphbench_baselines, name, None) or registry.load("encodings", name)
        return found(**value.get("init_args", {}))
    return value


def load(path):
    return yaml.safe_load((CONFIGS / path).read_text(encoding="utf-8"))


def parameters_of(config, spec, **changes):
    """Parameters of the architecture and the head that a configuration describes."""
    model = config["model"]
    options = {key: instantiate(value) for key, value in model["architecture"]["init_args"].items()} | changes
    architecture = getattr(graphbench_baselines, model["architecture"]["class_path"])(spec, **options)
    head = HeadConfig(**model["head"])
    if spec.task == "link-ranking":
        return count(architecture) + count(DotProductHead(architecture.dim, head.num_layers, head.l2_normalize))
    return count(architecture) + count(head.mlp(architecture.dim, spec.output_dim))


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("zinc", 423_717),
        ("pattern", 337_201),
        ("cluster", 502_054),
        ("mnist", 115_394),
        ("cifar10", 112_726),
        ("pascalvoc-sp", 510_453),
        ("coco-sp", 516_273),
        ("peptides-func", 504_442),
        ("peptides-struct", 504_539),
        ("pcqm-contact", 512_784),
        ("pcqm4mv2-small", 6_152_285),
        ("pcqm4mv2-medium", 19_415_005),
        ("pcqm4mv2-deep", 13_807_581),
    ],
)
def test_configured_parameter_counts(name, published):
    config = load(f"gps/{name}.yaml")
    assert parameters_of(config, SPECS[config["data"]["class_path"]]) == published
    assert config["expected"]["parameters"] == published


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("peptides-func", 504_362),
        ("peptides-struct", 504_459),
        ("pcqm-contact", 512_704),
        ("pcqm4mv2-small", 6_152_001),
        ("pcqm4mv2-medium", 19_414_641),
        ("pcqm4mv2-deep", 13_807_345),
    ],
)
def test_published_counts_with_the_atom_table_of_their_time(name, published):
    """OGB had four chirality tags, 173 atom rows in all; today it has five."""
    config = load(f"gps/{name}.yaml")
    spec = replace(SPECS[config["data"]["class_path"]], node=OLD_ATOM)
    assert parameters_of(config, spec) == published


@pytest.mark.parametrize(
    ("name", "num_eigenvectors", "published"),
    [("mnist", 8, 116_181), ("cifar10", 8, 113_529), ("pattern", 10, 338_503), ("cluster", 10, 504_406)],
)
def test_es_lappe_parameter_counts(name, num_eigenvectors, published):
    config = load(f"gps/{name}.yaml")
    width = config["model"]["architecture"]["init_args"]["hidden_dim"]
    gate = ESLapPEEncoder(num_eigenvectors, width)
    spec = SPECS[config["data"]["class_path"]]
    assert parameters_of(config, spec, positional_encoders=None, gate_encoder=gate) == published


def test_signnet_parameter_count():
    config = load("gps/zinc.yaml")
    encoder = SignNetEncoder(num_eigenvectors=37, dim=28)
    assert parameters_of(config, SPECS["ZINC"], positional_encoders=[encoder]) == 497_933


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gcn", 103_077),
        ("graphsage", 106_290),
        ("gat", 102_385),
        ("gin", 110_169),
        ("gine", 110_609),
        ("gatedgcn", 105_875),
        ("gps", 423_717),
    ],
)
def test_pieces_have_the_parameters_they_name(name, parameters):
    assert parameters_of(load(f"model/{name}.yaml"), SPECS["ZINC"]) == parameters


def test_required_encodings_are_those_of_the_encoders(spec):
    lap, gate = LapPEEncoder(4, 8), ESLapPEEncoder(4, 8)
    assert GPS(spec, positional_encoders=[lap]).required_encodings() == lap.encodings
    gated = GPS(spec, local_layer="GatedGCN", gate_encoder=gate)
    assert gated.required_encodings() == gate.encodings
    assert GPS(spec).required_encodings() == ()


def test_unknown_attention_is_an_error(spec):
    with pytest.raises(BadInput, match="Transformer, packed, Performer, BigBird, none, but got 'Linformer'"):
        GPS(spec, attention="Linformer")


def test_gps_heads_must_divide_the_width(spec):
    with pytest.raises(BadInput, match="num_heads=5 and width 64"):
        GPS(spec, num_heads=5)


def test_neither_branch_is_an_error(spec):
    with pytest.raises(BadInput, match="a local layer, global attention or both"):
        GPS(spec, local_layer="none", attention="none")


DIM, HEADS = 8, 2


def nodes(sizes):
    return torch.randn(sum(sizes), DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def run(branch, x, sizes):
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return branch(x, Data(num_nodes=len(x)), DenseLayout.from_batch(batch))


WIDTH = 64
SIZES = (5, 1, 9)


@pytest.fixture
def performer():
    torch.manual_seed(0)
    return PerformerBranch(DIM, HEADS).double().eval()


def test_performer_is_the_sum_over_the_nodes_of_the_graph(performer):
    """Node by node and head by head, with the weights f(q_i) . f(k_j) over their sum."""
    x, own, first = nodes(SIZES), performer.performer, 0
    features = own.fast_attn.projection_matrix
    expected = torch.zeros(len(x), HEADS * WIDTH, dtype=torch.float64)
    for size in SIZES:
        part = x[first : first + size]
        q, k, v = (part @ linear.weight.T for linear in (own.q, own.k, own.v))
        for head in range(HEADS):
            columns = slice(head * WIDTH, (head + 1) * WIDTH)
            for i in range(size):
                f_q = (features @ q[i, columns]).relu() + 0.001
                weights = torch.stack([f_q @ ((features @ k[j, columns]).relu() + 0.001) for j in range(size)])
                expected[first + i, columns] = weights / weights.sum() @ v[:, columns]
        first += size
    expected = expected @ own.attn_out.weight.T + own.attn_out.bias
    torch.testing.assert_close(run(performer, x, SIZES), expected, atol=1e-10, rtol=1e-10)


def test_performer_without_padding_is_the_module_of_pyg(performer):
    x = nodes(SIZES)
    torch.testing.assert_close(run(performer, x, [15]), performer.performer(x[None])[0], atol=1e-10, rtol=1e-10)


def test_performer_features_are_orthogonal_and_saved(performer):
    features = performer.performer.fast_attn.projection_matrix
    assert len(features) == int(WIDTH * torch.log(torch.tensor(float(WIDTH))))
    block = features[:WIDTH]
    torch.testing.assert_close(block @ block.T, torch.eye(WIDTH).double(), atol=1e-5, rtol=0)
    assert any("projection_matrix" in name for name in performer.state_dict())


def test_performer_parameters_and_heads(spec):
    assert sum(p.numel() for p in PerformerBranch(DIM, HEADS).parameters()) == 256 * HEADS * DIM + DIM
    with pytest.raises(BadInput, match="num_heads=3 and hidden_dim=64"):
        GPS(spec, attention="Performer", num_heads=3, local_layer="GINE")


BLOCK, RANDOM = 3, 3
#: Nodes of graphs with 1, 1, 2, 3, 4, 8, 11, 12 and 20 blocks; most of the last blocks are not full.
BIGBIRD_SIZES = (1, 3, 4, 8, 11, 24, 31, 36, 59)


@pytest.fixture
def bigbird():
    torch.manual_seed(0)
    return BigBirdBranch(DIM, HEADS).double().eval()


def counts(size, head):
    """Count how often node i of a graph attends to node j, `[size, size]`."""
    blocks = -(-size // BLOCK)
    drawn = random_blocks(torch.tensor([blocks]), blocks, HEADS, RANDOM)[0, head].tolist()
    times = torch.zeros(size, size, dtype=torch.float64)
    for i in range(size):
        own = i // BLOCK
        seen = {0, blocks - 1} | {near for near in (own - 1, own, own + 1) if 0 <= near < blocks}
        more = [block for block in drawn[own] if block >= 0]
        if own in (0, blocks - 1):
            seen, more = set(range(blocks)), []
        for j in range(size):
            times[i, j] = (j // BLOCK in seen) + more.count(j // BLOCK)
    return times


def test_bigbird_agrees_with_its_equations_pair_by_pair(bigbird):
    x, first, width = nodes(BIGBIRD_SIZES), 0, DIM // HEADS
    q, k, v = (x @ weight.T for weight in bigbird.qkv_map.weight.chunk(3))
    mixed = torch.zeros_like(x)
    for size in BIGBIRD_SIZES:
        rows = slice(first, first + size)
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            weights = counts(size, head) * (q[rows, part] @ k[rows, part].T / width**0.5).exp()
            mixed[rows, part] = weights / weights.sum(1, keepdim=True) @ v[rows, part]
        first += size
    y = bigbird.attention_norm(x + bigbird.out_map(mixed))
    network = bigbird.feed_forward
    expected = bigbird.norm(y + network.contract(network.expand(y).relu()))
    torch.testing.assert_close(run(bigbird, x, BIGBIRD_SIZES), expected, atol=1e-10, rtol=1e-10)


def test_bigbird_a_graph_does_not_see_the_others(bigbird):
    x, first = nodes(BIGBIRD_SIZES), 0
    together = run(bigbird, x, BIGBIRD_SIZES)
    for size in BIGBIRD_SIZES:
        rows = slice(first, first + size)
        torch.testing.assert_close(run(bigbird, x[rows], [size]), together[rows], atol=1e-10, rtol=1e-10)
        first += size


def test_bigbird_graphs_without_nodes_change_nothing(bigbird):
    """A cut puts them into a block of their own, of width 0."""
    size, x = BIGBIRD_SIZES[-1], nodes(BIGBIRD_SIZES[-1:])
    layout = DenseLayout.from_rows(torch.ones(size, dtype=torch.int64), torch.tensor([0, 0, size, size]), size)
    torch.testing.assert_close(
        bigbird(x, Data(num_nodes=size), layout), run(bigbird, x, [size]), atol=1e-10, rtol=1e-10
    )


@pytest.mark.parametrize(("total", "spans"), [(5, [(0, 5, 3)]), (10, [(0, 8, 1), (8, 10, 2)]), (40, [(0, 11, 3)])])
def test_random_blocks_come_from_the_spans_of_the_plan(total, spans):
    drawn = random_blocks(torch.tensor([total]), 50, 4, RANDOM)[0]
    for start, stop, wanted in spans:
        inside = (drawn >= start) & (drawn < stop)
        assert (inside.sum(-1) == wanted).all()
        # Each of its blocks is chosen somewhere, and none twice in one row.
        assert set(drawn[inside].tolist()) == set(range(start, stop))
    assert all(len(set(row.tolist())) == RANDOM for row in drawn.flatten(0, 1))
    assert torch.equal(drawn[:, :40], random_blocks(torch.tensor([total]), 40, 4, RANDOM)[0])
    assert not torch.equal(drawn[0], drawn[1])


def test_bigbird_memory_grows_linearly_with_the_nodes(bigbird):
    """The largest tensor of one graph, compared with that for twice as many nodes."""

    def largest(size):
        kept = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            run(bigbird, nodes([size]), [size])
        return max(kept)

    assert largest(1200) <= 2.2 * largest(600)


def test_bigbird_parameters_and_heads(spec):
    assert sum(p.numel() for p in BigBirdBranch(DIM, HEADS).parameters()) == 6 * DIM**2 + 7 * DIM
    with pytest.raises(BadInput, match="num_heads=3 and hidden_dim=64"):
        GPS(spec, attention="BigBird", num_heads=3)


def test_bigbird_dropout_is_that_of_the_layer_and_no_weight_is_dropped(spec):
    layer = GPS(spec, attention="BigBird", dropout=0.2, attention_dropout=0.7).layers[0].attention
    assert (layer.dropout.p, layer.feed_forward.dropout.p, layer.feed_forward.activation_dropout.p) == (0.2, 0.2, 0.0)


@pytest.mark.parametrize(
    "name", ["cifar10", "coco-sp", "mnist", "pascalvoc-sp", "pattern", "peptides-func", "peptides-struct"]
)
def test_bigbird_configurations_have_the_parameters_they_expect(recipe, name):
    found = recipe(f"gps/{name}", "gps/overlays/bigbird")
    assert found.config["expected"]["variants"]["bigbird"]["parameters"] == found.parameters


def test_rows_are_those_of_every_longer_table():
    long = fixed_uniforms(1000, 3, seed=5)
    for rows in (0, 1, 255, 256, 257, 999):
        assert torch.equal(fixed_uniforms(rows, 3, seed=5), long[:rows])


def test_numbers_are_uniform_and_differ_between_seeds_and_streams():
    numbers = fixed_uniforms(10_000, 4, seed=1)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    # The mean of 40,000 uniform numbers has a deviation of 0.29 / 200; their variance is 1 / 12.
    assert abs(numbers.mean() - 0.5) < 5 * 0.29 / 200
    assert abs(numbers.var() - 1 / 12) < 0.003
    assert not torch.equal(numbers[:256], numbers[256:512])
    assert not torch.equal(numbers, fixed_uniforms(10_000, 4, seed=2))


def test_numbers_are_float32_whatever_the_default_dtype():
    torch.set_default_dtype(torch.bfloat16)  # as Lightning's bf16-true does in a step
    try:
        numbers = fixed_uniforms(300, 2, seed=8)
    finally:
        torch.set_default_dtype(torch.float32)
    assert numbers.dtype == torch.float32
    assert numbers[:, 0].unique().numel() == 300


def test_no_generator_of_torch_moves():
    before = torch.get_rng_state()
    fixed_uniforms(700, 2, seed=9)
    assert torch.equal(before, torch.get_rng_state())
