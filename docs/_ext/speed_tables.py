"""The page on speed: runs of `make speed` on a quiet machine, as stored in `speed/results/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphbench

RESULTS = Path(graphbench.__file__).parents[1] / "speed" / "results"
#: Script -> what its rows compare.
ABOUT = {
    "gps_throughput": "Training steps of GPS against stacks of PyG's `GPSConv` and of GraphGPS's layer; batches sorted "
    "by size suit these stacks best.",
    "architectures": "Training steps on molecules against the same mathematics in plain PyG and torch, same weights.",
    "kernels": "Kernels against the plain forms of the same operations: whole training steps, then each separately.",
    "nested": "An encoder over graphs of different sizes against `nn.TransformerEncoder` with padding and a mask, with "
    "nested tensors, and against jagged tensors, same weights.",
    "dropout": "Dropout, forward and backward, against torch's.",
    "large_graph": "Epochs on one generated graph, a tenth as large as ogbn-arxiv, against the loop of PyG's examples.",
    "data_path": "Seconds until the loader has a batch, against PyG's loader and that of Hugging Face's `datasets`.",
    "encodings": "Positional encodings of whole tables of graphs against PyG, SciPy and NumPy.",
    "sparse_flow": "Sparse-flow attention, forward and backward, against softmax attention and 20 steps of the paper's "
    "iteration.",
    "sft_attention": "SFT against PyTorch's encoder layer, 1,024 tokens, k of them sampled.",
    "deepgraph": "DeepGraph's training step against plain forms of the same mathematics.",
    "allocator": "`--allocator keep` against the system's default allocator.",
    "scaling": "The same work on each of two processes; 1 would be a second process that costs nothing. Then GPS and "
    "the stack of PyG's `GPSConv`, both on two processes.",
    "start_up": "Commands, and the first training step of the quickstart, against importing torch, Lightning and PyG.",
    "growth": "A training step relative to one of half the size: 2 is linear growth, 4 quadratic.",
    "roofline": "A training step relative to the minimum time of its operations at the machine's arithmetic and memory "
    "rates (`speed/roofline.py`).",
    "limit": "A training step relative to its bare matrix products; 1 would mean that it does nothing else.",
}
#: Scripts whose rows compare with an ideal, not with a peer.
IDEALS = ("limit", "roofline", "scaling", "allocator", "growth", "start_up")


def row_of(row: dict[str, Any]) -> tuple[str, ...]:
    """Return a comparison as cells of a table."""
    spread = f"{row['seconds']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
    return row["case"], row["contender"], row["against"], spread, f"{row['ratio']:.2f}"


def lost(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return comparisons with ratios above 1.05, in which a peer is faster, the worst first."""
    of_peers = [row for row in rows if row["script"] not in IDEALS or row["against"].startswith("PyG")]
    of_peers = [row for row in of_peers if not row["against"].startswith("ours")]
    ours = [row for row in of_peers if row["contender"] not in ("composed flow", "plain flow", "sparse_flow", "T=20")]
    return sorted((row for row in ours if row["ratio"] > 1.05), key=lambda row: -row["ratio"])


def page(table: Any) -> str:
    """Return Markdown of the page after its introduction.

    Args:
        table: `(head, rows) -> Markdown`.
    """
    head, parts = ("case", "contender", "against", "seconds (quartiles)", "ratio"), []
    for path in sorted(RESULTS.glob("*.json"), key=lambda path: path.stem):
        content = json.loads(path.read_text(encoding="utf-8"))
        rows = content["rows"]
        told = ", ".join(f"{key} {value}" for key, value in content["provenance"].items() if value)
        parts.append(f"## {path.stem}\n\n{told}.\n")
        if slower := lost(rows):
            parts.append(f"### Where another one is faster\n\n{table(head, map(row_of, slower))}\n")
        for script, about in ABOUT.items():
            own = [row for row in rows if row["script"] == script]
            if own:
                parts.append(f"### {script}\n\n{about}\n\n{table(head, map(row_of, own))}\n")
    return "\n".join([*parts, *growth(table)])


def growth(table: Any) -> Iterator[str]:
    """Yield Markdown of the curves stored by `speed/growth.py --json`, a row each.

    Args:
        table: `(head, rows) -> Markdown`.
    """
    head = ("architecture", "doubled", "sizes", "time", "allowed", "memory", "allowed")
    for path in sorted((RESULTS / "growth").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        told = ", ".join(f"{key} {value}" for key, value in content["provenance"].items() if value)
        about = (
            "`python speed/growth.py`: exponents with which a training step of every architecture grows if one "
            "quantity is doubled, and those that the formula in its docstring allows."
        )
        rows = [
            (
                row["architecture"],
                row["quantity"],
                f"{row['sizes'][0]} to {row['sizes'][-1]}",
                f"{row['exponents'][0]:.2f}",
                f"{row['time_allowed']:.2f}",
                f"{row['exponents'][1]:.2f}",
                f"{row['memory_allowed']:.2f}",
            )
            for row in content["rows"]
        ]
        yield f"## Growth of every architecture, {path.stem}\n\n{told}.\n\n{about}\n\n{table(head, rows)}\n"
