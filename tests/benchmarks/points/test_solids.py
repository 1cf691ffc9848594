"""Solids, and behaviour common to all point clouds: rotations, scaling, drawn points, and exact resumption."""

from types import SimpleNamespace

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from scipy import stats

from graphbench import build
from graphbench.benchmarks.points.base import in_deviations, sample_points
from graphbench.benchmarks.points.solids import Solids
from graphbench.callbacks.exact_resume import ExactResume
from graphbench.contracts import Architecture, GraphTable, Representation
from graphbench.encodings import Degree
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import BenchmarkContract

SMALL = {"sizes": (40, 36, 36), "num_points": 32}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("solids"))


@pytest.fixture
def opened(store):
    def make(**options):
        benchmark = Solids(**SMALL, store=store, **options)
        benchmark.setup()
        return benchmark

    return make


class TestSolids(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, store):
        self.store = store

    def make_benchmark(self):
        return Solids(**SMALL, store=self.store, rotations="z/SO(3)")


def as_trained(benchmark, batch, training, epoch=0):
    """Return a batch after the hooks that Lightning calls in a training or evaluation step."""
    benchmark.trainer = SimpleNamespace(training=training, current_epoch=epoch)
    try:
        return benchmark.on_after_batch_transfer(benchmark.on_before_batch_transfer(batch, 0), 0)
    finally:
        benchmark.trainer = None


def alignment(before, after, batch):
    """Return the best scale and rotation of each cloud by Kabsch's method: `[G]`, `[G, 3, 3]`."""
    scales, rotations = [], []
    for graph in range(batch.num_graphs):
        rows = batch.batch == graph
        u, s, v = torch.linalg.svd(after[rows].double().T @ before[rows].double())
        rotations.append(u @ torch.diag(torch.tensor([1.0, 1.0, float(torch.det(u @ v).sign())]).double()) @ v)
        scales.append(s.sum() / before[rows].double().square().sum())
    return torch.stack(scales), torch.stack(rotations)


def test_every_family_comes_equally_often(opened):
    counts = np.bincount(opened().tables["val"].columns["y"][:, 0].numpy(), minlength=36)
    assert (counts == 1).all()


@pytest.mark.parametrize(
    ("rotations", "training", "kind"),
    [
        ("none", True, "none"),
        ("none", False, "none"),
        ("z/z", True, "z"),
        ("z/z", False, "z"),
        ("z/SO(3)", True, "z"),
        ("z/SO(3)", False, "all"),
        ("SO(3)/SO(3)", True, "all"),
        ("SO(3)/SO(3)", False, "all"),
    ],
)
def test_regimes_turn_clouds_and_normals_as_they_say(opened, rotations, training, kind):
    benchmark = opened(rotations=rotations)
    split = "train" if training else "test"
    plain, batch = (benchmark.tables[split].batch(range(36)) for _ in range(2))
    seen = as_trained(benchmark, batch, training)
    assert seen.pos.dtype == seen.x_dense.dtype == torch.float32
    scales, turns = alignment(plain.pos, seen.pos, plain)
    low, high = (0.6, 1.4) if training else (1.0, 1.0)
    assert scales.min() > low - 1e-3
    assert scales.max() < high + 1e-3
    assert (scales.std() > 0.1) == training
    upright = turns[:, 2, 2]
    assert (torch.allclose(turns, torch.eye(3).double().expand(36, 3, 3), atol=1e-3)) == (kind == "none")
    assert torch.allclose(upright, torch.ones(36).double(), atol=1e-3) == (kind != "all")
    turned = torch.einsum("nij,nj->ni", turns[plain.batch].float(), plain.x_dense)
    assert torch.allclose(turned, seen.x_dense, atol=2e-3)
    assert "rotation" not in seen


