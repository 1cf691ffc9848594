"""ElectricFlow: targets against NumPy and SciPy, batches determined by the seed, and a resumed run."""

import math

import networkx as nx
import numpy as np
import pytest
import pytorch_lightning as pl
import scipy.linalg
import torch
from quick import one_of_each
from torch import nn

from graphbench.benchmarks.block_models.csl import CSL
from graphbench.benchmarks.electric_flow.benchmark import ElectricFlow
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.callbacks.exact_resume import ExactResume
from graphbench.contracts import Architecture, Representation
from graphbench.encodings import RWSE
from graphbench.errors import BadInput
from graphbench.testing import BenchmarkContract, check_batch
from graphbench.training.module import BenchmarkModule

SMALL = {"sizes": (24, 12, 20), "batch_size": 8, "steps_per_epoch": 3}


def benchmark(folder, family="FC", target="electric", **options):
    made = ElectricFlow(family, target, root=str(folder), **{**SMALL, **options})
    made.prepare_data()
    made.setup()
    return made


def single_graphs(batch):
    """Yield `(Laplacian, rows of its nodes)` of every graph, built edge by edge."""
    for graph in range(batch.num_graphs):
        rows = (batch.batch == graph).numpy()
        first, n = int(batch.ptr[graph]), int(rows.sum())
        laplacian = np.zeros((n, n))
        for (tail, head), (resistance,) in zip(batch.edge_index.t().tolist(), batch.edge_dense.tolist(), strict=True):
            if rows[tail]:
                laplacian[tail - first, head - first] -= 1 / resistance
                laplacian[tail - first, tail - first] += 1 / resistance
        yield laplacian, rows


MAPS = {
    "electric": np.linalg.pinv,
    "resistive": lambda laplacian: scipy.linalg.sqrtm(np.linalg.pinv(laplacian, hermitian=True)).real,
    "heat": lambda laplacian: scipy.linalg.expm(-0.5 * laplacian),
}


@pytest.mark.parametrize(
    ("family", "centred"),
    [("FC", True), ("CSL", True), ("ER", True), ("grid", True), ("regular", True), ("CSL", False), ("ER", False)],
)
@pytest.mark.parametrize("target", one_of_each(MAPS))
@pytest.mark.filterwarnings("ignore:Matrix is singular")  # L† is singular and still has a root
def test_maps_are_those_of_numpy_and_scipy(tmp_path, family, target, centred):
    data = benchmark(tmp_path, family, target, num_nodes=12, min_nodes=6, num_demands=4, centred=centred)
    for loader in (data.train_dataloader(), data.test_dataloader()):
        batch = next(iter(loader))
        for laplacian, rows in single_graphs(batch):
            demands = batch.x_dense[rows].numpy()
            assert (np.abs(demands.sum(0)).max() < 1e-4) == centred
            np.testing.assert_allclose(batch.y[rows], MAPS[target](laplacian) @ demands, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("centred", [True, False])
def test_demands_on_the_sphere_are_the_gaussian_ones_at_length_one(tmp_path, centred):
    """They are uniform on the sphere of all vectors, or of those that add up to 0."""
    options = {"num_nodes": 12, "min_nodes": 6, "num_demands": 4, "centred": centred}
    folders = {demands: tmp_path / demands for demands in ("gaussian", "sphere")}
    found = [benchmark(folder, "ER", "heat", demands=name, **options) for name, folder in folders.items()]
    for loaders in ([data.train_dataloader() for data in found], [data.test_dataloader() for data in found]):
        one, other = (next(iter(loader)) for loader in loaders)
        for (laplacian, rows), (_, same) in zip(single_graphs(one), single_graphs(other), strict=True):
            gaussian, sphere = one.x_dense[rows].numpy(), other.x_dense[same].numpy()
            np.testing.assert_allclose(sphere, gaussian / np.linalg.norm(gaussian, axis=0), atol=1e-6)
            assert (np.abs(sphere.sum(0)).max() < 1e-5) == centred
            np.testing.assert_allclose(other.y[same], MAPS["heat"](laplacian) @ sphere, atol=2e-4, rtol=2e-4)


def test_normalised_eigenvectors_are_those_of_numpy_without_the_first(tmp_path):
    options = {"laplacian": "symmetric", "skip_trivial": True, "num_eigenvectors": 4}
    data = benchmark(tmp_path, "ER", "eigenvectors", num_nodes=9, min_nodes=6, **options)
    assert data.spec.num_targets == 4
    batch = next(iter(data.test_dataloader()))
    for laplacian, rows in single_graphs(batch):
        root = np.diag(laplacian) ** -0.5
        expected = np.linalg.eigh(root[:, None] * laplacian * root)[1][:, 1:5]
        found = batch.y[rows].double().numpy()
        np.testing.assert_allclose(np.abs((found * expected).sum(0)), 1, atol=1e-5)


def test_centred_and_other_demands_have_stores_of_their_own():
    keys = [ElectricFlow(**options).source_key() for options in ({}, {"centred": True}, {"centred": False})]
    assert keys[0] == keys[1] != keys[2]
    assert ElectricFlow(demands="sphere").source_key() != ElectricFlow(demands="gaussian").source_key() == keys[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_resistance": 0.0}, "is one graph on which every map is a multiple of the demands"),
        ({"target": "eigenvectors", "log_resistance": 0.0}, "every eigenvalue but the first is the same"),
        ({"target": "eigenvectors", "family": "CSL", "log_resistance": 0.0}, "equal eigenvalues"),
        ({"target": "eigenvectors", "family": "grid", "num_nodes": 9, "log_resistance": 0.0}, "equal eigenvalues"),
        (
            {"target": "eigenvectors", "family": "ER", "edge_probability": 1.0, "log_resistance": 0.0},
            "equal eigenvalues",
        ),
        ({"target": "eigenvectors", "family": "regular", "min_nodes": 4, "log_resistance": 0.0}, "equal eigenvalues"),
        ({"target": "eigenvectors", "num_eigenvectors": 1}, "constant on every graph"),
        ({"target": "eigenvectors", "centred": False}, "centred and demands do not apply"),
        ({"target": "eigenvectors", "demands": "sphere"}, "centred and demands do not apply"),
        ({"demands": "cube"}, "demands must be one of gaussian, sphere"),
        ({"min_nodes": 2}, "On two nodes every map"),
    ],
)
def test_options_whose_loss_is_degenerate_are_refused(options, message):
    with pytest.raises(BadInput, match=message):
        ElectricFlow(**options)


