"""Measure a model on a few fixed graphs during training without affecting it.

The graphs are chosen by a separate seed and distributed over the processes; the measures add up to the same numbers on
any number of processes. Weights, batch statistics and random states are unchanged.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.model_helpers import is_overridden
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch_geometric.data import Batch, Data

from graphbench.callbacks.diagnostic_table import DiagnosticTable
from graphbench.callbacks.trackers import log_histogram
from graphbench.contracts import GraphBatch, GraphTable
from graphbench.contracts.devices import is_apple
from graphbench.contracts.encoding import graph_table
from graphbench.contracts.pyg import to_graph_batch
from graphbench.contracts.spec import Split
from graphbench.diagnostics import LayerSummary, Recording, Summary, merge, record
from graphbench.errors import BadInput, check_range
from graphbench.runs.tables import LAYER_COLUMNS
from graphbench.training.distributed import gather_objects, whole_parameters
from graphbench.training.module import BenchmarkModule
from graphbench.training.parts import evaluating

log = logging.getLogger(__name__)

#: Nodes of the largest graph whose matrices of all pairs of nodes are computed.
LARGEST_MATRIX = 4096


def check_positive(callback: pl.Callback, **numbers: int) -> None:
    """Refuse options below 1: raise `BadInput` with the name of the first one."""
    for option, number in numbers.items():
        check_range(f"{type(callback).__name__}: {option}", number, at_least=1, whole=True)


def split_table(trainer: pl.Trainer, split: str) -> GraphTable:
    """Return the graphs of a split of a benchmark; raise `BadInput` without a benchmark, or without graphs."""
    tables = getattr(getattr(trainer, "datamodule", None), "tables", None)
    if not tables or split not in tables:
        raise BadInput(f"Scores on the {split} split need a graphbench benchmark as the trainer's data module.")
    table: GraphTable = tables[split]
    if not len(table):
        raise BadInput(f"Diagnostics on the {split} split need graphs, but it is empty; choose another split.")
    return table


def choose_graphs(trainer: pl.Trainer, split: str, num_graphs: int, seed: int) -> Tensor:
    """Return rows of the probe graphs of a split, ascending; all of a smaller split, and the same on every process."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(split_size(trainer, split), generator=generator)[:num_graphs].sort().values


def split_size(trainer: pl.Trainer, split: str) -> int:
    """Return the number of graphs of a split."""
    if getattr(getattr(trainer, "datamodule", None), "tables", None):
        return len(split_table(trainer, split))
    return len(_loader(trainer, split).dataset)


@dataclass(frozen=True)
class ProbeGraphs:
    """Chosen graphs of a split."""

    table: GraphTable  # the graphs as columns
    #: creates the module's batch from some of them, by their rows in `table`, on the module's device.
    batch: Callable[[Sequence[int]], Data]


def probe_graphs(trainer: pl.Trainer, split: str, rows: Tensor) -> ProbeGraphs:
    """Return graphs of a benchmark, or of any PyG data loader that the trainer has for the split."""
    if getattr(getattr(trainer, "datamodule", None), "tables", None):
        table = split_table(trainer, split).select(rows)
        if len(rows) and is_overridden("on_after_batch_transfer", trainer.datamodule):  # type: ignore[attr-defined]
            shown = graph_table(evaluation_batch(trainer, table.batch(range(len(rows)))))
            shown.graph_ids = table.graph_ids
        else:
            shown = table
        return ProbeGraphs(shown, lambda part: evaluation_batch(trainer, table.batch(part)))
    loader = _loader(trainer, split)
    graphs = [loader.dataset[row] for row in rows.tolist()]
    strange = next((graph for graph in graphs if not isinstance(graph, Data)), None)
    if strange is not None:
        raise BadInput(
            f"Diagnostics need graphs (torch_geometric.data.Data) in the {split} loader, but it has items of type "
            f"{type(strange).__name__}."
        )
    table = graph_table(Batch.from_data_list(graphs)) if graphs else GraphTable.from_graphs([])
    table.graph_ids = rows
    collate = loader.collate_fn
    return ProbeGraphs(table, lambda part: evaluation_batch(trainer, collate([graphs[row] for row in part])))


