"""Probes do not affect training and give the same numbers whenever they see the same weights."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from toys import Toy, ToyTransformer

from graphbench import BenchmarkSpec, GraphBatch
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.callbacks.probe import choose_graphs, undisturbed
from graphbench.callbacks.rank_progression import GradientFlow, InfluenceRange, RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap
from graphbench.diagnostics import record, summarise_ranks
from graphbench.errors import BadInput
from graphbench.nn import GPSBackbone, TransformerAttention
from graphbench.training.module import BenchmarkModule

Rows = Callable[..., list[dict[str, str]]]
Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def test_weights_are_bit_identical_with_and_without_callbacks(fit: Fit) -> None:
    watchers = (
        AttentionCapacity(num_graphs=5, every_n_epochs=1),
        RankProgression(num_graphs=5),
        TrainTestGap(num_graphs=7, splits=["val", "test"]),
        AttentionMaps(num_graphs=2, every_n_epochs=1),
    )
    watched, trainer = fit(*watchers)
    drawn = (torch.rand(3), np.random.rand(3), random.random())
    alone, _ = fit(run="alone")
    again = (torch.rand(3), np.random.rand(3), random.random())
    assert trainer.global_step == 8
    assert watched.state_dict().keys() == alone.state_dict().keys()
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name
    assert torch.equal(drawn[0], again[0])
    assert (drawn[1] == again[1]).all()
    assert drawn[2] == again[2]


def test_modes_random_numbers_and_gradients_are_put_back(fit: Fit) -> None:
    module, trainer = fit()
    module.train()
    module.architecture.norm.eval()  # frozen by its owner
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with undisturbed(trainer, module, seed=3):
            assert not module.architecture.training
            assert not torch.is_grad_enabled()
            drawn.append(torch.rand(2))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)
    assert module.architecture.training
    assert not module.architecture.norm.training
    assert torch.is_grad_enabled()


def test_probe_graphs_are_fixed_by_the_seed_and_part_of_the_split(fit: Fit) -> None:
    _, trainer = fit(max_epochs=1)
    chosen = choose_graphs(trainer, "val", 4, seed=1)
    assert chosen.tolist() == sorted(set(chosen.tolist()))
    assert torch.equal(chosen, choose_graphs(trainer, "val", 4, seed=1))
    assert not torch.equal(chosen, choose_graphs(trainer, "val", 4, seed=2))
    assert choose_graphs(trainer, "val", 99, seed=1).tolist() == list(range(10))


def test_every_n_epochs_and_the_last(fit: Fit, rows: Rows) -> None:
    _, trainer = fit(RankProgression(num_graphs=3, every_n_epochs=2), max_epochs=5)
    table = rows("rank_progression")
    assert sorted({int(row["epoch"]) for row in table}) == [0, 2, 4, 5]
    assert sorted({int(row["step"]) for row in table}) == [0, 8, 16, 20]
    steps = [step for step, logged in trainer.logger.rows if any("rank_progression" in name for name in logged)]
    assert steps == [0, 7, 15, 19]  # the steps at which Lightning logs the ends of epochs


def test_a_continued_run_keeps_its_rows(fit: Fit, rows: Rows, tmp_path: Path) -> None:
    fit(RankProgression(num_graphs=3), max_epochs=3, run="whole")
    checkpoint = tmp_path / "two.ckpt"
    _, trainer = fit(RankProgression(num_graphs=3), max_epochs=2)
    trainer.save_checkpoint(checkpoint)
    with (tmp_path / "run" / "diagnostics" / "rank_progression.csv").open("a") as file:
        file.write("3,12,0,x,stable_rank,9.0,3,0\n")  # written by an epoch that was lost
    fit(RankProgression(num_graphs=3), max_epochs=3, resume=str(checkpoint))
    found, whole = rows("rank_progression"), rows("rank_progression", "whole")
    assert [row["epoch"] for row in found] == [row["epoch"] for row in whole]
    assert [row for row in found if row["epoch"] < "3"] == [row for row in whole if row["epoch"] < "3"]
    assert "9.0" not in {row["value"] for row in found}


def test_a_model_without_attention_is_told_so(fit: Fit, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    with caplog.at_level(logging.WARNING):
        fit(AttentionCapacity(num_graphs=3), attention=False)
    assert "ToyTransformer has no attention layer" in caplog.text
    assert caplog.text.count("no attention layer") == 1


def test_fast_dev_run_writes_nothing(fit: Fit, tmp_path: Path) -> None:
    watchers = (AttentionCapacity(num_graphs=3), RankProgression(num_graphs=3), TrainTestGap(num_graphs=3))
    fit(*watchers, AttentionMaps(), fast_dev_run=True)
    assert not (tmp_path / "run" / "diagnostics").exists()


@pytest.mark.parametrize("callback", [AttentionCapacity, RankProgression, TrainTestGap])
def test_options_out_of_range_are_refused(callback: type[pl.Callback]) -> None:
    for option in ("num_graphs", "every_n_epochs", "batch_size"):
        with pytest.raises(BadInput, match=f"{callback.__name__}: {option} must be an integer of at least 1, but got"):
            callback(**{option: 0})


def test_data_without_graphs_are_refused() -> None:
    class Plain(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            return self.layer(batch).sum()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = pl.Trainer(callbacks=[RankProgression()], max_epochs=1, logger=False, enable_checkpointing=False,
                         enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")  # fmt: skip
    with pytest.raises(BadInput, match="val split"):
        trainer.fit(Plain(), torch.utils.data.DataLoader(torch.zeros(2, 1), num_workers=0))
    with pytest.raises(BadInput, match="val split"):
        choose_graphs(trainer, "val", 3, 0)


def trained_backbone(
    make_data: Callable[[], Toy], folder: Path, *callbacks: pl.Callback, **options: Any
) -> tuple[BenchmarkModule, Toy]:
    """Train GPS layers, which have batch norms, and return them with their data."""
    pl.seed_everything(0, verbose=False)
    data = make_data()

    def backbone(spec: BenchmarkSpec) -> GPSBackbone:
        return GPSBackbone(spec, 8, num_layers=6, make_attention=lambda: TransformerAttention(8, num_heads=2))

    module = BenchmarkModule(data.spec, backbone)
    trainer = pl.Trainer(
        callbacks=list(callbacks), logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu", default_root_dir=str(folder), **options,
    )  # fmt: skip
    trainer.fit(module, data)
    return module, data


def test_batch_norms_without_statistics_are_probed_as_they_train(
    make_data: Callable[[], Toy], tmp_path: Path, rows: Rows
) -> None:
    """Ranks before training are those in training mode on the probe graphs, all in one batch."""
    trained_backbone(make_data, tmp_path / "run", RankProgression(num_graphs=10), max_epochs=1)
    table = [row for row in rows("rank_progression") if row["measure"] == "effective_rank" and row["epoch"] == "0"]
    measured = [float(row["value"]) for row in table]
    fresh, data = trained_backbone(make_data, tmp_path / "fresh", max_steps=0)  # with the same seed
    batch = data.tables["val"].batch(range(10))
    found = {}
    for training in (False, True):
        with torch.no_grad(), record(fresh.architecture.train(training)) as recording:
            fresh.represent(batch)
        found[training] = [depth.mean("effective_rank") for depth in summarise_ranks(recording).values()]
    # Statistics of evaluation divide by n - 1, those of training by n.
    assert measured == pytest.approx(found[True], rel=0.02)
    assert measured[-1] != pytest.approx(found[False][-1], rel=0.1)


def test_batch_norms_lose_the_statistics_of_the_first_look(make_data: Callable[[], Toy], tmp_path: Path) -> None:
    looks = (RankProgression(num_graphs=5), InfluenceRange(num_graphs=4))
    watched, _ = trained_backbone(make_data, tmp_path / "watched", *looks, max_epochs=2)
    alone, _ = trained_backbone(make_data, tmp_path / "alone", max_epochs=2)
    for name, value in alone.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


class Halved(Toy):
    """Keeps the first half of each graph's nodes on the device, as point clouds are sampled there."""

    def on_after_batch_transfer(self, batch: GraphBatch, dataloader_idx: int) -> Data:
        sizes = batch.ptr.diff()
        halved = batch.subgraph(torch.arange(batch.num_nodes) - batch.ptr[batch.batch] < (sizes // 2)[batch.batch])
        halved.ptr = F.pad((sizes // 2).cumsum(0), (1, 0))
        halved.num_nodes, halved.max_nodes = len(halved.batch), int(sizes.max()) // 2
        return halved


@pytest.mark.parametrize(
    "make",
    [AttentionCapacity, RankProgression, InfluenceRange, GradientFlow, AttentionMaps, TrainTestGap],
    ids=lambda make: make.__name__,
)
def test_graphs_are_looked_at_as_the_loop_has_them(make: Callable[..., pl.Callback], tmp_path: Path) -> None:
    data = Halved(root=str(tmp_path / "data"), batch_size=4, seed=0)
    module = BenchmarkModule(data.spec, ToyTransformer)
    sizes = []  # of every graph that the model sees
    module.architecture.register_forward_pre_hook(lambda _, batch: sizes.extend(batch[0].ptr.diff().tolist()))
    trainer = pl.Trainer(
        max_epochs=1, callbacks=[make()], logger=False, enable_checkpointing=False, num_sanity_val_steps=0,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu", default_root_dir=tmp_path / "run",
    )  # fmt: skip
    trainer.fit(module, data)
    stored = torch.cat([data.tables[split].num_nodes for split in ("train", "val")])
    assert len(sizes) > len(stored)  # graphs of the loop and of the callback
    assert set(sizes) <= set((stored // 2).tolist())
