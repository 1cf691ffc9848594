"""Table 7 of the paper: operations of the parts of a layer by sampling rate; takes a second on a CPU.

Two clouds of 1,024 tokens of width 256 with 16 heads, as for the published numbers, pass through one layer in
evaluation with the plain top k, which maps relative features once. Only matrix products count, with two operations for
each product and sum; element-wise work does not. So `sampling` lacks the layer norm before the scores, for which the
paper's tool seems to count five operations per number, and `remainder`, the rest of the attention, includes the product
of weights and values, unlike the paper's remainder.

    python plugins/sft/experiments/table_7.py --output runs/sft        # writes runs/sft/table_7.csv
    graphbench reproduce sft/table-7 --output runs/papers              # the same, with the published values
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from graphbench import Features
from graphbench.experiments import write_csv
from graphbench.testing import tiny_spec, tiny_table
from graphbench_sft import SFT

CLOUDS, TOKENS, DIM, HEADS = 2, 1024, 256, 16
RATES = (1.0, 0.5, 0.25, 0.125, 0.0625)
SPEC = replace(
    tiny_spec("node-classification", "coordinates"),
    node=Features(dense=3, names=("normal_x", "normal_y", "normal_z")),
    edge=Features(),
)
#: Column of the table -> part of `SampledAttention`.
PARTS = {
    "sampling": "sampler",
    "q": "query_map",
    "k": "key_map",
    "v": "value_map",
    "c": "leak_map",
    "relative": "relative",
    "w-cat": "out_map",
}


def operations(rate: float) -> dict[str, float]:
    """Count the GFLOP of each part of a layer that samples a share of the tokens, by column of the table."""
    model = SFT(
        SPEC,
        hidden_dim=DIM,
        num_heads=HEADS,
        num_layers=1,
        num_samples=round(TOKENS * rate),
        relative="distances",
        evaluation="topk",
    ).eval()
    with FlopCounterMode(display=False) as counter:
        model(tiny_table(SPEC, sizes=[TOKENS] * CLOUDS).batch(range(CLOUDS)))
    counts = {name: sum(parts.values()) / 1e9 for name, parts in counter.get_flop_counts().items()}
    layer = "SFT.layers.0"
    columns = {column: counts.get(f"{layer}.attention.{part}", 0.0) for column, part in PARTS.items()}
    columns["remainder"] = counts[f"{layer}.attention"] - sum(columns.values())
    return columns | {"mlp": counts[f"{layer}.ffn"]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description="Operations of the parts of a layer by sampling rate, as in table 7.")
    parser.add_argument("--output", type=Path, required=True, help="folder of table_7.csv")
    output = parser.parse_args(arguments).output
    rows: list[dict[str, Any]] = [
        {
            "row": f"rate-{100 * rate:g}",
            "rate": rate,
            **{part: f"{count:.6f}" for part, count in operations(rate).items()},
        }
        for rate in RATES
    ]
    write_csv(output / "table_7.csv", rows)


if __name__ == "__main__":
    main()
