"""`graphbench prepare`: download or generate the data and compute the encodings ahead of a fit."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Sequence
from typing import Any

from graphbench.cli.command_line import CommandLine
from graphbench.cli.console import show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import FLAGS, own_parser, parse_request
from graphbench.contracts import Benchmark
from graphbench.data.parts import kept
from graphbench.data.parts.shares import AUTO, Share, alone
from graphbench.errors import BadInput
from graphbench.experiments.launchers import Cluster, Unit, launch

_MAX_TARGETS = 40
log = logging.getLogger(__name__)


def prepare(arguments: Sequence[str]) -> int:
    """Fill the store for a configuration, or do a share of the work, and show the sizes of its splits."""
    request = parse_request(own_parser("prepare"), arguments)
    options = request.options
    share, cluster = None if options.part is None else Share.parse(options.part), Cluster.of(options)
    if share is not None and cluster is not None:
        raise BadInput(f"--part {options.part}: with --launcher submitit every job gets a share; leave it out.")
    with alone() if options.part == AUTO else contextlib.nullcontext():
        cli = GraphbenchCLI(request.arguments)
    if cluster is not None:
        return _launch(_dividable(cli.datamodule), cluster, arguments)
    if share is not None and (missing := _dividable(cli.datamodule).prepare_share(share)):
        log.info(
            "Share %s is done; %d parts of other shares are missing. Run the command again when they are done: the "
            "next step needs all of them.",
            share,
            missing,
        )
        return 0
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


def _dividable(data: Benchmark) -> Any:
    """Return the data; refuse those that several jobs cannot prepare together, unlike those of `GraphBenchmark`."""
    if hasattr(data, "prepare_share"):
        return data
    raise BadInput(f"{data.spec.name} cannot be prepared in parts: leave out --part and --launcher.")


def _launch(data: Any, cluster: Cluster, arguments: Sequence[str]) -> int:
    """Prepare data with jobs: shares of the table, then shares of the encodings, and last one that joins them.

    Return 1 if the last job has failed, else 0.
    """
    words = ("prepare", *CommandLine.parse(arguments, flags=FLAGS).without("--launcher").words)
    folder = data.store.root / kept.ROOM / f"prepare-{hashlib.sha256(repr(words).encode()).hexdigest()[:12]}"
    count = cluster.number("shares of the work")
    stages = [
        [
            Unit(f"{stage}-{number}-of-{count}", (*words, "--part", f"{number}/{count}"),
                 folder / f"{stage}-{number}-of-{count}.log")
            for number in range(1, count + 1)
        ]
        for stage in ("table", "encodings")
    ]  # fmt: skip
    last = Unit("join", words, folder / "join.log")
    failed = launch(stages, cluster, folder, last)
    for unit in failed:
        log.error("%s has failed: see %s.", unit.name, unit.log)
    if last not in failed:
        log.info("%s", last.log.read_text(encoding="utf-8", errors="replace").rstrip())
    return 1 if last in failed else 0


def _count_targets(data: Benchmark) -> list[list[str]]:
    """Count the values of each target in every split; empty if none is missing, or there are too many targets."""
    targets = [table.columns["y"] for table in data.tables.values() if "y" in table.columns]
    if not 1 < data.spec.num_targets <= _MAX_TARGETS or not any(y.isnan().any() for y in targets):
        return []
    counts = [y.isfinite().sum(0).tolist() for y in targets]
    return [[name, *(f"{count[n]:,}" for count in counts)] for n, name in enumerate(data.target_labels())]
