"""Specify your own graphs before they are read; `graphbench list` imports this module without torch."""

from __future__ import annotations

from graphbench.contracts.spec import BenchmarkSpec, Features

GRAPHS = BenchmarkSpec(
    name="Graphs",
    task="graph-regression",
    node=Features(),
    edge=Features(),
    metric="MAE",
    higher_is_better=False,
    loss="L1",
    offline=True,
    licence="that of your data",
    source="your graphs",
)
