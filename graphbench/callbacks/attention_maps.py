"""Draw what attention looks at in a few graphs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from torch_geometric.data import Data

from graphbench.callbacks.diagnostic_table import trained_for
from graphbench.callbacks.probe import (
    LARGEST_MATRIX,
    ProbeGraphs,
    check_positive,
    choose_graphs,
    has_graphs,
    probe_graphs,
    run_layers,
    split_size,
    traced_part,
    undisturbed,
)
from graphbench.callbacks.trackers import log_figure
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import Split
from graphbench.data.files.writing import writing
from graphbench.diagnostics import AttentionMap, attention_maps, record, spread_out
from graphbench.diagnostics.figures.attention import drawing_figure, matrix_figure
from graphbench.diagnostics.figures.graphs import GraphDrawing, MoleculeDrawing, PlainDrawing
from graphbench.errors import BadInput, check_choice, check_range
from graphbench.runs import RunFolder
from graphbench.training.distributed import whole_parameters
from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)

#: Number of layers and heads that are shown by default; more make a figure unreadable.
_MOST = 4


class AttentionMaps(pl.Callback):
    """Draw the attention of layers and heads on chosen graphs, as matrices and on the graph itself.

    For each graph there are two files in `diagnostics/attention_maps/` of the run, and the same figures in the run's
    tracker (TensorBoard, W&B, MLflow): matrices with the entropy, share of zeros and row sum of every head, and
    drawings whose nodes and edges are coloured by the attention they get. RDKit depicts molecules from the benchmark's
    SMILES; other graphs are laid out by their coordinates or by graph distances. A test or prediction draws its model.
    Graphs above 1,000 nodes without coordinates have only matrices; above 4,096 they are left out with a warning.

    Only the first process computes and draws; the others do not wait for it. It runs in evaluation mode without
    gradients, and restores random states.

    Args:
        num_graphs: graphs to draw, chosen by `seed`.
        graphs: rows of the split to draw instead, in this order.
        split: split they come from.
        layers: numbers of the layers to draw; None for four evenly spread, or all of fewer.
        heads: numbers of the heads to draw; None for the first four, or all of fewer.
        every_n_epochs: also draw after every n-th epoch; 0 to draw only at the end of the training.
        file_format: png or svg.
        seed: chooses the graphs.

    Raises:
        BadInput: a number is out of range; or, when the training starts, the split lacks these rows, one of these
            graphs has more than 4,096 nodes, or the model lacks these layers or heads.
    """

    def __init__(
        self,
        num_graphs: int = 2,
        graphs: Sequence[int] | None = None,
        split: Split = "val",
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        every_n_epochs: int = 0,
        file_format: Literal["png", "svg"] = "png",
        seed: int = 0,
    ) -> None:
        check_positive(self, num_graphs=num_graphs)
        check_range("AttentionMaps: every_n_epochs", every_n_epochs, at_least=0, whole=True)
        check_choice("AttentionMaps: file_format", file_format, ("png", "svg"))
        for option, numbers in (("graphs", graphs), ("layers", layers), ("heads", heads)):
            if numbers is not None and (not numbers or min(numbers) < 0):
                raise BadInput(f"{option} of AttentionMaps must be numbers from 0 on, got {list(numbers)}.")
        self.num_graphs, self.graphs, self.split = num_graphs, graphs, split
        self.layers, self.heads, self.every_n_epochs = layers, heads, every_n_epochs
        self.file_format, self.seed = file_format, seed
        self._finished, self._drawn = 0, -1

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Refuse what cannot be drawn, before hours of training."""
        graphs, rows = self._graphs(trainer)
        if self.graphs is not None and len(rows) < len(self.graphs):
            raise BadInput(
                f"graphs of AttentionMaps must have at most {LARGEST_MATRIX:,} nodes each, got {self.graphs}."
            )
        # Only named layers and heads can be absent, which a pass on one graph shows.
        if rows and (self.layers is not None or self.heads is not None):
            self._maps(trainer, pl_module, graphs.batch(rows[:1]))
        self._finished, self._drawn = trainer.current_epoch, -1

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw if this epoch is due."""
        self._finished = trainer.current_epoch + 1
        if self.every_n_epochs and self._finished % self.every_n_epochs == 0:
            self._draw(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the trained model, unless its last epoch has been drawn."""
        if self._drawn != self._finished:
            self._draw(trainer, pl_module)

    def on_test_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the tested model."""
        if not has_graphs(trainer, self.split, self):
            return
        self._finished, _ = trained_for(trainer)
        self._draw(trainer, pl_module)

    def on_predict_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Draw the predicting model."""
        self.on_test_end(trainer, pl_module)

    def _rows(self, trainer: pl.Trainer) -> list[int]:
        """Return the rows of the chosen graphs."""
        if self.graphs is None:
            return choose_graphs(trainer, self.split, self.num_graphs, self.seed).tolist()
        count = split_size(trainer, self.split)
        if max(self.graphs) >= count:
            raise BadInput(f"graphs must be rows of the {self.split} split, 0 .. {count - 1}, got {list(self.graphs)}.")
        return list(self.graphs)

    def _graphs(self, trainer: pl.Trainer) -> tuple[ProbeGraphs, list[int]]:
        """Return the chosen graphs, and which of them are small enough to be drawn."""
        graphs = probe_graphs(trainer, self.split, torch.tensor(self._rows(trainer), dtype=torch.int64))
        rows = (graphs.table.num_nodes <= LARGEST_MATRIX).nonzero()[:, 0].tolist()
        if left_out := len(graphs.table) - len(rows):
            log.warning(
                "AttentionMaps leaves out %d of %d graphs of the %s split, which have more than %s nodes.",
                left_out, len(graphs.table), self.split, f"{LARGEST_MATRIX:,}",
            )  # fmt: skip
        return graphs, rows

    def _draw(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Compute and write the figures of the graphs, only in the first process."""
        self._drawn = self._finished
        if getattr(trainer, "fast_dev_run", False):
            return
        graphs, rows = self._graphs(trainer)
        if not rows:  # on every process, since the first waits for the others in what follows
            return
        if not trainer.is_global_zero:
            with whole_parameters(trainer):  # which the first process needs
                return
        name = module.spec.name if isinstance(module, BenchmarkModule) else type(module).__name__
        for row, maps in zip(rows, self._maps(trainer, module, graphs.batch(rows)), strict=False):
            drawing = self._drawing(trainer, graphs.table, row)
            number = row if graphs.table.graph_ids is None else int(graphs.table.graph_ids[row])
            title = f"{name}, {self.split} graph {number}, after epoch {self._finished}"
            self._keep(trainer, matrix_figure(maps, drawing.labels, title), f"{self.split}-{number}", "matrices")
            if isinstance(drawing, PlainDrawing) and drawing.takes_long:
                log.info("Graph %d is shown by its matrices alone: it has too many nodes for a layout.", number)
            else:
                self._keep(trainer, drawing_figure(maps, drawing, title), f"{self.split}-{number}", "drawing")

    def _maps(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Data) -> list[list[AttentionMap]]:
        """Return the maps of every graph; an empty list for a model without attention matrices."""
        with undisturbed(trainer, module, self.seed), record(traced_part(module)) as recording:
            run_layers(module, batch)
        shown = [trace for trace in recording if trace.attention]
        if not shown:
            name = type(traced_part(module)).__name__
            log.warning("%s has no attention matrices: no attention_maps are drawn.", name)
            return []
        layers = self.layers
        if layers is None:
            layers = [shown[place].layer for place in spread_out(len(shown), _MOST)]
        heads = self.heads
        if heads is None:  # figures have a column per head, so all layers show the same heads
            fewest = min(len(trace.attention[0]) for trace in shown if trace.attention)
            heads = range(min(fewest, _MOST))
        return attention_maps(recording, layers, heads)

    def _drawing(self, trainer: pl.Trainer, table: GraphTable, row: int) -> GraphDrawing:
        """Draw the molecule if the benchmark has its SMILES, else only the graph."""
        graph = table.slice(row, row + 1)
        edge_index, num_nodes = graph.columns["edge_index"].long().t(), int(graph.num_nodes[0])
        data = getattr(trainer, "datamodule", None)
        if data is not None and hasattr(data, "smiles") and data.spec.molecules:
            number = row if table.graph_ids is None else int(table.graph_ids[row])
            try:
                molecule = MoleculeDrawing.of(data.smiles(self.split)[number], edge_index, num_nodes)
            except BadInput as error:
                log.warning("Molecules are drawn as bare graphs: %s", error)
            else:
                if molecule is not None:
                    return molecule
                log.info(
                    "Graph %d is drawn bare: its nodes and edges are not the atoms and bonds of its SMILES.", number
                )
        return PlainDrawing.of(edge_index, num_nodes, graph.columns.get("pos"))

    def _keep(self, trainer: pl.Trainer, figure: Figure, graph: str, kind: str) -> None:
        """Write a figure into the run's folder, and pass it to the trackers."""
        folder = RunFolder(Path(trainer.default_root_dir)).attention_maps
        with writing(folder / f"{graph}_epoch-{self._finished:03}_{kind}.{self.file_format}") as file:
            figure.savefig(file, format=self.file_format)
        figure.set_layout_engine("none")  # laid out once, which takes longer than drawing
        log_figure(trainer, f"attention_maps/{graph}/{kind}", figure)
