"""Measure how many directions the tokens span, depth by depth."""

from __future__ import annotations

from typing import ClassVar

from graphbench.callbacks.probe import ProbeCallback
from graphbench.contracts import GraphBatch
from graphbench.diagnostics import Recording, Summary, summarise_ranks


class RankProgression(ProbeCallback):
    """Rank, similarity and smoothness of the node tokens by depth, on probe graphs, before training and after epochs.

    Depth l is what enters attention layer l, and the last depth is what leaves the model: numerical rank (relative
    tolerance `max(n, d) eps`), stable rank, effective rank, mean cosine similarity, relative distance to the rank-one
    subspace and relative Dirichlet energy. "Sampling Foundational Transformer", figures 3 and 8.

    Writes `diagnostics/rank_progression.csv` and logs `rank_progression/MEASURE/layer_L`; TensorBoard gets a
    picture of layers by epochs for each measure, and histograms of the effective rank over the probe graphs.
    Options as in `ProbeCallback`.
    """

    name: ClassVar[str] = "rank_progression"
    histograms: ClassVar[tuple[str, ...]] = ("effective_rank",)

    def measure(self, recording: Recording, batch: GraphBatch, number: int) -> Summary:
        """Measures of one probe batch by depth."""
        return summarise_ranks(recording, batch.edge_index)
