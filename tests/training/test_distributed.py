"""Two processes take the same steps as one, with every task, and train every registered architecture."""

from __future__ import annotations

import dataclasses
import math

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy
from sharded import ShardedOnCpu
from tiny_fits import TinyData, made
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from two_processes import on_two

from graphbench import registry
from graphbench.contracts import Architecture, Representation
from graphbench.nn import NodeEncoder
from graphbench.nn.heads import HeadConfig
from graphbench.testing import encode, tiny_spec, tiny_table
from graphbench.training.distributed import reshape_scalars, smallest_graph, unused_parameters
from graphbench.training.module import BenchmarkModule, SplitLoss, SplitScores
from graphbench.training.tasks import TASKS, build_task

SIZES = (3, 9, 5, 4, 12, 6)


class Mixing(Architecture):
    """Adds the mean of its graph to each node; other graphs of the batch have no effect."""

    def __init__(self, spec, hidden_dim=8):
        super().__init__(spec, hidden_dim)
        self.encoder = NodeEncoder(spec, hidden_dim)
        self.mix = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch):
        x = self.encoder(batch)
        mean = x.new_zeros(batch.num_graphs, x.shape[1]).index_add(0, batch.batch, x) / batch.ptr.diff()[:, None]
        return Representation(self.mix(x + mean[batch.batch].tanh()))


def with_gaps(table):
    """Hide about half of the labels, and all of those in the graphs of the second process."""
    y = table.columns["y"]
    y[torch.rand(y.shape, generator=torch.Generator().manual_seed(1)) < 0.3] = torch.nan
    y[4:] = torch.nan
    return table


def with_weights(table):
    """Give every row of `y` a weight; some are 0."""
    rows = len(table.columns["y"])
    weights = torch.arange(rows, dtype=torch.float32).remainder(4) / 2
    return table.with_columns({"weight": weights}, {"weight": table.layout["y"]})


#: Module options of the cases that set any.
OPTIONS = {
    "weighted classes": {"class_weights": [1.0, 5.0, 0.5]},
    "balanced nodes": {"class_weights": "balanced"},
}
CASES = {
    "regression": (tiny_spec("graph-regression"), with_gaps),
    "squares": (dataclasses.replace(tiny_spec("graph-regression"), loss="MSE"), None),
    "graphs": (tiny_spec("graph-classification"), None),
    "multi-label": (tiny_spec("graph-multilabel"), with_gaps),
    "nodes": (tiny_spec("node-classification"), None),
    "two classes": (dataclasses.replace(tiny_spec("node-classification"), num_classes=2), None),
    "unweighted nodes": (dataclasses.replace(tiny_spec("node-classification"), loss="cross_entropy"), None),
    "weighted regression": (tiny_spec("graph-regression"), lambda table: with_weights(with_gaps(table))),
    "weighted labels": (tiny_spec("graph-multilabel"), with_weights),
    "weighted rarity": (tiny_spec("node-classification"), with_weights),
    "weighted classes": (tiny_spec("graph-classification"), with_weights),
    "balanced nodes": (dataclasses.replace(tiny_spec("node-classification"), loss="focal"), with_weights),
    "contacts": (tiny_spec("link-ranking"), None),
    "maps": (tiny_spec("map-recovery"), None),
    "eigenvectors": (dataclasses.replace(tiny_spec("map-recovery"), loss="eigenvector", num_targets=2), None),
}


def case(name):
    """Return a module in float64 and the graphs that it is trained on."""
    spec, change = CASES[name]
    torch.manual_seed(3)
    module = BenchmarkModule(spec, Mixing, **OPTIONS.get(name, {})).double()
    table = (change or (lambda same: same))(tiny_table(spec, sizes=SIZES, seed=2))
    if name in OPTIONS:
        module.task.set_class_weights(table.columns["y"], table.columns["weight"])
    return module, table


def cut(table, rows):
    return table.batch(rows).apply(lambda value: value.double() if value.is_floating_point() else value)


class Step(nn.Module):
    """Wraps the training step as a forward pass for DDP and keeps the logged values."""

    def __init__(self, module):
        super().__init__()
        self.module, self.logged = module, {}
        module.log = lambda name, value, **_: self.logged.update({name: float(value)})

    def forward(self, batch):
        return self.module.training_step(batch, 0)


