"""Compare speed and memory of exact sparse-flow attention with the paper's iteration and ordinary attention.

    python speed/sparse_flow.py                     # all tables; about ten minutes on two cores
    python speed/sparse_flow.py --threads 1 --clock cpu    # on a busy machine
    python speed/sparse_flow.py --only speed --logits 30 --steps   # rows beyond float32, without the iteration

Each cell is forward and backward of the whole attention, float32: Q K^T and Q~ K~^T, softmaxes, flow, times V; batch 8,
4 heads of width 16, penalty 1 / N, alpha 0.1, normal logits of standard deviation --logits. Columns:

- softmax: ordinary attention written out; SDPA: the same in torch's own fused kernel;
- fused flow: as in the models; plain flow: the same in plain torch, without kernels; composed flow: softmaxes and the
  public `sparse_flow`;
- T=20: 20 steps of the paper's iteration, Barzilai-Borwein from a uniform start. Its error is that of its attention
  matrix, relative to the exact one in the Frobenius norm.

Columns alternate within a round, so a busy moment of the machine affects all equally; tables show the median over the
rounds and, in brackets, the best.

Memory is the peak of torch's allocations during one call, including inputs and their gradients, from the profiler's
record of every allocation; each cell has a separate process.

On Linux a tensor of more than 32 MB (N = 512) is by default mapped and cleared again at every operation, which slows
all that create such tensors. So memory is kept between calls, as in every `graphbench` command (see `allocator.py`);
with GRAPHBENCH_MALLOC=system in the environment it is not, and the header says which.

Another table compares the public `sparse_flow` of given resistances and frictions `[B, H, N, N]`, times V, with the
softmax of given scores, times V: the solver by itself.

On a CPU the fused flow uses Numba kernels; with GRAPHBENCH_KERNELS=torch it does not.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from timing import note, peak_bytes
from torch import Tensor
from torch.nn import functional

from graphbench.cli.process import keep_memory
from graphbench.testing import computed_by
from graphbench_sfi_former import sparse_flow, sparse_flow_attention, sparse_flow_proximal, sparse_flow_weights

BATCH, HEADS, WIDTH, ALPHA = 8, 4, 16, 0.1
#: A column gets no further round after this many seconds at one size, but always at least three.
SECONDS_PER_CELL = 40.0
Attention = Callable[[list[Tensor]], Tensor]
Clock = Callable[[], float]


def softmax_attention(inputs: list[Tensor]) -> Tensor:
    """Compute ordinary attention, written out, which defines a ratio of 1."""
    query, key, _, _, value = inputs
    return (query @ key.transpose(-1, -2) * WIDTH**-0.5).softmax(-1) @ value


def fused_softmax_attention(inputs: list[Tensor]) -> Tensor:
    """Compute ordinary attention in torch's fused kernel."""
    query, key, _, _, value = inputs
    return functional.scaled_dot_product_attention(query, key, value)


def flow_attention(inputs: list[Tensor], solver: Literal["exact"] | Callable[..., Tensor]) -> Tensor:
    """Compute sparse-flow attention with this solver."""
    query, key, friction_query, friction_key, value = inputs
    penalty = 1 / query.shape[-2]
    return sparse_flow_attention(query, key, friction_query, friction_key, value, penalty, ALPHA, solver=solver)


def plain_flow(inputs: list[Tensor]) -> Tensor:
    """Compute sparse-flow attention without kernels."""
    with computed_by("torch"):
        return flow_attention(inputs, "exact")


def baseline(name: str) -> Attention:
    """Return the attention that a column of the tables measures."""
    if name.startswith("T="):
        return partial(flow_attention, solver=iteration(int(name[2:])))
    named: dict[str, Attention] = {
        "softmax": softmax_attention,
        "SDPA": fused_softmax_attention,
        "fused flow": partial(flow_attention, solver="exact"),
        "plain flow": partial(plain_flow),
        "composed flow": partial(flow_attention, solver=sparse_flow),
    }
    return named[name]


def iteration(num_steps: int) -> Callable[..., Tensor]:
    """Return the paper's iteration with T steps."""
    return partial(sparse_flow_proximal, num_steps=num_steps)


