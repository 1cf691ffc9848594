"""Measure the gain of kernels: one table of operations in a whole training step, and one of isolated calls.

A row of the first table has a model that uses the operation, on a random batch with sizes as in molecules (ZINC),
peptides or CLUSTER: a training step with all kernels, and with all except this one, for which the plain form is used.
For encodings it has the time of preparing graphs. `apart` is the deviation from the plain form: the largest difference
of any gradient, or of an encoding, divided by the largest value. The second table has forward and backward of single
operations. Memory is kept between steps, as in every `graphbench` command.

    python speed/kernels.py
    python speed/kernels.py --threads 2 --rounds 31
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial

import torch
from timing import in_turns, medians, note
from torch import Tensor, nn

from graphbench import BenchmarkSpec, Features, GraphTable
from graphbench.cli.process import keep_memory
from graphbench.contracts import Architecture, Encoding, GraphBatch
from graphbench.encodings import RWSE, LapPE, ShortestPaths
from graphbench.nn import (
    DenseLayout,
    attend_within_graphs,
    gated_messages,
    sum_neighbours,
)
from graphbench.testing import computed_by, encode
from graphbench_baselines import GCN, GPS, GatedGCN
from graphbench_sfi_former import SFiFormer, sparse_flow_attention
from graphbench_sft import SFT, maxout_scores

#: Batch -> sizes of its graphs (minimum, maximum, number) and edges per node.
BATCHES = {"ZINC": (12, 37, 32, 2.1), "peptides": (60, 250, 32, 2.0), "CLUSTER": (41, 190, 16, 36.0)}
Step = Callable[[], object]


def sizes_of(least: int, most: int, count: int) -> list[int]:
    """Return sizes between both, the same in every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(least, most + 1, (count,), generator=generator, device="cpu").tolist()