def gradients(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def one_step(module, batch, wrap=lambda step: step):
    """Return the gradients of a training step, its logged loss and the loss of an epoch of this step."""
    step = Step(module)
    wrapped = wrap(step)  # keep a reference: DDP's hooks vanish with it
    wrapped(batch).backward()
    return gradients(module), step.logged["train/loss_step"], float(module.train_scores.finish()["train/loss"])


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """Run each case on two processes that share the graphs unevenly."""

    def work(rank):
        distributed.init_process_group("gloo", rank=rank, world_size=2)
        results = {}
        for name in CASES:
            module, table = case(name)
            results[name] = one_step(module, cut(table, ([0, 1, 2, 3], [4, 5])[rank]), DistributedDataParallel)
        distributed.destroy_process_group()
        return results

    return on_two(tmp_path_factory.mktemp("two"), work)


@pytest.mark.parametrize("name", CASES)
def test_gradients_and_losses_of_two_processes_are_those_of_one(two_processes, name):
    module, table = case(name)
    expected, loss, epoch = one_step(module, cut(table, range(6)))
    assert len(expected) > 4
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-4
    assert math.isfinite(loss)
    for results in two_processes:
        found, found_loss, found_epoch = results[name]
        assert found.keys() == expected.keys()
        for parameter, value in expected.items():
            torch.testing.assert_close(found[parameter], value, rtol=1e-10, atol=1e-12)
        assert found_loss == pytest.approx(loss, rel=1e-12)
        assert found_epoch == pytest.approx(epoch, rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_loss_of_a_split_does_not_depend_on_its_batches(name):
    module, table = case(name)
    module.eval()
    whole = cut(table, range(6))
    with torch.no_grad():
        expected = float(module.task.loss(module(whole), whole))
        for batches in ([range(6)], [[0], [1], [2], [3], [4], [5]], [[5, 0], [2, 4, 3], [1]]):
            for rows in batches:
                module.evaluate(cut(table, rows), "val")
            assert float(module.scores.of("val").finish()["val/loss"]) == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_a_long_split_is_summed_exactly_and_that_of_an_empty_one_is_no_number():
    """Plain float32 sums of this many equal batches are wrong in the fifth digit."""
    loss = SplitLoss(case("squares")[0].task)
    assert math.isnan(loss.compute())
    loss.reset()
    plain = torch.zeros(())
    for _ in range(20_000):
        loss.update(torch.tensor([0.1]), torch.tensor([1]))
        plain += 0.1
    assert float(plain) / 20_000 != pytest.approx(0.1, rel=1e-6)
    assert float(loss.compute()) == pytest.approx(0.1, rel=1e-7)


# -- parameters without a gradient -----------------------------------------------------------------------------------


def of_ddp(fit):
    """Return the weights and whether DDP looked for unused parameters."""
    after = {key: value.detach() for key, value in fit.lightning_module.named_parameters()}
    return {"looked": fit.strategy._ddp_kwargs["find_unused_parameters"], "weights": after}


def trained(tmp_path, name, options, found=of_ddp, **trainer):
    """Train two steps on two processes; return the losses and what `found` reads from the trainer."""
    spec, make = made(name, options)
    # Build the tables before the fork: one process is enough to encode them
    torch.manual_seed(0)
    module = BenchmarkModule(spec, make)
    data = TinyData(spec, root=str(tmp_path / "data"), batch_size=2, seed=0)
    data.require(module.required_encodings())
    data.prepare_data()

    def work(rank):
        losses = []
        module.log_dict = lambda values, **_: losses.extend(float(v) for k, v in values.items() if k.endswith("loss"))
        before = {key: value.detach().clone() for key, value in module.named_parameters()}
        own = {"strategy": "ddp"} | trainer
        fit = pl.Trainer(
            max_epochs=1, accelerator="cpu", devices=2, logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
            use_distributed_sampler=False, default_root_dir=tmp_path, **own,
        )  # fmt: skip
        fit.fit(module, data)
        result = {"steps": fit.global_step, "losses": losses} | found(fit)
        moved = any(not torch.equal(before[key], value) for key, value in result["weights"].items())
        return result | {"moved": moved}

    return on_two(tmp_path / "two", work)


def assert_trains(results):
    first, second = results
    for result in results:
        assert result["steps"] == 2
        assert len(result["losses"]) == 2
        assert all(math.isfinite(loss) for loss in result["losses"])
        assert result["moved"]
    assert first["losses"] == second["losses"]
    for key, value in first["weights"].items():
        assert torch.equal(value, second["weights"][key]), key


SMALL = {"hidden_dim": 8, "num_layers": 2}


@pytest.mark.parametrize(("name", "idle"), [("GIN", False), ("GatedGCN", True)])
def test_two_processes_train_models_with_and_without_idle_parameters(tmp_path, name, idle):
    results = trained(tmp_path, name, SMALL)
    assert_trains(results)
    assert [result["looked"] for result in results] == [idle, idle]


def test_every_option_of_ddp_in_a_configuration_leaves_the_search_for_idle_parameters(tmp_path):
    """jsonargparse adds DDP's defaults to the options of `trainer/ddp`; bucket views do not change a bit."""
    plain = trained(tmp_path / "plain", "GatedGCN", SMALL)
    strategy = DDPStrategy(gradient_as_bucket_view=True, find_unused_parameters=False, broadcast_buffers=None)
    results = trained(tmp_path / "buckets", "GatedGCN", SMALL, strategy=strategy)
    assert_trains(results)
    assert [result["looked"] for result in results] == [True, True]
    assert results[0]["losses"] == plain[0]["losses"]
    for key, value in results[0]["weights"].items():
        assert torch.equal(value, plain[0]["weights"][key]), key


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, {}) for name in sorted(registry.architectures())), ("GPS", {"local_layer": "GatedGCN"})],
)
def test_two_processes_train_every_architecture(tmp_path, name, options):
    assert_trains(trained(tmp_path, name, options))


