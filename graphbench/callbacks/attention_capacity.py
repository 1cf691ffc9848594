"""Measure how much attention to substructures can still change, layer by layer."""

from __future__ import annotations

from typing import ClassVar

import pytorch_lightning as pl
import torch
from torch_geometric.data import Data

from graphbench.callbacks.probe import LARGEST_MATRIX, ProbeCallback, watched
from graphbench.contracts import Encoding, GraphTable
from graphbench.contracts.spec import Split
from graphbench.diagnostics import Patterns, Summary, merge, summarise_attention, summarise_capacity
from graphbench.encodings import Substructures
from graphbench.errors import BadInput


class AttentionCapacity(ProbeCallback):
    """Measure attention capacity (DeepGraph) and where layers lose it on probe graphs, before and during training.

    It measures capacity over the Frobenius norm of the values, of all heads together, of each head, and of substructure
    tokens if a model has them; the upper bound of the paper's theorems with its factors alpha, lambda and gamma; and
    entropy, share of zeros and row sums of attention matrices. See `graphbench.diagnostics.summary` for all measures.

    The substructures are found again on the probe graphs, whatever the model itself reads, so that all models of a
    comparison are measured with the same vocabulary. Graphs above 4,096 nodes are left out with a warning: the bound
    and the attention need matrices of all pairs of nodes.

    It writes `diagnostics/attention_capacity.csv` and logs `attention_capacity/MEASURE/layer_L`. TensorBoard gets a
    figure of layers by epochs for each measure, drawn after 1, 2, 4, 8, ... measurements and the last, and histograms
    of capacity and entropy over the probe graphs.

    Args:
        substructures: a `Substructures` encoding, or another one with its fields `member_node` and
            `member_substructure`; by default DeepGraph's vocabulary for molecules, limited to 200 matches per graph and
            pattern, since the cost of capacity is quadratic in their number.
        num_graphs: total number of probe graphs, distributed over the processes.
        split: split they come from.
        every_n_epochs: measure after every n-th epoch, and after the last.
        batch_size: probe graphs that one process measures at once; bounds the memory.
        seed: chooses the graphs.

    Raises:
        BadInput: the encoding has other fields, or a number is not positive.
    """

    name: ClassVar[str] = "attention_capacity"
    histograms: ClassVar[tuple[str, ...]] = ("capacity", "entropy")
    largest: ClassVar[int | None] = LARGEST_MATRIX

    def __init__(
        self,
        substructures: Encoding | None = None,
        num_graphs: int = 32,
        split: Split = "val",
        every_n_epochs: int = 2,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(num_graphs, split, every_n_epochs, batch_size, seed)
        self.substructures = substructures or Substructures(max_per_pattern=200)
        if not {"member_node", "member_substructure"} <= set(self.substructures.layout):
            raise BadInput(
                f"substructures must be an encoding with the fields member_node and member_substructure, but "
                f"{self.substructures.name} has {', '.join(self.substructures.layout)}."
            )
        self._patterns: list[Patterns] = []

    def prepare(self, graphs: GraphTable) -> None:
        """Find the substructures of the probe graphs; separate tables keep them apart from the model's."""
        edges, ptr = graphs.columns["edge_index"], {axis: graphs.ptr[axis] for axis in ("node", "edge")}
        bare = GraphTable({"edge_index": edges}, {"edge_index": graphs.layout["edge_index"]}, ptr)
        encoded = self.substructures.compute(bare)
        table = bare.with_columns(encoded.columns, self.substructures.layout, encoded.ptr)
        parts = [table.batch(part) for part in torch.arange(len(table)).split(self.batch_size) if len(part)]
        self._patterns = [
            Patterns.uniform(b.member_node, b.member_substructure, b.substructure_batch, b.ptr.diff()) for b in parts
        ]

    def look(self, module: pl.LightningModule, batch: Data, number: int) -> Summary:
        """Return the measures of one probe batch by layer."""
        recording, graphs = watched(module, batch)
        if self._patterns[number].node.device != graphs.edge_index.device:  # moved once and kept there
            self._patterns[number] = self._patterns[number].to(graphs.edge_index.device)
        return merge((summarise_capacity(recording, self._patterns[number]), summarise_attention(recording)))
