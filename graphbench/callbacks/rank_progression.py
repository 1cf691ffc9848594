"""Measure by depth how many directions tokens span, how far information travels, and which gradients arrive."""

from __future__ import annotations

from typing import ClassVar

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch_geometric.data import Data

from graphbench.callbacks.probe import ProbeCallback, check_positive, run_layers, traced_part, watched
from graphbench.contracts import GraphTable
from graphbench.contracts.pyg import to_graph_batch
from graphbench.contracts.spec import Split
from graphbench.data.worker_pool import random_state
from graphbench.diagnostics import (
    Summary,
    differentiable,
    record,
    summarise_gradients,
    summarise_influence,
    summarise_ranks,
)
from graphbench.diagnostics.influence import InfluenceNorm
from graphbench.errors import check_choice
from graphbench.training.module import BenchmarkModule


class RankProgression(ProbeCallback):
    """Measure rank, similarity and smoothness of node tokens by depth on probe graphs, before and during training.

    Depth l is what enters attention layer l, and the last depth is what leaves the model: numerical rank (relative
    tolerance `max(n, d) eps`), stable rank, effective rank, mean cosine similarity, relative distance to the rank-one
    subspace and relative Dirichlet energy. "Sampling Foundational Transformer", figures 3 and 8.

    It writes `diagnostics/rank_progression.csv` and logs `rank_progression/MEASURE/layer_L`; TensorBoard gets a figure
    of layers by epochs for each measure, and histograms of the effective rank over the probe graphs. Options as in
    `ProbeCallback`.
    """

    name: ClassVar[str] = "rank_progression"
    histograms: ClassVar[tuple[str, ...]] = ("effective_rank",)

    def look(self, module: pl.LightningModule, batch: Data, number: int) -> Summary:
        """Return the measures of one probe batch by depth."""
        recording, graphs = watched(module, batch, matrices=False)
        return summarise_ranks(recording, graphs.edge_index)


class InfluenceRange(ProbeCallback):
    """Measure the range of information between nodes by depth on probe graphs, before training and after epochs.

    It uses the Jacobian of a node's representation with respect to every other node's input, by the distance between
    the two; `range` is its mean distance, R of "Towards Quantifying Long-Range Interactions in Graph Machine Learning".
    See `graphbench.diagnostics.influence`. The inputs are the encoded features, as for integrated gradients, or the
    dense columns if a model reads them itself. Depths are those of `RankProgression`; models without attention layers
    have only their output.

    It writes `diagnostics/range.csv` and logs `range/MEASURE/layer_L`; shares by distance stay in the table, and the
    report draws them.

    A measurement costs `num_targets * num_probes` backward passes of the probe graphs for each depth.

    Args:
        num_graphs: total number of probe graphs, distributed over the processes.
        num_targets: nodes of each graph whose representations are differentiated.
        num_probes: backward passes for each of them: channels drawn for "l1", random signs for "squared"; None for all
            channels, which is exact.
        norm: "l1", sum of absolute entries of the Jacobian, or "squared", sum of their squares.
        max_distance: the last distance with its own share.
        split: split the graphs come from.
        every_n_epochs: measure after every n-th epoch, and after the last.
        batch_size: probe graphs that one process measures at once; bounds the memory.
        seed: chooses graphs, nodes and channels.

    Raises:
        BadInput: a number is not positive, or the norm is unknown.
    """

    name: ClassVar[str] = "range"
    histograms: ClassVar[tuple[str, ...]] = ("range",)
    unlogged: ClassVar[str] = "share_"
    needs: ClassVar[str] = "features of nodes that it reads"

    def __init__(
        self,
        num_graphs: int = 16,
        num_targets: int = 1,
        num_probes: int | None = 4,
        norm: InfluenceNorm = "l1",
        max_distance: int = 20,
        split: Split = "val",
        every_n_epochs: int = 4,
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__(num_graphs, split, every_n_epochs, batch_size, seed)
        probes = 1 if num_probes is None else num_probes
        check_positive(self, num_targets=num_targets, num_probes=probes, max_distance=max_distance)
        check_choice("InfluenceRange: norm", norm, ("l1", "squared"))
        self.num_targets, self.num_probes, self.norm, self.max_distance = num_targets, num_probes, norm, max_distance
        self._targets: list[Tensor] = []

    def prepare(self, graphs: GraphTable) -> None:
        """Draw the nodes of each graph by its row in the split, independently of batches and processes."""
        assert graphs.graph_ids is not None
        rows, sizes = graphs.graph_ids.tolist(), graphs.num_nodes
        drawn = [
            random_state(self.seed, row).permutation(size)[: self.num_targets]
            for row, size in zip(rows, sizes.tolist(), strict=True)
        ]
        self._targets = []
        for part in torch.arange(len(rows)).split(self.batch_size):
            starts = sizes[part].cumsum(0) - sizes[part]
            of_part = [torch.from_numpy(drawn[row]) + start for row, start in zip(part.tolist(), starts, strict=True)]
            self._targets.append(torch.cat(of_part))

    def look(self, module: pl.LightningModule, batch: Data, number: int) -> Summary:
        """Run the layers with gradients, and measure; nothing is added to the gradients of parameters."""
        with torch.inference_mode(False), torch.enable_grad():
            batch = batch.clone()  # a test runs in inference mode, whose tensors have no gradients
            graphs = to_graph_batch(batch, module.spec) if isinstance(module, BenchmarkModule) else batch
            with differentiable(module, graphs) as inputs, record(traced_part(module), matrices=False) as recording:
                run_layers(module, graphs)
            if not inputs:
                return {}
            graphs, targets = to_graph_batch(graphs), self._targets[number]
            # The same nodes and channels every time.
            return summarise_influence(
                recording, inputs, graphs.edge_index, graphs.batch, targets, self.norm, self.num_probes,
                self.max_distance, torch.Generator().manual_seed(self.seed),
            )  # fmt: skip


class GradientFlow(ProbeCallback):
    """Measure loss gradients and the weights' condition by depth on probe graphs, before training and after epochs.

    `gradient_norm` is the Frobenius norm, over the tokens of a graph, of the loss's gradient with respect to what
    enters attention layer l `[T, dim]`, and last with respect to what leaves the model, at the depths of
    `RankProgression`. The loss is the training loss without the penalty of a representation, summed over rows instead
    of averaged, so that a graph's norm does not depend on the number of graphs in the batch. `condition` is the largest
    ratio of singular values among the weight matrices of layer l. See `graphbench.diagnostics.gradients`.

    It writes `diagnostics/gradients.csv` and logs `gradients/MEASURE/layer_L`; the report draws both next to capacity,
    rank and range. A measurement costs one forward and one backward pass of the probe graphs, and the singular values
    of the layers' weights; nothing is added to the gradients of parameters. Options as in `ProbeCallback`.
    """

    name: ClassVar[str] = "gradients"
    histograms: ClassVar[tuple[str, ...]] = ("gradient_norm",)
    needs: ClassVar[str] = "loss of a BenchmarkModule that depends on what its layers read"

    def look(self, module: pl.LightningModule, batch: Data, number: int) -> Summary:
        """Run model and loss with gradients, and measure."""
        if not isinstance(module, BenchmarkModule):
            return {}
        with torch.inference_mode(False), torch.enable_grad():
            graphs = module.read_batch(batch.clone())  # a test runs in inference mode, whose tensors have no gradients
            with record(module.architecture, matrices=False) as recording:
                sums, _ = module.task.terms(module(graphs), graphs)
            return summarise_gradients(recording, sums.sum(), graphs.batch, module.architecture)
