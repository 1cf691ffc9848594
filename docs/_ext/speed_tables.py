"""The page on speed: one quiet run of `make speed`, as it is kept in `speed/results/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphbench

RESULTS = Path(graphbench.__file__).parents[1] / "speed" / "results"
#: Script -> what its rows hold against what.
ABOUT = {
    "gps_throughput": "Training steps of GPS beside stacks of PyG's `GPSConv` and of GraphGPS's layer; batches by size "
    "are their best arrangement.",
    "architectures": "Training steps on molecules beside the same mathematics in plain PyG and torch, same weights.",
    "kernels": "Kernels beside the plain forms of the same operations: whole steps of training, then each by itself.",
    "nested": "An encoder over graphs of different sizes beside `nn.TransformerEncoder` with padding and a mask, with "
    "nested tensors, and beside jagged tensors, same weights.",
    "dropout": "Dropout, forward and backward, beside torch's.",
    "large_graph": "Epochs on one generated graph of a tenth of ogbn-arxiv's size beside the loop of PyG's examples.",
    "data_path": "Seconds until the loader has a batch, beside PyG's and that of Hugging Face's `datasets`.",
    "encodings": "Positional encodings of whole tables of graphs beside PyG, SciPy and NumPy.",
    "sparse_flow": "Sparse-flow attention, forward and backward, beside softmax attention and 20 steps of the paper's "
    "iteration.",
    "sft_attention": "SFT beside PyTorch's encoder layer, 1,024 tokens, k of them sampled.",
    "deepgraph": "DeepGraph's training step beside plain forms of the same mathematics.",
    "allocator": "`--allocator keep` beside the allocator as the system starts it.",
    "scaling": "The same work on each of two processes; 1 would be a second process that costs nothing. Then GPS and "
    "the stack of PyG's `GPSConv`, both on two processes.",
    "start_up": "Commands, and the first training step of the quickstart, beside importing torch, Lightning and PyG.",
    "growth": "A training step of twice the size over one of half of it: 2 is linear growth, 4 quadratic.",
    "roofline": "A training step over the least time that the machine's rates of arithmetic and of memory allow its "
    "operations (`speed/roofline.py`).",
    "limit": "A training step over the bare products of matrices that it is made of; 1 would do nothing else.",
}
#: Scripts whose rows say how far from an ideal, not how far from a peer.
IDEALS = ("limit", "roofline", "scaling", "allocator", "growth", "start_up")


def row_of(row: dict[str, Any]) -> tuple[str, ...]:
    """A comparison as cells of a table."""
    spread = f"{row['seconds']:.3g} ({row['low']:.3g} to {row['high']:.3g})"
    return row["case"], row["contender"], row["against"], spread, f"{row['ratio']:.2f}"


def lost(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Comparisons with a peer that is faster by more than one part in twenty, the worst first."""
    of_peers = [row for row in rows if row["script"] not in IDEALS or row["against"].startswith("PyG")]
    of_peers = [row for row in of_peers if not row["against"].startswith("ours")]
    ours = [row for row in of_peers if row["contender"] not in ("composed flow", "plain flow", "sparse_flow", "T=20")]
    return sorted((row for row in ours if row["ratio"] > 1.05), key=lambda row: -row["ratio"])


def page(table: Any) -> str:
    """Markdown of the page after its introduction.

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
    """Markdown of the curves that `speed/growth.py --json` kept, a row each.

    Args:
        table: `(head, rows) -> Markdown`.
    """
    head = ("architecture", "doubled", "sizes", "time", "allowed", "memory", "allowed")
    for path in sorted((RESULTS / "growth").glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        told = ", ".join(f"{key} {value}" for key, value in content["provenance"].items() if value)
        about = (
            "`python speed/growth.py`: exponents with which a training step of every architecture grows where one "
            "quantity is doubled, beside those that the formula in its docstring allows."
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