def differentiated(compute: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor]) -> Step:
    """Return a step of forward, and backward from gradients that are drawn once."""
    outputs = compute(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    upstream = [torch.randn_like(out) for out in outputs]

    def step() -> None:
        found = compute(*inputs)
        torch.autograd.grad(found if isinstance(found, tuple) else (found,), inputs, upstream)

    return step


def draw(*shape: int) -> Tensor:
    """Draw normal numbers that require gradients."""
    return torch.randn(shape, requires_grad=True)


def attention_steps(dim: int = 64, num_heads: int = 4) -> dict[str, Step]:
    """Return steps of attention within graphs with and without dropout, for batches small enough for both."""
    steps: dict[str, Step] = {}
    for name, (*range_of_sizes, _) in BATCHES.items():
        sizes = torch.tensor(sizes_of(*range_of_sizes))
        layout = DenseLayout.from_batch(torch.repeat_interleave(torch.arange(len(sizes)), sizes))
        for p in (0.0, 0.5):
            call = partial(attend_within_graphs, layout=layout, num_heads=num_heads, dropout=p)
            steps[f"attention, {name}, dropout {p}"] = differentiated(call, [draw(int(sizes.sum()), 3 * dim)])
    return steps


def message_steps(dim: int = 64) -> dict[str, Step]:
    """Return steps of sums over edges."""
    steps: dict[str, Step] = {}
    for name, (*range_of_sizes, per_node) in BATCHES.items():
        nodes = sum(sizes_of(*range_of_sizes))
        edges = int(per_node * nodes)
        index = torch.randint(nodes, (2, edges))
        weight = torch.rand(edges)
        neighbours = partial(sum_neighbours, edge_index=index, weight=weight)
        steps[f"sums of neighbours (GCN), {name}"] = differentiated(neighbours, [draw(nodes, dim)])

        by_edge = draw(edges, dim)
        gated = partial(_with_edges, gated_messages, index)
        steps[f"gated sums (GatedGCN), {name}"] = differentiated(gated, [draw(nodes, 4 * dim), by_edge])
    return steps


def _with_edges(compute: Callable[..., Tensor], index: Tensor, nodes: Tensor, edges: Tensor) -> Tensor:
    return compute(nodes, index, edges)


def score_steps() -> dict[str, Step]:
    """Return steps of maxout scores of 1,024 tokens and a quarter of them, and of sparse flows."""
    operands = [draw(4, 8, 1024, 32), draw(4, 8, 256, 32)]
    steps = {"maxout scores, 1,024 x 256": differentiated(maxout_scores, operands)}
    for nodes in (64, 256):
        flow = partial(sparse_flow_attention, penalty=1 / nodes, alpha=0.1)
        steps[f"sparse flow, {nodes} nodes"] = differentiated(flow, [draw(8, 4, nodes, 16) for _ in range(5)])
    return steps


SPEC = BenchmarkSpec("Random", "graph-regression", Features((28,)), Features((4,)), "MAE", False, "L1")
#: Operation, a model that uses it, and its batch.
MODELS: tuple[tuple[str, Callable[[], Architecture], str], ...] = (
    ("graphbench::packed_attention", partial(GPS, SPEC), "ZINC"),
    ("graphbench::packed_attention", partial(GPS, SPEC, num_layers=4), "peptides"),
    ("graphbench::sum_rectified", partial(GPS, SPEC), "CLUSTER"),
    ("graphbench::gated_messages", partial(GatedGCN, SPEC), "CLUSTER"),
    ("graphbench::sum_neighbours", partial(GCN, SPEC), "CLUSTER"),
    ("graphbench_sft::mixture", partial(SFT, SPEC), "peptides"),
    ("graphbench_sfi_former::attend_rows", partial(SFiFormer, SPEC), "ZINC"),
    ("graphbench_sfi_former::attend_rows", partial(SFiFormer, SPEC), "peptides"),
    ("graphbench_sfi_former::attend_rows", partial(SFiFormer, SPEC), "CLUSTER"),
)
ENCODINGS: tuple[tuple[str, Encoding, str], ...] = (
    ("graphbench::random_walks", RWSE(20), "ZINC"),
    ("graphbench::laplacian_eigenvectors", LapPE(8), "ZINC"),
    ("graphbench::shortest_paths", ShortestPaths(), "peptides"),
)


def random_graphs(name: str) -> GraphTable:
    """Return graphs of the sizes of a batch, with edges in both directions; the same in every call."""
    least, most, count, per_node = BATCHES[name]
    generator, graphs = torch.Generator().manual_seed(1), []
    for nodes in sizes_of(least, most, count):
        half = torch.randint(nodes, (2, int(per_node * nodes / 2)), generator=generator)
        graphs.append(
            {
                "num_nodes": nodes,
                "edge_index": torch.cat([half, half.flip(0)], dim=1),
                "x": torch.randint(28, (nodes, 1), generator=generator),
                "edge_attr": torch.randint(4, (half.shape[1], 1), generator=generator).repeat(2, 1),
                "y": torch.randn(1, generator=generator),
            }
        )
    return GraphTable.from_graphs(graphs)


def training_step(model: nn.Module, batch: GraphBatch) -> Step:
    """Return a step of AdamW on the mean of the model's node outputs."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        model(batch).node.square().mean().backward()
        optimizer.step()

    return step


def gradients(model: nn.Module, batch: GraphBatch) -> list[Tensor]:
    """Return gradients of all parameters, without dropout, which kernels draw differently, and with batch statistics.

    With running statistics an untrained model does not normalise, and ten layers of sums amplify rounding.
    """
    model.eval().zero_grad()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.train()
    model(batch).node.square().mean().backward()
    model.train()
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def apart(found: Sequence[Tensor], plain: Sequence[Tensor]) -> float:
    """Return the largest difference of all numbers, divided by the largest number."""
    most = max(float(x.abs().max()) for x in plain)
    return max(float((x - y).abs().max()) for x, y in zip(found, plain, strict=True)) / most


def compare_steps(rounds: int) -> None:
    """Print the gain of each kernel in a step."""
    print(f"{'operation':<40}{'in':<24}{'plain ms':>10}{'kernel ms':>11}{'gain':>7}{'apart':>10}")
    for name, make, batch_name in MODELS:
        torch.manual_seed(0)
        model = make()
        batch = encode(random_graphs(batch_name), model.required_encodings()).batch(range(BATCHES[batch_name][2]))
        found = gradients(model, batch)
        with computed_by("torch", name):
            difference = apart([x.clone() for x in found], gradients(model, batch))
        place = f"{type(model).__name__}, {batch_name}"
        print_row(name, place, training_step(model, batch), difference, rounds)
    for name, encoding, batch_name in ENCODINGS:
        table = random_graphs(batch_name)
        columns = [x.float() for x in encoding.compute(table).columns.values()]
        with computed_by("torch", name):
            plain = [x.float() for x in encoding.compute(table).columns.values()]
        print_row(name, f"prepare, {batch_name}", partial(encoding.compute, table), apart(columns, plain), rounds)


def print_row(name: str, place: str, step: Step, difference: float, rounds: int) -> None:
    """Time a step with the kernel of an operation and without."""
    seconds = in_turns({"kernel": step, "plain": by_torch(step, name)}, rounds, warm_up=2)
    middle, share = medians(seconds), note(f"{name}, {place}", "kernel", "plain", seconds)
    times = f"{1e3 * middle['plain']:10.2f}{1e3 * middle['kernel']:11.2f}{1 / share:7.2f}"
    print(f"{name:<40}{place:<24}{times}{difference:10.1e}", flush=True)


def by_torch(step: Step, *operations: str) -> Step:
    """Return the same step with plain forms of some operations, or of all."""

    def run() -> None:
        with computed_by("torch", *operations):
            step()

    return run


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    compare_steps(options.rounds)
    print(f"\n{'forward and backward':<40}{'torch ms':>10}{'Numba ms':>10}{'Numba / torch':>15}")
    for name, step in (attention_steps() | message_steps() | score_steps()).items():
        seconds = in_turns({"Numba": step, "torch": by_torch(step)}, options.rounds, warm_up=2)
        middle = medians(seconds)
        times = f"{1e3 * middle['torch']:10.2f}{1e3 * middle['Numba']:10.2f}"
        print(f"{name:<40}{times}{note(name, 'Numba', 'torch', seconds):15.2f}", flush=True)


if __name__ == "__main__":
    main()
