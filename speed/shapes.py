"""Count the shapes of padded batches in training, and the padding caused by rounding their sizes.

GPU libraries plan their kernels for each shape. `DenseLayout` pads to the largest graph of a batch, rounded up by
`rounded_size` on any device except the CPU. For several batch sizes this draws ten epochs of size-bucketed batches and
prints the number of different shapes `(graphs, nodes)`, and the ratio of padded node pairs with and without rounding.
Nothing is timed. PATTERN is generated; sizes of peptides have the published mean, deviation, minimum and maximum.

    python speed/shapes.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from data_path import show
from torch import Tensor

from graphbench.benchmarks.block_models.sampling import Chunk, sample_pattern_graphs, sample_patterns
from graphbench.data.sampler import SizeBucketSampler
from graphbench.nn.size_blocks import rounded_size

EPOCHS = 10
RULES: dict[str, Callable[[int], int]] = {
    "exact": lambda rows: rows,
    "multiples of 8": lambda rows: -(-rows // 8) * 8,
    "rounded_size": rounded_size,
}


def sizes_of() -> dict[str, Tensor]:
    """Return the number of nodes of each training graph, by data set."""
    chunk = Chunk((0,), 10_000, np.arange(10_000) % 100)
    drawn = np.random.default_rng(0).gamma((151 / 84) ** 2, 84**2 / 151, 10_873)
    peptides = np.clip(drawn.round(), 8, 444).astype(np.int64)
    pattern = sample_pattern_graphs(chunk, sample_patterns(0)).num_nodes.astype(np.int64)
    return {"PATTERN": torch.from_numpy(pattern), "peptides": torch.from_numpy(peptides)}


def count(sizes: Tensor, batch_size: int) -> dict[str, tuple[int, int]]:
    """Count different shapes and padded pairs of nodes, by rule."""
    sampler = SizeBucketSampler(sizes, batch_size, shuffle=True)
    shapes: dict[str, set[tuple[int, int]]] = {name: set() for name in RULES}
    pairs = dict.fromkeys(RULES, 0)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for rows in sampler:
            smallest, largest = int(sizes[rows].min()), int(sizes[rows].max())
            for name, rule in RULES.items():
                padded = largest if smallest == largest else rule(largest)
                shapes[name].add((len(rows), padded))
                pairs[name] += len(rows) * padded**2
    return {name: (len(shapes[name]), pairs[name]) for name in RULES}


def main() -> None:
    """Print one line per data set and batch size."""
    rows = []
    for name, sizes in sizes_of().items():
        for batch_size in (16, 26, 32, 64, 128, 200):
            counts = count(sizes, batch_size)
            exact = counts["exact"][1]
            rows.append([name, batch_size, *(f"{shapes}, {pairs / exact:.3f}" for shapes, pairs in counts.values())])
    show(f"Shapes in {EPOCHS} epochs, and padded pairs over exact ones", ["sizes of", "batch", *RULES], rows)


if __name__ == "__main__":
    main()
