"""Random molecules with OGB's features."""

from __future__ import annotations

import pytest
import torch

#: Values of each feature of atoms and bonds; chirality has those of the time when the weights were released.
ATOMS, BONDS = (119, 4, 12, 12, 10, 6, 6, 2, 2), (5, 6, 2)


@pytest.fixture(scope="session")
def molecules():
    """Random graphs with rings of four, features of both ways of a bond alike; the last one is in two parts."""
    generator = torch.Generator().manual_seed(2)

    def draw(rows, sizes):
        return torch.stack([torch.randint(0, size, (rows,), generator=generator) for size in sizes], 1)

    made = []
    for n, rings in ((5, 1), (2, 0), (12, 4), (8, 2)):
        pairs = [(int(torch.randint(0, i, (1,), generator=generator)), i) for i in range(1, n)]
        for _ in range(rings):  # a new atom's neighbours are also joined through another one: two paths of length two
            a, b = sorted(torch.randperm(n, generator=generator)[:2].tolist())
            pairs += [(a, b)] if (a, b) not in pairs else []
        pairs = [pair for pair in pairs if n != 8 or (pair[0] < 5) == (pair[1] < 5)]
        edges, bonds = torch.tensor(pairs).t(), draw(len(pairs), BONDS)
        made.append(
            {
                "num_nodes": n, "edge_index": torch.cat([edges, edges.flip(0)], 1), "x": draw(n, ATOMS),
                "edge_attr": torch.cat([bonds, bonds]), "y": torch.randn(1, generator=generator),
            }
        )  # fmt: skip
    return made
