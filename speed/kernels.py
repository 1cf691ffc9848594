"""Kernels in Numba beside the same mathematics by torch's operations, forward and backward, in one process.

Attention within graphs and along edges, sums over the edges of message passing, maxout scores and sparse-flow
attention, each as the models call it; what torch computes instead is what `GRAPHBENCH_KERNELS=torch` asks for. Sizes
are those of batches of molecules (ZINC), of peptides and of CLUSTER. Memory is kept between steps, as every
`graphbench` command keeps it.

    python speed/kernels.py
    python speed/kernels.py --threads 2 --rounds 31
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch
from timing import in_turns, medians, note
from torch import Tensor

from graphbench.cli.allocator import keep_memory
from graphbench.nn import (
    DenseLayout,
    attend_along_edges,
    attend_within_graphs,
    gated_messages,
    sum_neighbours,
    sum_rectified,
)
from graphbench.testing import computed_by
from graphbench_baselines.pna import reduced_messages
from graphbench_sfi_former import sparse_flow_attention
from graphbench_sft import maxout_scores

#: Batch -> sizes of its graphs: from, to, how many; and edges per node.
BATCHES = {"ZINC": (12, 37, 32, 2.1), "peptides": (60, 250, 32, 2.0), "CLUSTER": (41, 190, 16, 36.0)}
Step = Callable[[], object]


def sizes_of(least: int, most: int, count: int) -> list[int]:
    """Sizes between both, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(least, most + 1, (count,), generator=generator).tolist()


def differentiated(compute: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> Step:
    """Forward, and backward from gradients that are drawn once."""
    outputs = compute(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    upstream = [torch.randn_like(out) for out in outputs]

    def step() -> None:
        found = compute(*inputs)
        torch.autograd.grad(found if isinstance(found, tuple) else (found,), inputs, upstream)

    return step


def draw(*shape: int) -> Tensor:
    """Normal numbers that gradients are taken of."""
    return torch.randn(shape, requires_grad=True)


def attention_steps(dim: int = 64, num_heads: int = 4) -> dict[str, Step]:
    """Attention within graphs with and without dropout, where batches are small enough for both."""
    steps: dict[str, Step] = {}
    for name, (*range_of_sizes, _) in BATCHES.items():
        sizes = torch.tensor(sizes_of(*range_of_sizes))
        layout = DenseLayout.from_batch(torch.repeat_interleave(torch.arange(len(sizes)), sizes))
        for p in (0.0, 0.5):
            call = partial(attend_within_graphs, layout=layout, num_heads=num_heads, dropout=p)
            steps[f"attention, {name}, dropout {p}"] = differentiated(call, [draw(int(sizes.sum()), 3 * dim)])
    return steps


def message_steps(dim: int = 64) -> dict[str, Step]:
    """Sums over edges."""
    steps: dict[str, Step] = {}
    for name, (*range_of_sizes, per_node) in BATCHES.items():
        nodes = sum(sizes_of(*range_of_sizes))
        edges = int(per_node * nodes)
        index = torch.randint(nodes, (2, edges))
        weight = torch.rand(edges)
        neighbours = partial(sum_neighbours, edge_index=index, weight=weight)
        steps[f"sums of neighbours (GCN), {name}"] = differentiated(neighbours, [draw(nodes, dim)])
        rows, by_edge = draw(nodes, dim), draw(edges, dim)
        rectified = partial(_with_edges, sum_rectified, index)
        steps[f"rectified sums (GINE), {name}"] = differentiated(rectified, [rows, by_edge])
        gated = partial(_with_edges, gated_messages, index)
        steps[f"gated sums (GatedGCN), {name}"] = differentiated(gated, [draw(nodes, 4 * dim), by_edge])
        along = partial(_along_edges, index)
        steps[f"attention along edges (GT), {name}"] = differentiated(along, [draw(nodes, 3 * dim), by_edge])
        arriving = torch.bincount(index[1], minlength=nodes)
        in_order = torch.stack([index[0], index[1].sort().values])
        reduced = partial(_reduced, in_order, arriving)
        steps[f"sums and largest (PNA), {name}"] = differentiated(reduced, [rows, by_edge])
    return steps


def _with_edges(compute: Callable[..., Tensor], index: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
    return compute(nodes, index, edges)


def _along_edges(index: Tensor, qkv: Tensor, edges: Tensor) -> tuple[Tensor, ...]:
    mixed, scores, _ = attend_along_edges(qkv, index, edges, num_heads=4, with_scores=True)
    assert scores is not None
    return mixed, scores


def _reduced(index: Tensor, arriving: Tensor, sent: Tensor, edges: Tensor) -> tuple[Tensor, ...]:
    return reduced_messages(sent, edges, index, arriving)


def score_steps() -> dict[str, Step]:
    """Maxout scores of 1,024 tokens and a quarter of them, and sparse flows."""
    operands = [draw(4, 8, 1024, 32), draw(4, 8, 256, 32)]
    steps = {"maxout scores, 1,024 x 256": differentiated(maxout_scores, operands)}
    for nodes in (64, 256):
        flow = partial(sparse_flow_attention, penalty=1 / nodes, alpha=0.1)
        steps[f"sparse flow, {nodes} nodes"] = differentiated(flow, [draw(8, 4, nodes, 16) for _ in range(5)])
    return steps


def by_torch(step: Step) -> Step:
    """The same without kernels."""

    def run() -> None:
        with computed_by("torch"):
            step()

    return run


def main() -> None:
    """Print one line per kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"{'forward and backward':<40}{'torch ms':>10}{'Numba ms':>10}{'Numba / torch':>15}")
    for name, step in (attention_steps() | message_steps() | score_steps()).items():
        seconds = in_turns({"Numba": step, "torch": by_torch(step)}, options.rounds, warm_up=2)
        middle = medians(seconds)
        times = f"{1e3 * middle['torch']:10.2f}{1e3 * middle['Numba']:10.2f}"
        print(f"{name:<40}{times}{note(name, 'Numba', 'torch', seconds):15.2f}", flush=True)


if __name__ == "__main__":
    main()
