"""Diagnostics attach to any LightningModule with traces and work on PyG's loaders."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from graphbench.callbacks import AttentionCapacity, AttentionMaps, RankProgression, TrainTestGap
from graphbench.diagnostics import record, summarise_ranks
from graphbench.errors import BadInput
from graphbench.nn import MultiHeadAttention


class Plain(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Linear(3, 8)
        self.attention = MultiHeadAttention(8, 2)

    def forward(self, batch: Data) -> torch.Tensor:
        return self.attention(self.embed(batch.x), batch)

    def training_step(self, batch: Data, batch_idx: int) -> torch.Tensor:
        return self(batch).square().mean()

    def validation_step(self, batch: Data, batch_idx: int) -> None:
        self.log("val_loss", self(batch).square().mean(), batch_size=batch.num_graphs)

    def test_step(self, batch: Data, batch_idx: int) -> None:
        self(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def ring(size: int) -> Data:
    one = torch.arange(size)
    edges = torch.stack([torch.cat([one, one.roll(1)]), torch.cat([one.roll(1), one])])
    return Data(x=torch.randn(size, 3), edge_index=edges)


def trainer(folder: Path, *callbacks: pl.Callback) -> pl.Trainer:
    return pl.Trainer(default_root_dir=folder, callbacks=[*callbacks], max_epochs=1, logger=False, accelerator="cpu",
                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip


def test_measures_are_those_of_a_recording(tmp_path: Path) -> None:
    torch.manual_seed(0)
    graphs, module = [ring(size) for size in (5, 6, 8, 7)], Plain()
    with torch.no_grad(), record(module) as recording:
        module(Batch.from_data_list(graphs))
    expected = summarise_ranks(recording, Batch.from_data_list(graphs).edge_index)
    callbacks = [RankProgression(), AttentionCapacity(), AttentionMaps(num_graphs=1)]
    fit = trainer(tmp_path, *callbacks)
    fit.fit(module, DataLoader(graphs, batch_size=2), DataLoader(graphs, batch_size=2))
    rows = [*csv.DictReader((tmp_path / "diagnostics/rank_progression.csv").open())]
    before = {(row["module"], row["measure"]): float(row["value"]) for row in rows if row["epoch"] == "0"}
    assert before
    for layer in expected.values():
        for measure, value in layer.means().items():
            assert before[layer.name, measure] == pytest.approx(value, rel=1e-5, nan_ok=True)
    assert len([*(tmp_path / "diagnostics/attention_maps").glob("*.png")]) == 2
    fit.test(module, DataLoader(graphs, batch_size=2), verbose=False)


def test_a_gap_needs_scores(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Plain"):
        trainer(tmp_path, TrainTestGap()).fit(Plain(), DataLoader([ring(4)]), DataLoader([ring(4)]))