@pytest.mark.slow
def test_evaluation_rotations_are_uniform_and_fixed_by_their_seed(store):
    benchmark = Solids(sizes=(36, 36, 1_200), num_points=1, store=store, rotations="z/SO(3)")
    benchmark.setup()
    turns = benchmark.tables["test"].columns["rotation"]
    angle = torch.arccos(((turns.diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).clamp(-1, 1)).numpy()
    assert stats.kstest(angle, lambda a: (a - np.sin(a)) / np.pi).pvalue > 0.001
    again = Solids(sizes=(36, 36, 1_200), num_points=1, store=store, rotations="z/SO(3)", seed=5)
    other = Solids(sizes=(36, 36, 1_200), num_points=1, store=store, rotations="z/SO(3)", rotation_seed=1)
    again.setup()
    other.setup()
    assert torch.equal(again.tables["test"].columns["rotation"], turns)
    assert not torch.equal(other.tables["test"].columns["rotation"], turns)
    assert not torch.equal(benchmark.tables["val"].columns["rotation"], turns[:36])


def test_a_cloud_is_evaluated_alike_whatever_shares_its_batch(opened):
    benchmark = opened(rotations="SO(3)/SO(3)")
    alone = as_trained(benchmark, benchmark.tables["val"].batch([7]), training=False)
    among = as_trained(benchmark, benchmark.tables["val"].batch([3, 7, 1]), training=False)
    assert torch.equal(alone.pos, among.pos[32:64])


def test_a_part_of_the_training_split_keeps_its_rotations(opened):
    whole, part = opened(rotations="z/SO(3)"), opened(rotations="z/SO(3)", train_fraction=0.5)
    ids = part.tables["train"].graph_ids
    assert torch.equal(part.tables["train"].columns["rotation"], whole.tables["train"].columns["rotation"][ids])


def test_training_differs_by_epoch_and_seed_and_repeats_otherwise(opened):
    def seen(epoch, seed):
        benchmark = opened(rotations="SO(3)/SO(3)", seed=seed)
        return as_trained(benchmark, benchmark.tables["train"].batch([4, 9]), training=True, epoch=epoch).pos

    first = seen(0, 1)
    assert torch.equal(first, seen(0, 1))
    assert not torch.allclose(first, seen(1, 1))
    assert not torch.allclose(first, seen(0, 2))


class Recorder(Architecture):
    """Records its input."""

    def __init__(self, spec, seen):
        super().__init__(spec, 3)
        self.layer, self.seen = torch.nn.Linear(3, 3), seen

    def forward(self, batch):
        self.seen.append((self.training, batch.pos.clone()))
        return Representation(self.layer(batch.pos))


def fitted(store, folder, *callbacks, resume=None, **trainer):
    """Return what a model sees in a run of eight steps, two epochs."""
    seen = []
    module, data = build(
        lambda spec: Recorder(spec, seen), Solids(**SMALL, store=store, rotations="SO(3)/SO(3)", batch_size=10, seed=0)
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    fit = pl.Trainer(max_steps=8, default_root_dir=folder, callbacks=[ExactResume(), *callbacks], **quiet, **trainer)
    fit.fit(module, data, ckpt_path=resume, weights_only=True)
    return seen


def test_a_run_sees_new_clouds_in_training_and_the_same_in_validation(store, tmp_path):
    seen = fitted(store, tmp_path, num_sanity_val_steps=0)
    training = [pos for trains, pos in seen if trains]
    validation = [pos for trains, pos in seen if not trains]
    assert len(training) == 8
    assert not any(torch.equal(a, b) for a in training[:4] for b in training[4:])
    half = len(validation) // 2
    assert half >= 1
    assert all(torch.equal(a, b) for a, b in zip(validation[:half], validation[half:], strict=True))
    again = [pos for trains, pos in fitted(store, tmp_path, num_sanity_val_steps=2) if trains]
    assert all(torch.equal(a, b) for a, b in zip(training, again, strict=True))


def test_a_resumed_run_sees_what_an_uninterrupted_one_does(store, tmp_path):
    """The run resumes from within the first epoch, from its end, and from within the second."""
    keep = ModelCheckpoint(tmp_path, filename="{step}", every_n_train_steps=1, save_top_k=-1)
    whole = [pos for trains, pos in fitted(store, tmp_path, keep) if trains]
    for stop in (2, 4, 5):
        resumed = fitted(store, tmp_path / "resumed", resume=str(tmp_path / f"step={stop}.ckpt"))
        rest = [pos for trains, pos in resumed if trains]
        assert len(rest) == 8 - stop
        assert all(torch.equal(a, b) for a, b in zip(whole[stop:], rest, strict=True))


def clouds(sizes):
    graphs = [{"num_nodes": n, "edge_index": torch.zeros(2, 0).long(), "pos": torch.randn(n, 3)} for n in sizes]
    return GraphTable.from_graphs(graphs).batch(range(len(sizes)))


def rows_of(batch, drawn):
    """Return the row of each drawn point in the original batch."""
    return (drawn[:, None] == batch[None]).all(-1).double().argmax(1)


def test_training_draws_points_without_replacement_and_repeats_small_clouds():
    batch = clouds((10, 4, 6))
    before, owner = batch.pos.clone(), batch.batch.clone()
    sample_points(batch, ["pos"], 6, torch.Generator().manual_seed(0))
    rows = rows_of(before, batch.pos).reshape(3, 6)
    assert torch.equal(owner[rows.reshape(-1)], batch.batch)
    assert [len(row.unique()) for row in rows] == [6, 4, 6]
    assert not torch.equal(rows[0], torch.arange(6))
    assert batch.ptr.tolist() == [0, 6, 12, 18]
    assert (batch.num_nodes, batch.max_nodes, len(batch.pos)) == (18, 6, 18)


@pytest.mark.parametrize("sizes", [(10, 4, 6), (10, 10), (4, 4), (4, 3), (6, 6), (7,)])
def test_evaluation_takes_the_first_points_and_repeats_none(sizes):
    batch = clouds(sizes)
    expected = [part[:6] for part in batch.pos.split(sizes)]
    sample_points(batch, ["pos"], 6, None)
    kept = [len(part) for part in expected]
    assert torch.equal(batch.pos, torch.cat(expected))
    assert batch.ptr.diff().tolist() == kept
    assert batch.batch.tolist() == [cloud for cloud, size in enumerate(kept) for _ in range(size)]
    assert (batch.num_nodes, batch.max_nodes) == (sum(kept), max(kept))


def test_every_axis_can_have_a_scale_of_its_own_and_normals_stay_normal(opened):
    benchmark = opened(scale_axes=True, scaling=(0.5, 2.0))
    before = benchmark.tables["train"].batch(range(40))
    after = as_trained(benchmark, benchmark.tables["train"].batch(range(40)), training=True)
    scales = torch.stack([
        (after.pos[rows] * before.pos[rows]).sum(0) / before.pos[rows].square().sum(0)
        for rows in (before.batch == cloud for cloud in range(40))
    ])  # fmt: skip
    assert torch.allclose(after.pos, before.pos * scales[before.batch], atol=1e-5)
    assert stats.kstest(scales.flatten().numpy(), stats.uniform(0.5, 1.5).cdf).pvalue > 0.001
    assert scales.std(1).min() > 1e-3
    # two tangents, scaled with the surface, stay orthogonal to the normal
    generator = torch.Generator().manual_seed(0)
    for _ in range(2):
        along = torch.linalg.cross(before.x_dense, torch.randn(before.x_dense.shape, generator=generator))
        assert (along * scales[before.batch] * after.x_dense).sum(1).abs().max() < 1e-4
    assert torch.allclose(after.x_dense.norm(dim=1), before.x_dense.norm(dim=1), atol=1e-4)


def test_training_turns_by_a_limited_angle_before_it_scales(opened):
    benchmark = opened(max_turn=18.0, scale_axes=True, scaling=(0.8, 1.25))
    batches = [benchmark.tables["train"].batch(range(40)) for _ in range(2)]
    before, after = batches[0], as_trained(benchmark, batches[1], training=True)
    angles = []
    for cloud in range(40):
        rows = before.batch == cloud
        # after = S R before: each row of the fitted matrix is a row of a rotation times its own scale
        matrix = torch.linalg.lstsq(before.pos[rows].double(), after.pos[rows].double()).solution.mT
        scale = matrix.norm(dim=1)
        rotation = matrix / scale[:, None]
        assert torch.allclose(rotation @ rotation.mT, torch.eye(3).double(), atol=1e-4)
        assert scale.min() > 0.8 - 1e-4
        assert scale.max() < 1.25 + 1e-4
        assert rotation[2, 2] == pytest.approx(1, abs=1e-5)
        angles.append(torch.atan2(rotation[1, 0], rotation[0, 0]).rad2deg().item())
    assert stats.kstest(angles, stats.uniform(-18, 36).cdf).pvalue > 0.001
    plain = benchmark.tables["val"].batch([5])
    assert torch.equal(as_trained(benchmark, benchmark.tables["val"].batch([5]), training=False).pos, plain.pos)


@pytest.mark.parametrize("training", [True, False])
def test_clouds_can_have_a_deviation_of_one(opened, training):
    benchmark = opened(unit="deviation", scaling=(1.0, 1.0))
    plain = benchmark.tables["train"].batch([3, 8])
    seen = as_trained(benchmark, benchmark.tables["train"].batch([3, 8]), training)
    for cloud in range(2):
        rows = plain.batch == cloud
        values = plain.pos[rows].double().numpy()
        expected = (values - values.mean()) / values.std()  # one mean and one deviation for all three coordinates
        assert seen.pos[rows].numpy() == pytest.approx(expected, abs=2e-3)
    alone = as_trained(benchmark, benchmark.tables["train"].batch([8]), training)
    assert torch.equal(alone.pos, seen.pos[plain.batch == 1])
    assert (in_deviations(torch.zeros(2, 3), torch.tensor([0, 0]), 1) == 0).all()


def test_every_point_is_drawn_equally_often():
    batch, generator = clouds((8,) * 400), torch.Generator().manual_seed(0)
    before = torch.arange(8).repeat(400)[:, None].expand(-1, 3).double()
    batch.pos = before.clone()
    sample_points(batch, ["pos"], 2, generator)
    counts = torch.bincount(batch.pos[:, 0].long(), minlength=8)
    assert stats.chisquare(counts.numpy()).pvalue > 0.001


def test_encodings_of_clouds_that_are_drawn_anew_are_refused(opened):
    benchmark = opened()
    benchmark.num_points = 16
    benchmark.require([Degree()])
    with pytest.raises(BadInput, match=r"encodings .*Degree"):
        benchmark.setup()


@pytest.mark.parametrize(
    "options",
    [
        {"rotations": "y/z"},
        {"num_points": 0},
        {"scaling": (1.4, 0.6)},
        {"scaling": (1.0, np.inf)},
        {"stretch": 0.5},
        {"stretch": np.inf},
        {"point_noise": np.inf},
        {"sizes": (1, 2)},
        {"max_turn": -1},
        {"max_turn": 181},
        {"max_turn": np.nan},
        {"unit": "metre"},
        {"scale_axes": "no"},
        {"max_shift": -0.1},
        {"max_shift": np.inf},
        {"jitter": np.nan},
        {"point_dropout": 1.0},
        {"tilt": 61},
    ],
)
def test_options_out_of_range_are_refused(options):
    with pytest.raises(BadInput):
        Solids(**options)


def test_specification_follows_the_number_of_points():
    assert Solids(num_points=64).spec.max_nodes == 64
    assert Solids().spec == Solids.spec


@pytest.mark.parametrize("scaling", [None, 1.0, ("a", "b"), (1, 2, 3), (2.0, 1.0), (1.0, float("inf"))])
def test_scaling_is_two_numbers(scaling):
    with pytest.raises(BadInput, match=r"scaling must be a finite range above 0, such as \(0.6, 1.4\)"):
        Solids(scaling=scaling)