def sharded(tmp_path, name, options):
    """Return losses, all weights and the numbers of parameters here and in the whole after two FSDP steps."""

    class Count(pl.Callback):
        def on_train_end(self, trainer, pl_module):
            self.here = sum(parameter.numel() for parameter in trainer.strategy.model.parameters())

    count = Count()

    def whole(fit):
        weights = {key: value.detach() for key, value in fit.lightning_module.named_parameters()}
        return {"here": count.here, "whole": sum(map(torch.numel, weights.values())), "weights": weights}

    strategy = ShardedOnCpu(sharding_strategy="FULL_SHARD")  # as in the configuration trainer/fsdp
    return trained(tmp_path, name, options, found=whole, strategy=strategy, callbacks=[count])


EVERY = [pytest.param(name, {}, marks=pytest.mark.slow) for name in sorted(registry.architectures())]


@pytest.mark.parametrize(("name", "options"), [("GIN", SMALL), *EVERY])
def test_fsdp_takes_the_steps_of_ddp_and_scores_the_same_model(tmp_path, name, options):
    """Includes batch norms and idle parameters. AdamW decays idle ones under FSDP, where they share a shard."""
    one, two = trained(tmp_path / "ddp", name, options)[0], sharded(tmp_path / "fsdp", name, options)
    assert two[0]["here"] + two[1]["here"] == two[0]["whole"]
    for rank in two:
        assert rank["steps"] == 2
        assert rank["losses"] == pytest.approx(one["losses"], rel=1e-6)
        assert rank["weights"].keys() == one["weights"].keys()
        for key, value in rank["weights"].items():
            torch.testing.assert_close(value, one["weights"][key].reshape(value.shape), rtol=3e-5, atol=1e-7, msg=key)


def test_weights_of_fsdp_load_into_the_model_of_one_process():
    spec, make = made("SFiFormer", SMALL)
    torch.manual_seed(0)
    sharded = BenchmarkModule(spec, make)
    reshape_scalars(sharded)
    one = BenchmarkModule(spec, make)
    assert any(value.dim() == 0 for value in one.parameters())
    one.load_state_dict(sharded.state_dict())
    for value, other in zip(one.parameters(), sharded.parameters(), strict=True):
        assert torch.equal(value, other.reshape(value.shape))


def test_what_the_user_decides_stays(tmp_path):
    results = trained(tmp_path, "GIN", SMALL, strategy="ddp_find_unused_parameters_true")
    assert [result["looked"] for result in results] == [True, True]


def test_looking_for_idle_parameters_leaves_no_trace():
    spec = tiny_spec()
    cls = registry.load("architectures", "GatedGCN")
    module = BenchmarkModule(spec, lambda seen: cls(seen, **SMALL))
    batch = smallest_graph(encode(tiny_table(spec, sizes=[4, 1, 3]), module.required_encodings()))
    assert (batch.num_nodes, batch.num_graphs) == (1, 1)
    before, random = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    idle = unused_parameters(module, lambda graphs: module.task.loss(module(graphs), graphs), batch)
    assert idle
    assert all(name.startswith("architecture.layers.1.") for name in idle)
    assert module.training
    assert module.architecture.training
    assert all(parameter.grad is None for parameter in module.parameters())
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def scores_of(name, shares):
    """Return every score of a task on batches of these graphs; graphs from number 8 on have no label."""
    spec = tiny_spec(name)
    spec = dataclasses.replace(spec, num_classes=2) if name == "graph-classification" else spec
    torch.manual_seed(0)
    task = build_task(spec, 8, HeadConfig(), metrics=list(build_task(spec, 8, HeadConfig()).named_metrics()))
    table, scores = tiny_table(spec, num_graphs=12), SplitScores(task, "val")
    for rows in shares:
        batch = table.batch(rows)
        if rows[0] >= 8 and "y" in batch:
            batch.y = torch.full_like(batch.y, torch.nan if batch.y.is_floating_point() else -1)
        generator = torch.Generator().manual_seed(rows[0])
        node, edge = (torch.randn(n, 8, generator=generator) for n in (batch.num_nodes, batch.edge_index.shape[1]))
        scores.update(task, task(Representation(node, edge=edge), batch).detach(), batch)
    return {name: float(value) for name, value in scores.finish().items()}


def test_scores_are_those_of_one_process_where_another_has_no_row_to_score(tmp_path):
    """A process without rows does not know the types and shapes of the rows that metrics keep."""
    labelled = [[0, 1, 2], [3], [4, 5, 6, 7]]
    others = {name: [[]] if name in ("link-ranking", "map-recovery") else [[], [[8, 9], [10, 11]]] for name in TASKS}

    def work(rank):
        distributed.init_process_group("gloo")
        return {name: [scores_of(name, (labelled, other)[rank]) for other in others[name]] for name in TASKS}

    alone = {name: scores_of(name, labelled) for name in TASKS}
    for found in on_two(tmp_path, work):
        for name in TASKS:
            for values in found[name]:
                assert values == pytest.approx(alone[name], rel=1e-6, nan_ok=True), name
