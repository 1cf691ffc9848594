"""Compare training steps with glibc's default memory thresholds and with those that `graphbench` sets.

GPS of width 64 with 6 layers on graphs of PATTERN's size (119 nodes, 6,000 edges): forward and backward pass and AdamW.
Every measurement runs in a separate process, since thresholds apply to a whole process; the two kinds alternate. Prints
medians over all steps, quartiles, and the peak of resident memory.

    python speed/allocator.py --steps 6 --turns 3
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from timing import note

from graphbench.cli.console import peak_memory_mb
from graphbench.cli.process import MALLOC_VARIABLE, keep_memory


def measure(steps: int, batch_size: int, threads: int) -> dict[str, object]:
    """Return the seconds of each step and the peak of memory, in this process."""
    keep_memory()
    import torch

    from graphbench import BenchmarkSpec, Features, GraphTable
    from graphbench_baselines import GPS

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    spec = BenchmarkSpec(
        "PATTERN", "node-classification", Features((3,)), Features(), "accuracy", True, "cross_entropy", num_classes=2
    )
    graphs = [
        {
            "num_nodes": nodes,
            "edge_index": torch.randint(nodes, (2, 6000)),
            "x": torch.randint(3, (nodes, 1)),
            "y": torch.randint(2, (nodes,)),
        }
        for nodes in torch.randint(100, 140, (batch_size,)).tolist()
    ]
    batch = GraphTable.from_graphs(graphs).batch(torch.arange(batch_size))
    model = GPS(spec, hidden_dim=64, num_layers=6)
    head = torch.nn.Linear(64, 2)
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3, fused=True)
    seconds = []
    for _ in range(steps + 2):
        start = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(head(model(batch).node), batch.y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds[2:], "peak_mb": peak_memory_mb(torch.device("cpu"))}


def main() -> None:
    """Measure both kinds alternately and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6, help="timed steps per process")
    parser.add_argument("--turns", type=int, default=3, help="processes per kind")
    parser.add_argument("--batch-size", type=int, default=32, help="graphs per batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.steps, options.batch_size, options.threads)))
        return
    found: dict[str, list[dict[str, list[float]]]] = {"system": [], "keep": []}
    for _ in range(options.turns):
        for kind, results in found.items():
            command = [sys.executable, *sys.argv, "--child"]
            environment = os.environ | {MALLOC_VARIABLE: kind, "OMP_NUM_THREADS": str(options.threads)}
            out = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
            results.append(json.loads(out.splitlines()[-1]))
    medians = {}
    for kind, results in found.items():
        steps = [second for result in results for second in result["seconds"]]
        low, medians[kind], high = statistics.quantiles(steps, n=4)
        peak = statistics.median(result["peak_mb"] for result in results)  # type: ignore[type-var]
        print(f"{kind:<7} {medians[kind]:.3f} s a step (quartiles {low:.3f} to {high:.3f}), peak {peak:,.0f} MB")
    seconds = {kind: [s for result in results for s in result["seconds"]] for kind, results in found.items()}
    print(f"system / keep: {1 / note(f'GPS, {options.batch_size} graphs', 'keep', 'system', seconds):.2f}")


if __name__ == "__main__":
    main()