@pytest.mark.parametrize("wanted", [2, 4, None])
def test_grids_with_equal_eigenvalues_are_refused_and_no_others(wanted):
    for size in range(4, 31):
        rows = max(n for n in range(1, size) if size % n == 0 and n * n <= size)
        path, other = (4 * np.sin(np.pi * np.arange(n) / (2 * n)) ** 2 for n in (rows, size // rows))
        values = np.sort(np.add.outer(path, other).ravel())
        options = {"target": "eigenvectors", "family": "grid", "num_nodes": size, "num_eigenvectors": wanted}
        if np.diff(values)[:wanted].min() < 1e-9:
            with pytest.raises(BadInput, match="equal eigenvalues"):
                ElectricFlow(**options, log_resistance=0.0)
        else:
            ElectricFlow(**options, log_resistance=0.0)


@pytest.mark.parametrize(
    ("time", "message"), [(1e-9, "returns its input has loss"), (1e4, "of the norm of some demands")]
)
def test_heat_that_leaves_nothing_to_learn_is_refused_before_training(tmp_path, time, message):
    with pytest.raises(BadInput, match=message):
        benchmark(tmp_path, target="heat", heat_time=time)


def test_options_of_eigenvectors_do_not_go_with_other_targets(tmp_path):
    with pytest.raises(BadInput, match="do not apply to target=heat"):
        ElectricFlow(target="heat", skip_trivial=True)
    with pytest.raises(BadInput, match="Graphs of 5 nodes have no 6 eigenvectors"):
        ElectricFlow(target="eigenvectors", num_nodes=5, num_eigenvectors=5, skip_trivial=True)
    plain, other = (ElectricFlow(target="eigenvectors", num_eigenvectors=3, skip_trivial=skip) for skip in (0, 1))
    assert plain.source_key() != other.source_key()


def test_eigenvectors_are_those_of_numpy(tmp_path):
    data = benchmark(tmp_path, "CSL", "eigenvectors", num_eigenvectors=5)
    batch = next(iter(data.train_dataloader()))
    assert "x_dense" not in batch
    for laplacian, rows in single_graphs(batch):
        vectors = batch.y[rows].numpy()
        np.testing.assert_allclose(np.abs(vectors[:, 0]), 10**-0.5, atol=1e-5)
        values, exact = np.linalg.eigh(laplacian)
        np.testing.assert_allclose(laplacian @ vectors, vectors * values[:5], atol=1e-4)
        np.testing.assert_allclose(np.abs((exact[:, :5] * vectors).sum(0)), 1, atol=1e-4)


def test_resistances_are_log_uniform_and_the_same_both_ways(tmp_path):
    batch = next(iter(benchmark(tmp_path, batch_size=400).train_dataloader()))
    logarithm = batch.edge_dense.log()
    assert logarithm.abs().max() <= 2
    assert logarithm.var().item() == pytest.approx(4 / 3, rel=0.05)
    both = {(u, v): r for (u, v), (r,) in zip(batch.edge_index.t().tolist(), batch.edge_dense.tolist(), strict=True)}
    assert all(both[v, u] == r for (u, v), r in both.items())
    assert len(both) == 400 * 90


class TestElectricFlow(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True, params=[{}, {"family": "ER", "min_nodes": 7}, {"target": "eigenvectors"}])
    def folder(self, tmp_path, request):
        self.options = {"root": str(tmp_path), **SMALL, "sizes": (24, 12, 20), "fresh": False, **request.param}

    def make_benchmark(self):
        return ElectricFlow(**self.options)


def test_fresh_batches_match_the_specification_and_never_repeat(tmp_path):
    data = benchmark(tmp_path, min_nodes=5)
    loader = data.train_dataloader()
    assert len(loader) == 3
    sums, ids = set(), []
    for _ in range(2):
        for batch in loader:
            check_batch(data.spec, batch)
            sums.add(batch.edge_dense.sum().item())
            ids += batch.graph_id.tolist()
    assert ids == list(range(48))
    assert len(sums) == 6
    for epoch in (2, 3):  # as in a loop that creates a loader for every epoch
        ids = [graph for batch in data.train_dataloader() for graph in batch.graph_id.tolist()]
        assert ids == list(range(24 * epoch, 24 * (epoch + 1)))
    data.teardown("fit")
    assert next(iter(data.train_dataloader())).graph_id[0] == 0


def test_seed_number_and_rank_decide_a_batch(tmp_path):
    def batches(seed=0, done=0, rank=0):
        loader = benchmark(tmp_path, seed=seed).train_dataloader()
        loader.rank, loader.done = rank, done
        return [batch.y for batch in loader]

    first = batches()
    torch.randn(7)  # the global generator is not used
    assert all(torch.equal(a, b) for a, b in zip(first, batches(), strict=True))
    assert torch.equal(batches(done=2)[0], first[2])
    for other in (batches(seed=1), batches(done=1), batches(rank=1)):
        assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_batch_serves_for_as_many_steps_as_asked(tmp_path):
    loader = benchmark(tmp_path, fresh_every=2, steps_per_epoch=5).train_dataloader()
    sums = [batch.y.abs().sum().item() for batch in loader]
    assert sums[0] == sums[1] != sums[2] == sums[3] != sums[4]
    assert next(iter(loader)).y.abs().sum().item() == sums[4]  # blocks continue across epochs
    loader.load_state_dict({**loader.state_dict(), "done": 3})
    assert [batch.y.abs().sum().item() for batch in loader][:2] == sums[3:]


def test_position_in_another_run_is_refused(tmp_path):
    state = benchmark(tmp_path).train_dataloader().state_dict()
    with pytest.raises(BadInput, match="batch_size was 8 and is 4"):
        benchmark(tmp_path, batch_size=4).train_dataloader().load_state_dict(state)


def test_fixed_splits_depend_on_the_graph_seed_alone(tmp_path):
    def targets_of(**options):
        return benchmark(tmp_path, **options).tables["test"].columns["y"]

    assert torch.equal(targets_of(), targets_of(seed=5))
    assert not torch.equal(targets_of(), targets_of(graph_seed=1))
    tables = benchmark(tmp_path).tables
    assert not torch.equal(tables["val"].columns["y"], tables["test"].columns["y"][: 12 * 10])
    larger = targets_of(sizes=(24, 12, 40))
    assert torch.equal(larger[:200], targets_of()), "a larger split must begin with the smaller one"


def test_graphs_of_another_benchmark(tmp_path):
    other = CSL(root=str(tmp_path))
    data = benchmark(tmp_path, target="heat", graphs=other, num_demands=2)
    assert (data.spec.max_nodes, data.spec.num_targets) == (41, 2)
    batch = next(iter(data.train_dataloader()))
    check_batch(data.spec, batch)
    for laplacian, rows in single_graphs(batch):
        assert (np.count_nonzero(laplacian, axis=1) == 5).all()
        exact = scipy.linalg.expm(-0.5 * laplacian) @ batch.x_dense[rows].numpy()
        np.testing.assert_allclose(batch.y[rows], exact, atol=1e-4)


def test_a_share_of_another_benchmarks_graphs_has_a_store_of_its_own(tmp_path):
    paths = [nx.path_graph(size) for size in range(3, 43)]
    for number, path in enumerate(paths):
        path.graph["y"] = number / 7
    sizes_of = {}
    for share, seed in ((1.0, 0), (0.1, 0), (0.1, 1)):
        other = Graphs(paths, target="y", root=str(tmp_path), train_fraction=share, seed=seed)
        data = benchmark(tmp_path, graphs=other, num_demands=2)
        other.setup()
        sizes_of[share, seed] = set(data.tables["train"].num_nodes.tolist())
        assert sizes_of[share, seed] <= set(other.tables["train"].num_nodes.tolist())
    assert len(set(map(frozenset, sizes_of.values()))) == 3


def test_fresh_graphs_have_the_encodings_that_a_model_asks_for(tmp_path):
    data = ElectricFlow(root=str(tmp_path), **SMALL)
    data.require([RWSE(num_steps=4)])
    data.prepare_data()
    data.setup()
    batches = list(data.train_dataloader())
    assert batches[1].graph_id.tolist() == list(range(8, 16))
    for batch in batches:
        walk = torch.zeros(80, 80)
        walk[batch.edge_index[0], batch.edge_index[1]] = 1 / 9
        torch.testing.assert_close(batch.rwse[:, 1], (walk @ walk).diagonal(), msg="return probability of two steps")


def test_options_that_do_not_fit_say_so(tmp_path):
    cases = [
        ({"target": "flow"}, "target must be"),
        ({"target": "eigenvectors", "num_demands": 3}, "num_demands does not apply"),
        ({"num_eigenvectors": 3}, "num_eigenvectors does not apply"),
        ({"target": "eigenvectors", "min_nodes": 4, "num_eigenvectors": 5}, "have no 5 eigenvectors"),
        ({"min_nodes": 11}, "3 <= min_nodes <= num_nodes"),
        ({"fresh_every": 0}, "fresh_every"),
        ({"heat_time": 0.0}, "heat_time"),
        ({"heat_time": 1.0}, "heat_time=1.0 does not apply to target=electric"),
        ({"family": "CSL", "edge_probability": 0.3}, "edge_probability=0.3 does not apply to family=CSL"),
        ({"degree": 4}, "degree=4 does not apply to family=FC"),
        ({"graphs": CSL(root=str(tmp_path)), "family": "CSL"}, "family=CSL does not apply to graphs=CSL"),
        ({"graphs": CSL(root=str(tmp_path)), "num_nodes": 20}, "num_nodes=20 does not apply to graphs=CSL"),
        ({"graphs": CSL(root=str(tmp_path)), "min_nodes": 8}, "min_nodes=8 does not apply to graphs=CSL"),
        ({"heat_time": math.inf}, "heat_time must be above 0 and below inf, but got inf"),
        ({"log_resistance": math.nan}, "log_resistance must be at least 0 and below inf, but got nan"),
        ({"log_resistance": math.inf}, "log_resistance must be"),
        ({"edge_probability": math.nan}, "edge_probability must be above 0 and at most 1, but got nan"),
        ({"num_nodes": 20000}, "num_nodes must be at most 2000, but got 20000"),
        ({"train_fraction": 0.5}, "fresh=False"),
        ({"sizes": (1, 2)}, "three numbers"),
    ]
    for options, message in cases:
        with pytest.raises(BadInput, match=message):
            ElectricFlow(root=str(tmp_path), **options)


class Mixer(Architecture):
    """Sums demands over neighbours and has dropout, so the global generator also matters."""

    def __init__(self, spec, dim=10):
        super().__init__(spec, dim)
        self.map = nn.Linear(spec.node.dense, dim)

    def forward(self, batch):
        x = nn.functional.dropout(batch.x_dense, 0.1, self.training)
        heard = torch.zeros_like(x).index_add(0, batch.edge_index[1], x[batch.edge_index[0]])
        return Representation(self.map(x + heard / batch.edge_dense.mean()))


def fit(folder, max_steps, name, checkpoint=None, reload=0):
    pl.seed_everything(3)
    data = ElectricFlow(root=str(folder), **{**SMALL, "steps_per_epoch": 5}, fresh_every=2)
    module = BenchmarkModule(data.spec, Mixer)
    trainer = pl.Trainer(
        max_steps=max_steps,
        callbacks=[ExactResume()],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=reload,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    trainer.save_checkpoint(folder / name)
    return module.state_dict(), folder / name


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    """The run stops in the second epoch, between the two steps of a batch; batches serve steps across epochs."""
    whole, _ = fit(tmp_path, 13, "whole.ckpt")
    part, checkpoint = fit(tmp_path, 7, "part.ckpt")
    resumed, _ = fit(tmp_path, 13, "resumed.ckpt", checkpoint)
    reloaded, _ = fit(tmp_path, 13, "reloaded.ckpt", checkpoint, reload=1)
    weights = [name for name in whole if name.startswith("architecture")]
    assert len(weights) == 2
    for name in weights:
        assert torch.equal(whole[name], resumed[name])
        assert torch.equal(whole[name], reloaded[name])
        assert not torch.equal(whole[name], part[name])
