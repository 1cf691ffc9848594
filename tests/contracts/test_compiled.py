"""Every registered architecture trains compiled as it does uncompiled (`--model.compile true`).

A minute for each, so slow. And batches of different sizes share a program, but for the models in `IN_PARTS`, both by
`aot_eager` and by the default backend, which makes C++ of it. Models of clouds in `OF_ONE_SIZE` share one where the
clouds of a batch have one size: benchmarks of clouds sample as many points of each.
"""

import inspect

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from graphbench import registry
from graphbench.errors import GraphbenchError
from graphbench.nn.dense import DenseLayout
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench_sequences.bigbird import BigBirdAttention

SMALL = {"hidden_dim": 16, "num_heads": 4, "num_layers": 2, "num_towers": 4, "out_dim": 16, "mean_log_degree": 1.0}
#: Batches of several sizes: none fills the vectors of a processor, and shapes are dynamic from the second on.
SIZES = ([5, 3, 1], [4, 7, 2, 6])
#: Options of single models. The default backend computes products with up to 32 numbers in another program, such as
#: those of SFT's read-out of width 16 on nine nodes.
OTHER_OPTIONS = {"SFT": {"hidden_dim": 32}}
#: Of clouds: one point has no frame, so that learned ones turn by rounding, and gradients with them: by 0.05 in float32
#: where points move by a millionth, compiled or not.
CLOUD_SIZES = ([5, 4, 6], [4, 7, 5, 6])
SPECS = [(kind, task) for kind in ("categorical", "none") for task in ("graph-regression", "map-recovery")]
SPECS += [("sequence", "graph-classification"), ("coordinates", "graph-classification")]

_CLOUDS = "clouds of different sizes are computed in a block for each size, so that their number is one of the program"
#: Models of clouds that are one program where the clouds of a batch have one size.
OF_ONE_SIZE = (
    *("CNDGCNN", "CNPointNet", "DGCNN", "PointCNN", "PointConv", "PointNet", "PointNetPlusPlus", "PointTransformer"),
    *("SetTransformer", "VNDGCNN", "VNPointNet"),
)
#: Models of several programs, or with graph breaks, and why.
IN_PARTS = {
    **dict.fromkeys(OF_ONE_SIZE, _CLOUDS),
    "PointSequoia": "how many cells hold points depends on numbers, and cells enter batch norms",
}
#: Models with Fourier transforms, whose complex views `aot_eager` refuses; the default backend takes them.
COMPLEX = {"MEGA", "S4D", "SequenceSequoia"}


def small_model(name):
    """A small model on the first of `SPECS` that it takes; None where it takes none or has nothing to train."""
    architecture = registry.load("architectures", name)
    options = {key: value for key, value in SMALL.items() if key in inspect.signature(architecture).parameters}
    options |= OTHER_OPTIONS.get(name, {})
    for kind, task in SPECS:
        spec = tiny_spec(task, kind)
        try:
            model = architecture(spec, **options)
        except GraphbenchError:
            continue
        return (model.eval(), spec) if list(model.parameters()) else None
    return None


def batches_of_all_sizes(model, spec, number, one_size=False):
    """Batches that differ in numbers and sizes of graphs; with `one_size` those of a batch have the same."""
    for seed in range(number):
        count = 3 + seed % 4
        sizes = [6 + 7 * seed % 11] * count if one_size else [3 + (7 * seed + 5 * graph) % 11 for graph in range(count)]
        table = encode(tiny_table(spec, seed=seed, sizes=sizes), model.required_encodings())
        yield model.precomputed(table.batch(range(len(sizes))), torch.Generator().manual_seed(seed))


def compiled_programs(name, batches, backend="aot_eager", one_size=False):
    """Programs and graph breaks of a compiled model in training, over batches of different sizes."""
    if (made := small_model(name)) is None:
        pytest.skip(f"{name} has no weights")
    model, spec = made
    torch._dynamo.reset()
    counters.clear()
    model.train().compile(dynamic=True, backend="eager" if name in COMPLEX else backend)
    for batch in batches_of_all_sizes(model, spec, batches, one_size):
        gradients(model, batch)
    return counted()


def counted():
    """Programs and graph breaks since the counters were cleared."""
    return counters["stats"]["unique_graphs"], counters["graph_break"].total()


def gradients(model, batch):
    """Of the mean square of everything that the model makes, by parameter."""
    torch.manual_seed(0)
    model.zero_grad()
    made = model(batch)
    sum(part.square().mean() for part in (made.node, made.edge, made.graph) if part is not None).backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry.architectures()))
