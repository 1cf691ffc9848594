"""A benchmark, an encoding and a module of a few lines each."""

import pytorch_lightning as pl
import torch
import torchmetrics
from torch import nn

from graphbench.benchmarks import GraphBenchmark
from graphbench.contracts import BenchmarkSpec, Column, Encoded, Encoding, Features, GraphTable

SPEC = BenchmarkSpec(
    name="Toy",
    task="graph-regression",
    node=Features(vocabularies=(5,)),
    edge=Features(),
    metric="MAE",
    higher_is_better=False,
    loss="L1",
)


def toy_table(num_graphs, seed):
    """Return graphs whose target is the mean of their node values."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(num_graphs):
        n = int(torch.randint(2, 20, (), generator=generator))
        x = torch.randint(0, 5, (n, 1), generator=generator)
        edges = torch.randint(0, n, (2, 2 * n), generator=generator)
        graphs.append({"num_nodes": n, "edge_index": edges, "x": x, "y": x.double().mean().reshape(1)})
    return GraphTable.from_graphs(graphs)


def fives(table):
    """Yield the table five graphs at a time."""
    for start in range(0, len(table), 5):
        yield table.slice(start, min(start + 5, len(table)))


class Toy(GraphBenchmark):
    """A benchmark of 61, 13 and 11 graphs."""

    spec = SPEC
    reads = 0
    sizes = (61, 13, 11)

    def __init__(self, seed_of_data=0, parts=False, **options):
        super().__init__(**options)
        self.seed_of_data, self.parts = seed_of_data, parts

    def source_key(self):
        return {"seed": self.seed_of_data}

    def read(self):
        type(self).reads += 1
        sizes = zip(("train", "val", "test"), self.sizes, strict=True)
        tables = {name: toy_table(size, self.seed_of_data + size) for name, size in sizes}
        if self.parts:
            return {name: fives(table) for name, table in tables.items()}
        return tables


class Doubled(Encoding):
    def __init__(self, times=2):
        self.times = times

    def parameters(self):
        return {"times": self.times}

    @property
    def layout(self):
        return {"doubled": Column("node")}

    def compute(self, graphs):
        return Encoded({"doubled": graphs.columns["x"] * self.times})


class Mean(pl.LightningModule):
    """Reads out the mean of an embedding; counts the graphs that it evaluates."""

    def __init__(self):
        super().__init__()
        self.embed, self.readout = nn.Embedding(5, 4), nn.Linear(4, 1)
        self.mae, self.seen = torchmetrics.MeanAbsoluteError(), torchmetrics.SumMetric()

    def forward(self, batch):
        h = self.embed(batch.x[:, 0])
        total = torch.zeros(batch.num_graphs, 4).index_add(0, batch.batch, h)
        return self.readout(total / batch.ptr.diff()[:, None])

    def training_step(self, batch, batch_idx):
        return (self(batch) - batch.y).abs().mean()

    def validation_step(self, batch, batch_idx):
        self.mae.update(self(batch), batch.y)
        self.seen.update(batch.num_graphs)

    def on_validation_epoch_end(self):
        self.log_dict({"mae": self.mae.compute(), "seen": self.seen.compute()})
        self.mae.reset()
        self.seen.reset()

    test_step, on_test_epoch_end = validation_step, on_validation_epoch_end

    def predict_step(self, batch, batch_idx):
        return batch.graph_id

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.05)


def trainer(**options):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(accelerator="cpu", **(quiet | {"enable_checkpointing": False} | options))