def make_inputs(num_nodes: int, device: str, logits: float = 1.0) -> list[Tensor]:
    """Draw Q, K, Q~, K~, V with normal entries, and logits of standard deviation `logits`."""
    torch.manual_seed(0)
    shape = (BATCH, HEADS, num_nodes, WIDTH)
    sizes = (logits, 1.0, logits, 1.0, 1.0)
    return [(torch.randn(shape, device=device) * size).requires_grad_() for size in sizes]


def run(attention: Attention, inputs: list[Tensor], upstream: Tensor) -> None:
    """Run forward and backward once."""
    used = inputs if isinstance(attention, partial) else [inputs[0], inputs[1], inputs[4]]
    torch.autograd.grad(attention(inputs), used, upstream)
    if upstream.is_cuda:
        torch.cuda.synchronize()


def time_size(
    num_nodes: int, names: list[str], rounds: int, device: str, clock: Clock, logits: float
) -> dict[str, list[float]]:
    """Return the seconds of every round for every column."""
    inputs = make_inputs(num_nodes, device, logits)
    upstream = torch.randn_like(inputs[0])
    named = {name: baseline(name) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in named}
    for _ in range(rounds + 1):  # the first warms up
        for name, attention in named.items():
            if len(seconds[name]) > 3 and sum(seconds[name]) > SECONDS_PER_CELL:
                continue
            start = clock()
            run(attention, inputs, upstream)
            seconds[name].append(clock() - start)
            if seconds[name][-1] > 1:
                gc.collect()
    return {name: values[1:] for name, values in seconds.items()}


def time_solver(num_nodes: int, rounds: int, device: str, clock: Clock, logits: float) -> dict[str, list[float]]:
    """Return the seconds of every round of softmax and the public solver, from `[B, H, N, N]` to Z V and back."""
    torch.manual_seed(0)
    shape = (BATCH, HEADS, num_nodes, num_nodes)
    scores = (torch.randn(shape, device=device) * logits).requires_grad_()
    rows = [(torch.randn(shape, device=device) * logits).softmax(-1).requires_grad_() for _ in range(2)]
    value = torch.randn(*shape[:3], WIDTH, device=device, requires_grad=True)
    upstream = torch.randn_like(value)
    calls: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
        "softmax of scores": (lambda: scores.softmax(-1) @ value, [scores, value]),
        "sparse_flow": (lambda: sparse_flow(*rows, 1 / num_nodes, ALPHA) @ value, [*rows, value]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):  # the first warms up
        for name, (call, inputs) in calls.items():
            start = clock()
            torch.autograd.grad(call(), inputs, upstream)
            if upstream.is_cuda:
                torch.cuda.synchronize()
            seconds[name].append(clock() - start)
    return {name: values[1:] for name, values in seconds.items()}


def memory_of_cell(name: str, num_nodes: int, device: str) -> int:
    """Return the peak bytes of one call (see the top of this file); call it in a fresh process."""
    inputs = make_inputs(num_nodes, device)
    upstream = torch.randn_like(inputs[0])
    attention = baseline(name)
    if device != "cpu":
        run(attention, make_inputs(8, device), torch.randn(BATCH, HEADS, 8, WIDTH, device=device))
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(attention, inputs, upstream)
        return torch.cuda.max_memory_allocated() - before
    return peak_bytes(lambda: run(attention, inputs, upstream))


def memory_in_own_process(name: str, num_nodes: int, device: str) -> float:
    """Return the peak megabytes of one cell."""
    command = [sys.executable, __file__, "--memory-cell", name, "--sizes", str(num_nodes), "--device", device]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout.split()[-1]) / 2**20


def errors_of_iteration(num_nodes: int, steps: list[int], device: str) -> list[float]:
    """Return the relative error of the attention matrix after each number of steps."""
    query, key, friction_query, friction_key, _ = (x.detach() for x in make_inputs(num_nodes, device))

    def flow(solver: Callable[..., Tensor]) -> Tensor:
        return sparse_flow_weights(query, key, friction_query, friction_key, 1 / num_nodes, ALPHA, solver=solver)

    exact = flow(sparse_flow)
    return [float((flow(iteration(t)) - exact).norm() / exact.norm()) for t in steps]


def print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print a Markdown table with aligned columns."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}\n")
    for row in [head, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) + " |")


