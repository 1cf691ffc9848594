"""Specify ECHO's tasks; `graphbench list` imports this module without torch."""

from __future__ import annotations

from graphbench.contracts.spec import BenchmarkSpec, Features

_CITATION = "Miglior et al., Can You Hear Me Now?, ICLR 2026, arXiv 2512.17762"

ECHO_SYNTH = BenchmarkSpec(
    name="ECHOSynth",
    task="node-regression",
    node=Features(dense=2, names=("is_source", "random")),
    edge=Features(),
    metric="MAE",
    higher_is_better=False,
    loss="MSE",
    target_names=("sssp",),
    target_units=("hops",),
    split_sizes=(8_064, 1_008, 1_008),
    mean_nodes=69.9,
    max_nodes=264,
    mean_edges=168.4,
    offline=True,
    disk_mb=15.1,
    licence="generated here; the published graphs name no terms",
    citation=_CITATION,
    source="generated; not the published files",
)

ECHO_CHEM = BenchmarkSpec(
    name="ECHOChem",
    task="node-regression",
    node=Features(dense=2),
    edge=Features(dense=2),
    metric="MAE",
    higher_is_better=False,
    loss="MSE",
    target_names=("charge",),
    target_units=("e",),
    licence="the published files name no terms",
    citation=_CITATION,
    source="train_data.pt, val_data.pt and test_data.pt of the data set lucamiglior/echo-benchmark",
)
