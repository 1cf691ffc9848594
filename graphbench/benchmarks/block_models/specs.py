"""Specify the generated graphs of "Benchmarking GNNs"; `graphbench list` imports this module without torch."""

from __future__ import annotations

from dataclasses import replace

from graphbench.contracts.spec import BenchmarkSpec, Features

_COMMON = BenchmarkSpec(
    name="",
    task="graph-classification",
    node=Features(),
    edge=Features(),
    metric="accuracy",
    higher_is_better=True,
    loss="cross_entropy",
    num_classes=2,
    offline=True,
    licence="generated here; the published graphs are under the MIT licence",
    citation="Dwivedi et al., JMLR 24 (2023)",
)

CSL = replace(
    _COMMON,
    name="CSL",
    num_classes=10,
    target_names=("R=2", "R=3", "R=4", "R=5", "R=6", "R=9", "R=11", "R=12", "R=13", "R=16"),
    split_sizes=(90, 30, 30),
    mean_nodes=41.0,
    max_nodes=41,
    mean_edges=164.0,
    disk_mb=0.07,
    citation="Murphy et al., ICML 2019; Dwivedi et al., JMLR 24 (2023)",
    source="generated",
)

CYCLES = replace(
    _COMMON,
    name="CYCLES",
    target_names=("no cycle of 6", "cycle of 6"),
    split_sizes=(9_000, 1_000, 10_000),
    mean_nodes=51.0,
    max_nodes=65,
    mean_edges=87.9,
    disk_mb=4.0,
    licence="generated here",
    citation="task: Vignac et al., NeurIPS 2020; Dwivedi et al., JMLR 24 (2023)",
    source="generated; not the published file",
)

PATTERN = replace(
    _COMMON,
    name="PATTERN",
    task="node-classification",
    node=Features(vocabularies=(3,), names=("colour",)),
    metric="class_accuracy",
    loss="weighted_cross_entropy",
    target_names=("community", "pattern"),
    split_sizes=(10_000, 2_000, 2_000),
    mean_nodes=116.7,
    max_nodes=204,
    mean_edges=5834.6,
    disk_mb=166.9,
    source="generated with the published parameters",
)

CLUSTER = replace(
    _COMMON,
    name="CLUSTER",
    task="node-classification",
    node=Features(vocabularies=(7,), names=("told_community",)),
    metric="class_accuracy",
    loss="weighted_cross_entropy",
    num_classes=6,
    split_sizes=(10_000, 1_000, 1_000),
    mean_nodes=116.9,
    max_nodes=204,
    mean_edges=4287.9,
    disk_mb=105.9,
    source="generated with the published parameters",
)

TSP = BenchmarkSpec(
    name="TSP",
    task="edge-classification",
    node=Features(dense=2, names=("x", "y")),
    edge=Features(dense=1, names=("distance",)),
    metric="F1",
    higher_is_better=True,
    loss="cross_entropy",
    num_classes=2,
    target_names=("other", "tour"),
    split_sizes=(1_000, 100, 100),
    mean_nodes=75.8,
    max_nodes=100,
    mean_edges=1894.1,
    offline=True,
    disk_mb=21.2,
    licence="generated here; the published graphs are under the MIT licence",
    citation="Dwivedi et al., JMLR 24 (2023)",
    source="generated: points drawn and solved here",
    extra={"edges": "undirected"},
)
