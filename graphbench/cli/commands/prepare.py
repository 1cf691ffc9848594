"""`graphbench prepare`: download or generate the data and compute the encodings ahead of a fit."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from graphbench.cli.console import show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import own_parser, split
from graphbench.contracts import Benchmark

_MOST_TARGETS = 40
log = logging.getLogger(__name__)


def prepare(arguments: Sequence[str]) -> int:
    """Fill the store for a configuration and show the sizes of its splits."""
    request = split(own_parser("prepare"), arguments)
    cli = GraphbenchCLI(request.arguments)
    cli.datamodule.prepare_data()
    cli.datamodule.setup()
    rows = []
    for name, table in cli.datamodule.tables.items():
        if not len(table):
            rows.append([name, "0", *["-"] * 3])
            continue
        nodes, edges = table.num_nodes.double(), table.num_edges.double()
        rows.append([name, f"{len(table):,}", f"{nodes.mean():.1f}", f"{int(nodes.max())}", f"{edges.mean():.1f}"])
    show_table(cli.model.spec.name, ["split", "graphs", "mean nodes", "max nodes", "mean edges"], rows)
    if counts := _count_targets(cli.datamodule):
        show_table("Rows with each target", ["target", *cli.datamodule.tables], counts)
    if words := getattr(cli.datamodule, "split_words", ""):
        log.info("Split: %s", words)
    encodings = ", ".join(map(repr, cli.datamodule.encodings)) or "none"
    log.info("Encodings: %s", encodings)
    return 0


def _count_targets(data: Benchmark) -> list[list[str]]:
    """Count the values of each target in every split; empty if none is missing, or there are too many targets."""
    targets = [table.columns["y"] for table in data.tables.values() if "y" in table.columns]
    if not 1 < data.spec.num_targets <= _MOST_TARGETS or not any(y.isnan().any() for y in targets):
        return []
    counts = [y.isfinite().sum(0).tolist() for y in targets]
    return [[name, *(f"{count[n]:,}" for count in counts)] for n, name in enumerate(data.target_labels())]