def evaluation_batch(trainer: pl.Trainer, batch: Data) -> Data:
    """Move a batch to the module's device and transform it there as an evaluation loop does.

    The hook follows Lightning's rule: the data module's, else the module's. Point clouds are sampled, scaled and
    rotated there.
    """
    module, data = trainer.lightning_module, getattr(trainer, "datamodule", None)
    owner = data if data is not None and is_overridden("on_after_batch_transfer", data) else module
    moved: Data = owner.on_after_batch_transfer(batch.to(module.device), 0)
    return moved


def has_graphs(trainer: pl.Trainer, split: str, callback: pl.Callback) -> bool:
    """Return whether graphs of the split are available after a test; trainers with loaders have only the test's."""
    try:
        split_size(trainer, split)
    except BadInput as error:
        if getattr(getattr(trainer, "datamodule", None), "tables", None):
            raise
        log.warning("%s does not measure the tested model: %s", type(callback).__name__, error)
        return False
    return True


def _loader(trainer: pl.Trainer, split: str) -> Any:
    attribute = "train_dataloader" if split == "train" else f"{split}_dataloaders"
    loader = getattr(trainer, attribute)
    loader = loader[0] if isinstance(loader, (list, tuple)) and loader else loader
    if not hasattr(loader, "dataset") or not hasattr(loader.dataset, "__len__"):
        raise BadInput(
            f"Diagnostics on the {split} split need a graphbench benchmark as the trainer's data module, or a "
            f"DataLoader of PyG for that split; the trainer has {type(loader).__name__}. Choose another split."
        )
    return loader


def probed_module(module: pl.LightningModule) -> BenchmarkModule:
    """Return the module if it has scores, else raise `BadInput`."""
    if not isinstance(module, BenchmarkModule):
        raise BadInput(f"Scores are those of a BenchmarkModule, but the trainer has a {type(module).__name__}.")
    return module


def traced_part(module: pl.LightningModule) -> nn.Module:
    """Return what diagnostics observe: the architecture, or a whole module of another kind."""
    return module.architecture if isinstance(module, BenchmarkModule) else module


def run_layers(module: pl.LightningModule, batch: Data) -> None:
    """Run the layers on a batch: without the head if there is one, else with Lightning's `predict_step`."""
    if isinstance(module, BenchmarkModule):
        module.represent(to_graph_batch(batch, module.spec))
    else:
        module.predict_step(batch, 0)


def watched(module: pl.LightningModule, batch: Data, matrices: bool = True) -> tuple[Recording, GraphBatch]:
    """Run the layers on a batch, and return a recording of them, on the CPU if the device has no float64.

    `matrices` is that of `record`.
    """
    with record(traced_part(module), matrices) as recording:
        run_layers(module, batch)
    graphs = to_graph_batch(batch)
    if is_apple(graphs.edge_index.device):
        return recording.cpu(), copy.copy(graphs).cpu()  # PyG moves a batch in place
    return recording, graphs


@contextlib.contextmanager
def undisturbed(trainer: pl.Trainer, module: pl.LightningModule, seed: int) -> Iterator[None]:
    """Enter evaluation mode without gradients, in the trainer's precision, and restore modes and generators afterwards.

    Either all processes or none must enter it: if FSDP shards parameters, they are whole inside. Random numbers start
    from `seed`, so a model that samples in evaluation is probed in the same way every time.
    """
    context = trainer.precision_plugin.forward_context()
    with isolate_rng(), whole_parameters(trainer), torch.no_grad(), context, evaluating(module):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def first_statistics(trainer: pl.Trainer, module: pl.LightningModule, batch: Data, seed: int) -> Iterator[None]:
    """Give batch norms that have seen no batch the statistics of this one, and reset them afterwards.

    Until then a batch norm in evaluation mode has mean 0 and variance 1 and normalises nothing: tokens grow from layer
    to layer, attention collapses on single nodes, and the network is not the one whose training begins. In evaluation
    mode with statistics, unlike in training mode, graphs do not affect each other.
    """
    norms = [part for part in traced_part(module).modules() if isinstance(part, _BatchNorm) and _saw_nothing(part)]
    saved = [({name: buffer.clone() for name, buffer in norm.named_buffers()}, norm.momentum) for norm in norms]
    try:
        if norms:
            with undisturbed(trainer, module, seed):
                for norm in norms:
                    norm.training, norm.momentum = True, 1.0  # running statistics become those of the batch
                run_layers(module, batch)
        yield
    finally:
        for norm, (buffers, momentum) in zip(norms, saved, strict=True):
            norm.momentum = momentum
            for name, buffer in norm.named_buffers():
                buffer.copy_(buffers[name])


