"""Specifications of the long sequences.

This module has no heavy imports: `graphbench list` reads it without torch.
"""

from __future__ import annotations

from dataclasses import replace

from graphbench.contracts.spec import BenchmarkSpec, Features

_COMMON = BenchmarkSpec(
    name="",
    task="graph-classification",
    node=Features(vocabularies=(256,), names=("token",)),
    edge=Features(),
    metric="accuracy",
    higher_is_better=True,
    loss="cross_entropy",
    num_classes=10,
    coordinates=1,
    mean_edges=0.0,
)

LIST_OPS = replace(
    _COMMON,
    name="ListOps",
    node=Features(vocabularies=(15,), names=("token",)),
    target_names=("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    split_sizes=(96_000, 2_000, 2_000),
    mean_nodes=1033.2,
    max_nodes=1_999,
    offline=True,
    disk_mb=105.0,
    licence="generated here",
    citation="Tay et al., ICLR (2021); Nangia and Bowman, NAACL SRW (2018)",
    source="generated with the published grammar",
)

TEXT = replace(
    _COMMON,
    name="Text",
    num_classes=2,
    target_names=("negative", "positive"),
    split_sizes=(25_000, 25_000, 25_000),
    max_nodes=1_024,
    licence="for research; cite Maas et al.",
    citation="Maas et al., ACL (2011); Tay et al., ICLR (2021)",
    source="aclImdb_v1.tar.gz of Stanford",
    extra={"validation": "test"},
)

RETRIEVAL = replace(
    _COMMON,
    name="Retrieval",
    node=Features(vocabularies=(256, 2), names=("token", "tower")),
    num_classes=2,
    target_names=("unrelated", "cited"),
    split_sizes=(147_086, 18_090, 17_437),
    max_nodes=8_192,
    licence="CC BY-NC-SA 3.0 (ACL Anthology Network)",
    citation="Radev et al., Language Resources and Evaluation 47 (2013); Tay et al., ICLR (2021)",
    source="new_aan_pairs.*.tsv of the Long Range Arena's release",
)

PATHFINDER = replace(
    LIST_OPS,
    name="Pathfinder",
    node=Features(vocabularies=(256,), names=("token",)),
    num_classes=2,
    target_names=("two paths", "one path"),
    split_sizes=(160_000, 20_000, 20_000),
    mean_nodes=1024.0,
    max_nodes=1_024,
    disk_mb=208.3,
    citation="Tay et al., ICLR (2021); Linsley et al., NeurIPS (2018)",
    source="generated with the published constants",
)

SEQUENTIAL_IMAGE = replace(
    _COMMON,
    name="SequentialImage",
    target_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    split_sizes=(45_000, 5_000, 10_000),
    mean_nodes=1024.0,
    max_nodes=1_024,
    disk_mb=62.5,
    licence="MIT",
    citation="Krizhevsky, University of Toronto (2009); Tay et al., ICLR (2021)",
    source="cifar-10-python.tar.gz of the University of Toronto",
)

SEQUENTIAL_FASHION_MNIST = replace(
    SEQUENTIAL_IMAGE,
    name="SequentialFashionMNIST",
    target_names=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
    split_sizes=(55_000, 5_000, 10_000),
    mean_nodes=784.0,
    max_nodes=784,
    disk_mb=56.1,
    citation="Xiao et al., arXiv:1708.07747",
    source="Fashion-MNIST's four IDX files, also in the Debian package dataset-fashion-mnist",
)
