"""Specify the electric flow benchmark; `graphbench list` imports this module without torch."""

from __future__ import annotations

from graphbench.contracts.spec import BenchmarkSpec, Features

ELECTRIC_FLOW = BenchmarkSpec(
    name="ElectricFlow",
    task="map-recovery",
    node=Features(dense=10),
    edge=Features(dense=1, names=("resistance",)),
    metric="log_loss",
    higher_is_better=False,
    loss="normalised_MSE",
    num_targets=10,
    split_sizes=(2_000, 2_000, 10_000),
    mean_nodes=10.0,
    max_nodes=10,
    mean_edges=90.0,
    offline=True,
    disk_mb=21.0,
    licence="generated here",
    citation="Cheng, Carin and Sra, ICLR 2025, arXiv 2410.16699",
    source="generated",
    extra={"max_edges": "45"},
)
