"""Whole trainings on two and three processes compared with one: every task, parts of one graph, and shards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
from own_graphs import large_graph
from sharded import ShardedOnCpu
from tiny_fits import TinyData
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from toys import ToyTransformer
from two_processes import on_two

import graphbench
from graphbench import BenchmarkModule, registry
from graphbench.benchmarks.graphs.benchmark import Graphs
from graphbench.callbacks.exact_resume import ExactResume
from graphbench.nn.gps import GPSLayer
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.training.tasks import build_task

pytestmark = pytest.mark.slow

TASKS = (
    "graph-regression", "graph-classification", "graph-multilabel", "node-classification", "node-multilabel",
    "node-regression", "edge-classification", "edge-regression", "link-ranking", "map-recovery",
)  # fmt: skip


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def trainer_of(folder, devices, strategy="ddp", **options):
    options = {"max_epochs": 3, "enable_checkpointing": False} | options
    return pl.Trainer(
        accelerator="cpu", devices=devices, strategy=strategy if devices > 1 else "auto", logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder, **options,
    )  # fmt: skip


def weights_of(module):
    return torch.nn.utils.parameters_to_vector(module.parameters()).detach()


def watched(trainer):
    return {name: float(value) for name, value in trainer.callback_metrics.items() if not name.startswith("time/")}


def assert_close(found, wanted):
    assert found["weights"].sub(wanted["weights"]).abs().max() < 1e-5
    for part in ("fit", "test"):
        assert found[part] == pytest.approx(wanted[part], abs=1e-5, nan_ok=True)


@pytest.mark.parametrize("task", TASKS)
def test_every_task_trains_and_scores_as_one_process_does(tmp_path, task):
    """Use all metrics of a task and unequal shares: 9 and 11 graphs on two and three processes."""
    spec = tiny_spec(task)
    metrics = list(build_task(spec, 8, HeadConfig()).named_metrics())

    def run(devices):
        pl.seed_everything(0)
        data = TinyData(spec, sizes=(15, 9, 11), root=str(tmp_path / "data"), batch_size=6 // devices, seed=0)
        module = BenchmarkModule(spec, lambda seen: ToyTransformer(seen, draws=False), optimizer=sgd, metrics=metrics)
        trainer = trainer_of(tmp_path, devices)
        trainer.fit(module, data)
        fit = watched(trainer)
        return {"weights": weights_of(module), "fit": fit, "test": trainer.test(module, data, verbose=False)[0]}

    one = run(1)
    for devices in (2, 3):
        for found in on_two(tmp_path / str(devices), lambda rank, devices=devices: run(devices), devices):
            assert_close(found, one)


def part_by_part(folder, batch_size, **options):
    torch.manual_seed(0)
    data = Graphs(
        large_graph(), store=str(folder), seed=1, fractions=(0.4, 0.3, 0.3), batch_size=batch_size,
        node_features=["x", "kind"], **options,
    )  # fmt: skip
    sizes = {"hidden_dim": 8, "num_layers": 2, "norm": "layer"}
    return graphbench.build("GraphSAGE", data, model_options=sizes, optimizer=sgd)


def trained_on_parts(folder, devices, batch_size, **options):
    module, data = part_by_part(folder, batch_size, **options)
    trainer = trainer_of(folder, devices)
    trainer.fit(module, data)
    fit = watched(trainer)
    return {"weights": weights_of(module), "fit": fit, "test": trainer.test(module, data, verbose=False)[0]}


@pytest.mark.parametrize("devices", [2, 3])
@pytest.mark.parametrize(
    ("options", "batch_size"),
    [
        ({"sampler": "neighbors", "num_neighbors": [3, 2]}, 2),
        ({"sampler": "random", "num_parts": 6}, 1),
        ({"sampler": "clusters", "num_parts": 6}, 1),
    ],
    ids=["neighbors", "random", "clusters"],
)
def test_a_step_on_parts_of_one_graph_is_that_of_one_process_on_the_same_parts(tmp_path, options, batch_size, devices):
    """Compare with one loss over the nodes that all parts of a step ask for, each part passed by itself."""
    if options["sampler"] == "clusters":
        pytest.importorskip("pymetis")
    module, data = part_by_part(tmp_path, batch_size, **options)
    data.prepare_data()
    data.setup()
    loaders = []
    for rank in range(devices):
        data.trainer = SimpleNamespace(
            global_rank=rank, world_size=devices, overfit_batches=0, lightning_module=module, current_epoch=0
        )
        loaders.append(data.train_dataloader())
    optimizer = sgd(module.parameters())
    module.train()
    for epoch in range(3):
        for loader in loaders:
            loader.batch_sampler.set_epoch(epoch)
        for batches in zip(*loaders, strict=True):
            terms = [module.task.terms(module.task(module.represent(batch), batch), batch) for batch in batches]
            sums, counts = (sum(column) for column in zip(*terms, strict=True))
            optimizer.zero_grad()
            module.task.combine(sums, counts).backward()
            optimizer.step()
    for found in on_two(
        tmp_path / "on", lambda rank: trained_on_parts(tmp_path, devices, batch_size, **options), devices
    ):
        assert found["weights"].sub(weights_of(module)).abs().max() < 1e-5


def test_nodes_with_all_their_neighbours_train_as_on_one_process(tmp_path):
    options = {"sampler": "neighbors", "num_neighbors": [-1, -1]}
    one = trained_on_parts(tmp_path, 1, 6, **options)
    for devices in (2, 3):
        for found in on_two(
            tmp_path / str(devices),
            lambda rank, devices=devices: trained_on_parts(tmp_path, devices, 6 // devices, **options),
            devices,
        ):
            assert_close(found, one)


def shards(folder, strategy, devices, epochs, checkpoint=None):
    """Train, score and then call the same module; return its scores and weights and save the last checkpoint."""
    spec = tiny_spec("graph-regression")
    gps = registry.load("architectures", "GPS")
    options = {"hidden_dim": 8, "num_layers": 2, "num_heads": 2, "norm": "layer", "dropout": 0.0}
    pl.seed_everything(0)
    data = TinyData(spec, sizes=(12, 8, 12), root=str(folder.parent / "data"), batch_size=6 // devices, seed=0)
    module = BenchmarkModule(
        spec, lambda seen: gps(seen, **options, attention_dropout=0.0),
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.5),
    )  # fmt: skip
    saved = pl.callbacks.ModelCheckpoint(dirpath=folder, save_last=True)
    trainer = trainer_of(
        folder, devices, strategy, max_epochs=epochs, callbacks=[saved, ExactResume()], enable_checkpointing=True
    )
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    fit = watched(trainer)
    assert not any(isinstance(part, FullyShardedDataParallel) for part in module.modules())
    validated = trainer.validate(module, data, verbose=False)[0]
    assert validated == pytest.approx({name: fit[name] for name in validated}, abs=1e-5)
    test = trainer.test(module, data, verbose=False)[0]
    assert module.eval()(data.tables["test"].batch([0])).isfinite().all()
    return {"weights": weights_of(module), "fit": fit, "test": test}


def of_shards(policy):
    return ShardedOnCpu(sharding_strategy="FULL_SHARD", state_dict_type="full", auto_wrap_policy=policy)


@pytest.mark.parametrize("policy", [None, ModuleWrapPolicy({GPSLayer, nn.Linear})], ids=["whole", "parts"])
def test_shards_train_score_and_go_on_as_one_process(tmp_path, policy):
    """Resume also on other numbers of processes and without shards; after each loop the module is whole again."""
    one = shards(tmp_path / "one", "auto", 1, 2)
    for found in on_two(tmp_path / "p", lambda rank: shards(tmp_path / "two", of_shards(policy), 2, 2)):
        assert_close(found, one)
    last = tmp_path / "two" / "last.ckpt"
    stored, wanted = (
        torch.load(path, weights_only=True)["state_dict"] for path in (last, tmp_path / "one" / "last.ckpt")
    )
    assert stored.keys() == wanted.keys()
    for name, value in stored.items():
        torch.testing.assert_close(value, wanted[name].reshape(value.shape), atol=1e-5, rtol=1e-5)
    whole = shards(tmp_path / "whole", "auto", 1, 4)
    assert_close(shards(tmp_path / "on-one", "auto", 1, 4, last), whole)
    for strategy, devices in ((of_shards(policy), 2), (of_shards(policy), 3), ("ddp", 2)):
        folder = tmp_path / f"on-{devices}-{type(strategy).__name__}"

        def work(rank, folder=folder, strategy=strategy, devices=devices):
            return shards(folder, strategy, devices, 4, last)

        for found in on_two(folder / "p", work, devices):
            assert_close(found, whole)
