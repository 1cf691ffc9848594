"""Measure training steps whose attention splits a batch into fewer or more blocks of graphs of similar size.

A block costs its pairs of nodes, including padding, and its function calls, which are assumed to cost as much as
`BLOCK_COST` pairs (`graphbench/nn/size_blocks.py`). Here steps with other numbers alternate with steps with that
number: a ratio below 1 is faster. The last column shows steps with a ready layout: the maximum gain if workers of the
loader computed it. Batches are molecules that RDKit ships, and graphs of the sizes of ZINC, peptides and CLUSTER.

    python speed/blocks.py
    python speed/blocks.py --configs gps/zinc --costs 0 2000 --rounds 15
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from unittest import mock

import torch
from gps_throughput import KINDS, OurGPS, make_step, molecule_like
from limit import made, parser_of, prepare, step_of
from timing import in_turns, note, ratio

from graphbench import GraphBatch
from graphbench.nn import DenseLayout, size_blocks

Step = Callable[[GraphBatch], object]
#: Steps whose layouts are computed in advance.
READY = "layouts ready"


def cases(configurations: Sequence[str], batch_size: int) -> Iterator[tuple[str, Step, list[GraphBatch]]]:
    """Yield name, step and batches of each case."""
    for configuration in configurations:
        torch.manual_seed(0)
        model, batch = made(configuration, batch_size)
        step = step_of(model, batch)
        yield configuration, lambda batch, step=step: step(), [batch]
    for name, kind in KINDS.items():
        table = molecule_like(8 * kind.batch_size, kind, torch.Generator().manual_seed(0))
        parts = torch.randperm(len(table), generator=torch.Generator().manual_seed(0)).split(kind.batch_size)
        yield f"GPS, sizes of {name}", make_step(OurGPS(kind), fused=True), [table.batch(part) for part in parts]


def step_with(cost: int, step: Step, batches: Iterator[GraphBatch]) -> None:
    """Run a step on the next batch, with this cost of a block."""
    size_blocks.BLOCK_COST = cost
    step(next(batches))


def step_with_layouts(kept: dict[int, DenseLayout], cost: int, step: Step, batches: Iterator[GraphBatch]) -> None:
    """Run a step on the next batch, computing its layout only the first time."""
    make, size_blocks.BLOCK_COST = DenseLayout.from_batch, cost

    def layout_of(batch: GraphBatch) -> DenseLayout:
        if id(batch) not in kept:
            kept[id(batch)] = make(batch)
        return kept[id(batch)]

    with mock.patch.object(DenseLayout, "from_batch", layout_of):
        step(next(batches))


def main() -> None:
    """Print one line per model."""
    parser = parser_of(__doc__)
    parser.add_argument("--costs", nargs="+", type=int, default=[0, 2_000, 8_000, 10**9], help="other costs of a block")
    options = parser.parse_args()
    prepare()
    usual = size_blocks.BLOCK_COST
    columns = [*(f"{cost:,}" for cost in options.costs), READY]
    print(f"Steps over those with a cost of {usual:,}\n{'':<28}" + "".join(f"{column:>16}" for column in columns))
    for name, step, batches in cases(options.configs, options.batch_size):
        calls: dict[str, Callable[[], object]] = {
            f"{cost:,}": partial(step_with, cost, step, itertools.cycle(batches)) for cost in (usual, *options.costs)
        }
        kept: dict[int, DenseLayout] = {}
        calls[READY] = partial(step_with_layouts, kept, usual, step, itertools.cycle(batches))
        seconds = in_turns(calls, options.rounds, warm_up=len(batches))
        for other in columns:
            note(name, f"blocks: {other}", f"{usual:,}", {f"blocks: {other}": seconds[other]} | seconds)
        ratios = [ratio(seconds[other], seconds[f"{usual:,}"]) for other in columns]
        print(f"{name:<28}" + "".join(f"{value:16.2f}" for value in ratios), flush=True)


if __name__ == "__main__":
    main()
