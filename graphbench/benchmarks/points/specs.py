"""Specifications of the point clouds.

This module has no heavy imports: `graphbench list` reads it without torch.
"""

from __future__ import annotations

from dataclasses import replace

from graphbench.contracts.spec import BenchmarkSpec, Features

_A_TO_C = ("airplane", "bathtub", "bed", "bench", "bookshelf", "bottle", "bowl", "car", "chair", "cone")
_C_TO_L = ("cup", "curtain", "desk", "door", "dresser", "flower_pot", "glass_box", "guitar", "keyboard", "lamp")
_L_TO_S = ("laptop", "mantel", "monitor", "night_stand", "person", "piano", "plant", "radio", "range_hood", "sink")
_S_TO_X = ("sofa", "stairs", "stool", "table", "tent", "toilet", "tv_stand", "vase", "wardrobe", "xbox")

_COMMON = BenchmarkSpec(
    name="",
    task="graph-classification",
    node=Features(dense=3, names=("normal_x", "normal_y", "normal_z")),
    edge=Features(),
    metric="accuracy",
    higher_is_better=True,
    loss="cross_entropy",
    coordinates=3,
    mean_edges=0.0,
)

MODEL_NET_40 = replace(
    _COMMON,
    name="ModelNet40",
    num_classes=40,
    target_names=_A_TO_C + _C_TO_L + _L_TO_S + _S_TO_X,
    split_sizes=(9_843, 2_468, 2_468),
    mean_nodes=1024.0,
    max_nodes=1_024,
    disk_mb=181.8,
    licence="for academic use; the meshes belong to their makers",
    citation="Wu et al., CVPR (2015)",
    source="ModelNet40.zip of the Princeton ModelNet project",
    extra={"validation": "test"},
)

SHAPE_NET_PART = replace(
    _COMMON,
    name="ShapeNetPart",
    task="node-classification",
    node=Features(vocabularies=(16,), dense=3, names=("category", "normal_x", "normal_y", "normal_z")),
    metric="instance_IoU",
    num_classes=50,
    split_sizes=(12_137, 1_870, 2_874),
    mean_nodes=2500.0,
    disk_mb=618.7,
    licence="ShapeNet's terms of use: non-commercial research",
    citation="Yi et al., SIGGRAPH Asia (2016); Chang et al., arXiv:1512.03012",
    source="shapenetcore_partanno_segmentation_benchmark_v0_normal.zip of Stanford",
    extra={"parts": "4 2 2 4 4 3 3 2 4 2 6 2 3 3 3 3"},
)

SOLIDS = replace(
    _COMMON,
    name="Solids",
    num_classes=36,
    split_sizes=(7_200, 1_800, 1_800),
    mean_nodes=1024.0,
    max_nodes=1_024,
    offline=True,
    disk_mb=132.9,
    licence="generated here",
    source="generated; a benchmark of graphbench",
)