@inductor.patch(fallback_random=True)
def test_compiled_gradients_are_the_uncompiled_ones(name):
    torch.manual_seed(0)
    if (made := small_model(name)) is None:
        pytest.skip(f"{name} has no weights")
    model, spec = made
    chosen = CLOUD_SIZES if spec.coordinates == 3 else SIZES
    tables = [encode(tiny_table(spec, sizes=sizes), model.required_encodings()) for sizes in chosen]
    batches = [table.batch(range(len(table))) for table in tables]
    expected = [gradients(model, batch) for batch in batches]
    torch._dynamo.reset()
    counters.clear()
    model.compile(dynamic=True)
    for batch, plain in zip(batches, expected, strict=True):
        found = gradients(model, batch)
        assert found.keys() >= plain.keys()
        idle = found.keys() - plain.keys()  # where a program breaks into parts, a compiled one gives them zeros
        assert all(not bool(found[key].any()) for key in idle), idle
        for key, gradient in plain.items():
            atol = 1e-4 * max(1.0, float(gradient.abs().max()))
            torch.testing.assert_close(
                found[key], gradient, atol=atol, rtol=1e-3, msg=lambda told, key=key: f"{key}: {told}"
            )
    if name not in IN_PARTS:
        for batch in batches_of_all_sizes(model, spec, 18):
            gradients(model, batch)
        programs, breaks = counted()
        assert not breaks
        assert programs <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(registry.architectures().keys() - IN_PARTS.keys()))
def test_batches_of_any_size_share_a_program(name):
    """Twenty batches of different sizes, forward and backward pass, take at most two programs without a graph break."""
    programs, breaks = compiled_programs(name, batches=20)
    assert not breaks
    assert programs <= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_ONE_SIZE)
def test_clouds_of_one_size_share_a_program(name):
    """As above, where all clouds of a batch have one size, another one in each batch."""
    programs, breaks = compiled_programs(name, batches=20, one_size=True)
    assert not breaks
    assert programs <= 2


@pytest.mark.slow
@pytest.mark.parametrize("attention", ["packed", "Performer", "BigBird"])
def test_gps_with_other_attention_shares_a_program(attention):
    """As above; BigBird pads some of the batches to whole blocks, and others have nothing to pad."""
    spec = tiny_spec()
    model = registry.load("architectures", "GPS")(spec, 16, num_layers=2, num_heads=4, attention=attention)
    torch._dynamo.reset()
    counters.clear()
    model.train().compile(dynamic=True, backend="aot_eager")
    for batch in batches_of_all_sizes(model, spec, 20):
        gradients(model, batch)
    programs, breaks = counted()
    assert not breaks
    assert programs <= (2 if attention == "BigBird" else 1)


@pytest.mark.slow
def test_blocks_of_bigbird_are_drawn_outside_of_programs():
    """The table of a document's length is read on the host: a break before it, not one for each row that it draws."""
    attention = BigBirdAttention(8, num_heads=2, block_size=3, num_random=1)
    torch._dynamo.reset()
    counters.clear()
    attention.compile(dynamic=True, backend="eager")
    for sizes in ([5, 4], [6, 12, 3], [7, 9], [20, 1], [24, 24, 3]):
        layout = DenseLayout.from_batch(torch.repeat_interleave(torch.tensor(sizes)))
        attention(torch.randn(sum(sizes), 8), layout)
    programs, breaks = counted()
    assert programs <= 9
    assert breaks <= 3


def test_torch_compile_of_a_model_as_an_object_is_one_program():
    """As users of PyTorch compile a model, beside `--model.compile true`, which compiles its forward pass alone."""
    made = small_model("GCN")
    assert made is not None
    model, spec = made
    table = encode(tiny_table(spec, sizes=[5, 3, 4]), model.required_encodings())
    batch = table.batch(range(3))
    torch._dynamo.reset()
    compiled = torch.compile(model, dynamic=True, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch).node, model(batch).node)


def test_gcn_is_one_program_for_batches_of_any_size():
    assert compiled_programs("GCN", batches=5) == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(IN_PARTS))
def test_models_in_parts_are_no_program_yet(name):
    """One that has become a program of batches of any size must not stand in the list any more.

    Where a program breaks is decided before a backend sees it.
    """
    found = (compiled_programs(name, batches, backend="eager") for batches in (4, 20))
    assert any(breaks or programs > 2 for programs, breaks in found)