def _saw_nothing(norm: _BatchNorm) -> bool:
    """Return whether running statistics are those of a new batch norm; not all kinds count their batches."""
    mean, variance = norm.running_mean, norm.running_var
    return mean is not None and variance is not None and bool((mean == 0).all()) and bool((variance == 1).all())


class ProbeCallback(pl.Callback):
    """Base class of callbacks that measure the attention layers on probe graphs before training and after epochs.

    Every measure of every layer gets a row in `diagnostics/NAME.csv` of the run's folder, with its mean over graphs
    (`value`, NaN without any), how many graphs have it (`graphs`) and how many do not (`left_out`, such as those whose
    tokens are all equal, which have no ratio of spreads). Measures of single heads (or distances) stay there; the
    others also go to every logger.

    Before training, batch norms have the statistics of the first `batch_size` probe graphs, see `first_statistics`.

    Args:
        num_graphs: total number of probe graphs, distributed over the processes.
        split: split they come from.
        every_n_epochs: measure after every n-th epoch, and after the last. By default every second one (range: every
            fourth), with which all numeric diagnostics together cost some 6 % of the quickstart's time
            (`speed/diagnostics_cost.py`).
        batch_size: probe graphs that one process measures at once; bounds the memory.
        seed: chooses the graphs.

    Raises:
        BadInput: a number is not positive.
    """

    #: Name of the table and prefix of what is logged.
    name: ClassVar[str]
    #: Measures whose values for single graphs TensorBoard shows as histograms.
    histograms: ClassVar[tuple[str, ...]] = ()
    #: Nodes of the largest graph that is measured; None for any size.
    largest: ClassVar[int | None] = None
    #: What a model must have to be measured.
    needs: ClassVar[str] = "attention layer that can be inspected"
    #: Measures with this in their names stay in the table.
    unlogged: ClassVar[str] = "_head"

    def __init__(
        self, num_graphs: int = 32, split: Split = "val", every_n_epochs: int = 2, batch_size: int = 32, seed: int = 0
    ) -> None:
        check_positive(self, num_graphs=num_graphs, every_n_epochs=every_n_epochs, batch_size=batch_size)
        self.num_graphs, self.split, self.every_n_epochs = num_graphs, split, every_n_epochs
        self.batch_size, self.seed = batch_size, seed
        self.table = DiagnosticTable(self.name, LAYER_COLUMNS)
        self._batches: list[Data] = []
        #: Epochs that this trainer has finished, and those at the last measurement; None before the first.
        self._finished: int | None = None
        self._seen: int | None = None

    @abstractmethod
    def look(self, module: pl.LightningModule, batch: Data, number: int) -> Summary:
        """Run the layers on probe batch `number`, the same graphs every time, and measure each layer."""

    def prepare(self, graphs: GraphTable) -> None:
        """Compute once what `look` needs for this process's probe graphs; not called without any.

        Batch `number` contains the graphs from `number * batch_size` on.
        """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Choose the graphs, and measure the untrained model."""
        self._choose(trainer)
        self.table.start(trainer)
        self._finished = self._seen = None
        # A continued run already has its first measurement in the table.
        if trainer.global_step == 0:
            rows = choose_graphs(trainer, self.split, self.num_graphs, self.seed)[: self.batch_size]
            graphs = probe_graphs(trainer, self.split, rows)  # the same ones on every process
            with first_statistics(trainer, pl_module, graphs.batch(range(len(rows))), self.seed):
                self._look(trainer, pl_module, finished=0)

    def _choose(self, trainer: pl.Trainer) -> None:
        """Build the batches of this process's probe graphs."""
        # Every process draws the same graphs and takes its share of them.
        rows = choose_graphs(trainer, self.split, self.num_graphs, self.seed)[trainer.global_rank :: trainer.world_size]
        graphs = probe_graphs(trainer, self.split, rows)
        sizes = graphs.table.num_nodes
        small = (sizes >= 0 if self.largest is None else sizes <= self.largest).nonzero()[:, 0]
        if left_out := len(sizes) - len(small):
            log.warning(
                "%s leaves out %d of %d graphs of the %s split, which have more than %s nodes.",
                type(self).__name__, left_out, len(sizes), self.split, f"{self.largest:,}",
            )  # fmt: skip
        parts = small.split(self.batch_size) if len(small) else ()
        self._batches = [graphs.batch(part.tolist()) for part in parts]
        if len(small):
            self.prepare(graphs.table.select(small) if left_out else graphs.table)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the model if this epoch is due."""
        self._finished = finished = trainer.current_epoch + 1
        if finished % self.every_n_epochs == 0 or finished == trainer.max_epochs:
            self._look(trainer, pl_module, finished)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure after an epoch that turned out to be the last; pass the table to the trackers."""
        if self._finished is not None and self._finished != self._seen:
            self._look(trainer, pl_module, self._finished, is_last=True)
        self.table.publish(trainer)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the tested model; its rows replace those of its epoch in the table."""
        if not has_graphs(trainer, self.split, self):
            return
        self._choose(trainer)
        summary = self._summarise(trainer, pl_module)
        self.table.replace(trainer, [row for layer in summary.values() for row in _rows(layer)])

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Measure the predicting model, as after a test."""
        self.on_test_end(trainer, pl_module)

    def _look(self, trainer: pl.Trainer, pl_module: pl.LightningModule, finished: int, is_last: bool = False) -> None:
        self._seen = finished
        summary = self._summarise(trainer, pl_module)
        if not summary and self._batches and finished == 0 and trainer.is_global_zero:
            name = type(traced_part(pl_module)).__name__
            log.warning("%s has no %s: no %s is measured.", name, self.needs, self.name)
        rows = [row for layer in summary.values() for row in _rows(layer)]
        if rows:
            self.table.add(trainer, finished, rows)
            logged = [row for row in rows if row["graphs"] and self.unlogged not in row["measure"]]
            looks = finished // self.every_n_epochs
            # `looks & (looks - 1)` is 0 for powers of two: figures grow with the epochs, and so does their cost.
            draw = not looks & (looks - 1) or finished == trainer.max_epochs or is_last
            self.table.log_layers(trainer, logged, draw=draw)
            self._log_histograms(trainer, summary)

    def _log_histograms(self, trainer: pl.Trainer, summary: Summary) -> None:
        for layer in summary.values():
            for measure in (name for name in self.histograms if layer.values.get(name)):
                log_histogram(trainer, f"{self.name}/{measure}/layer_{layer.layer}", layer.values[measure])

    def _summarise(self, trainer: pl.Trainer, module: pl.LightningModule) -> Summary:
        """Return the measures of the graphs of all processes; all must call it, including one without a graph."""
        with undisturbed(trainer, module, self.seed):
            summary = merge(self.look(module, batch, number) for number, batch in enumerate(self._batches))
        return merge(gather_objects(summary))


def _rows(layer: LayerSummary) -> list[dict[str, Any]]:
    """Return rows of the table, one for every measure, even if no graph has it."""
    place = {"layer": layer.layer, "module": layer.name}
    return [
        {
            **place,
            "measure": measure,
            "value": value,
            "graphs": layer.counts[measure],
            "left_out": layer.left_out[measure],
        }
        for measure, value in layer.means().items()
    ]
