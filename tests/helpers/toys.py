"""A small benchmark, and small models with and without attention, for tests that watch a training."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import nn

from graphbench import Architecture, BenchmarkSpec, GraphBatch, Representation
from graphbench.benchmarks.base import GraphBenchmark
from graphbench.nn import DenseLayout, MultiHeadAttention, NodeEncoder
from graphbench.testing.tiny import tiny_spec, tiny_table


class Toy(GraphBenchmark):
    """16 training, 10 validation and 8 test graphs of 3 to 7 nodes."""

    spec = tiny_spec()

    def source_key(self) -> dict[str, Any]:
        return {}

    def read(self) -> dict[str, Any]:
        return {name: tiny_table(self.spec, n, seed=n) for name, n in (("train", 16), ("val", 10), ("test", 8))}


class Tiny(Architecture):
    """An encoder and a linear map."""

    def __init__(self, spec: BenchmarkSpec, hidden_dim: int = 8) -> None:
        super().__init__(spec, hidden_dim)
        self.encoder = NodeEncoder(spec, hidden_dim)
        self.body = nn.Linear(hidden_dim, hidden_dim)

    def forward(self, batch: GraphBatch) -> Representation:
        return Representation(self.body(self.encoder(batch)))


class ToyTransformer(Architecture):
    """Two attention layers with dropout and batch norm, which evaluation must not disturb; or without both."""

    def __init__(self, spec: BenchmarkSpec, attention: bool = True, draws: bool = True) -> None:
        super().__init__(spec, 8)
        self.embed = nn.Linear(spec.node.dense, 8)
        self.layers = nn.ModuleList(MultiHeadAttention(8, 2, dropout=0.3 * draws) for _ in range(2 if attention else 0))
        self.draws, self.norm = draws, nn.BatchNorm1d(8) if draws else nn.LayerNorm(8)

    def forward(self, batch: GraphBatch) -> Representation:
        x, layout = self.embed(batch.x_dense), DenseLayout.from_batch(batch)
        for layer in self.layers:
            x = F.dropout(x + layer(x, layout), 0.2, self.training and self.draws)
        return Representation(node=self.norm(x))