def print_header(device: str, keeps: bool) -> None:
    """Print the machine and settings."""
    processor = torch.cuda.get_device_name() if device == "cuda" else platform.processor() or platform.machine()
    memory = "kept between calls" if keeps else "left to the system"
    kernels = os.environ.get("GRAPHBENCH_KERNELS", "numba")
    threads = torch.get_num_threads()
    print(f"torch {torch.__version__}, {processor}, {threads} threads, memory {memory}, kernels {kernels}")


def print_speed(sizes: list[int], names: list[str], rounds: int, device: str, clock: Clock, logits: float) -> None:
    """Print milliseconds, and the ratios that matter."""
    pairs = [("fused flow", "softmax"), ("fused flow", "SDPA"), ("plain flow", "softmax")]
    pairs += [(x, "fused flow") for x in names[4:]]
    times, ratios = [], []
    for n in sizes:
        seconds = time_size(n, names, rounds, device, clock, logits)
        for a, b in pairs:
            note(f"{n} nodes, logits of s.d. {logits:g}", a, b, seconds)
        median = {name: statistics.median(values) * 1e3 for name, values in seconds.items()}
        best = {name: min(values) * 1e3 for name, values in seconds.items()}
        times.append([str(n), *(f"{median[name]:.1f} ({best[name]:.1f})" for name in names)])
        ratios.append([str(n), *(f"{median[a] / median[b]:.1f} ({best[a] / best[b]:.1f})" for a, b in pairs)])
    print_table("Milliseconds, median (best)", ["N", *names], times)
    print_table("Ratios of medians (of bests)", ["N", *(f"{a} / {b}" for a, b in pairs)], ratios)


def print_solver(sizes: list[int], rounds: int, device: str, clock: Clock, logits: float) -> None:
    """Print milliseconds of the solver by itself, and the ratio of its rounds to those of softmax."""
    table = []
    for n in sizes:
        seconds = time_solver(n, rounds, device, clock, logits)
        note(f"{n} nodes, logits of s.d. {logits:g}", "sparse_flow", "softmax of scores", seconds)
        softmax, flow = seconds.values()
        ratio = statistics.median(b / a for a, b in zip(softmax, flow, strict=True))
        table.append([str(n), *(f"{statistics.median(x) * 1e3:.1f}" for x in (softmax, flow)), f"{ratio:.1f}"])
    print_table("The solver alone, milliseconds", ["N", "softmax of scores", "sparse_flow", "ratio"], table)


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[64, 128, 256, 512], help="numbers of nodes")
    parser.add_argument("--steps", type=int, nargs="*", default=[20], help="steps of the iteration")
    parser.add_argument("--logits", type=float, default=1.0, help="standard deviation of the logits that are timed")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    clocks = {"wall": time.perf_counter, "cpu": time.process_time}
    parser.add_argument(
        "--clock", choices=clocks, default="wall", help="cpu: processor time, fair with one thread only"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", choices=("speed", "solver", "memory", "error"), help="one table only")
    parser.add_argument("--memory-cell", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keeps = keep_memory()
    if options.memory_cell:
        print(memory_of_cell(options.memory_cell, options.sizes[0], options.device))
        return
    print_header(options.device, keeps)
    names = ["softmax", "SDPA", "fused flow", "plain flow", "composed flow", *(f"T={t}" for t in options.steps)]
    if options.only in (None, "speed"):
        print_speed(options.sizes, names, options.rounds, options.device, clocks[options.clock], options.logits)
    if options.only in (None, "speed", "solver"):
        print_solver(options.sizes, options.rounds, options.device, clocks[options.clock], options.logits)
    if options.only in (None, "memory"):
        rows = [[memory_in_own_process(name, n, options.device) for name in names] for n in options.sizes]
        cells = [[str(n), *(f"{x:.1f}" for x in row)] for n, row in zip(options.sizes, rows, strict=True)]
        print_table("Peak memory of one call, MB", ["N", *names], cells)
    if options.only in (None, "error"):
        errors = [errors_of_iteration(n, options.steps, options.device) for n in options.sizes]
        cells = [[str(n), *(f"{x:.3g}" for x in row)] for n, row in zip(options.sizes, errors, strict=True)]
        print_table("Relative error of the iteration", ["N", *(f"T={t}" for t in options.steps)], cells)


if __name__ == "__main__":
    main()
