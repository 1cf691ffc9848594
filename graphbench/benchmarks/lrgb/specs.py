"""Specifications of the Long Range Graph Benchmark.

This module has no heavy imports: `graphbench list` reads it without torch.
"""

from __future__ import annotations

from dataclasses import replace

from graphbench.benchmarks.molecules.chemistry.vocabulary import OGB_ATOMS, OGB_BONDS
from graphbench.contracts.spec import BenchmarkSpec, Features

_CITATION = "Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)"
_STATISTICS = tuple(
    f"{colour}_{statistic}" for statistic in ("mean", "std", "max", "min") for colour in ("red", "green", "blue")
)
_FUNCTIONS = (
    "antifungal", "cell-cell communication", "anticancer", "drug delivery vehicle", "antimicrobial", "antiviral",
    "antihypertensive", "antibacterial", "antiparasitic", "toxic",
)  # fmt: skip
_SHAPES = (
    "inertia_mass_a", "inertia_mass_b", "inertia_mass_c", "inertia_valence_a", "inertia_valence_b",
    "inertia_valence_c", "length_a", "length_b", "length_c", "spherocity", "plane_of_best_fit",
)  # fmt: skip
_VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa", "train", "tv monitor",
)  # fmt: skip
_EDGE_NAMES = ("boundary_gradient", "boundary_pixels")

_MOLECULES = BenchmarkSpec(
    name="",
    task="graph-multilabel",
    node=OGB_ATOMS,
    edge=OGB_BONDS,
    metric="AP",
    higher_is_better=True,
    loss="BCE",
    split_sizes=(10_873, 2_331, 2_331),
    mean_nodes=150.94,
    mean_edges=307.30,
    licence="CC BY-NC 4.0",
    citation=_CITATION,
    molecules=True,
    extra={"atom_vocabulary": "ogb"},
)

_SUPERPIXELS = BenchmarkSpec(
    name="",
    task="node-classification",
    node=Features(dense=14, names=(*_STATISTICS, "row", "column")),
    edge=Features(dense=2, names=_EDGE_NAMES),
    metric="macro_F1",
    higher_is_better=True,
    loss="weighted_cross_entropy",
    max_nodes=500,
    citation=_CITATION,
)

PCQM_CONTACT = replace(
    _MOLECULES,
    name="PCQMContact",
    task="link-ranking",
    metric="MRR",
    loss="contrastive_BCE",
    target_names=("contact",),
    split_sizes=(476_490, 26_472, 26_472),
    mean_nodes=30.14,
    mean_edges=61.09,
    disk_mb=420.0,
    licence="CC BY 4.0",
    source="pcqmcontact.zip, by the address in PyG",
)

PEPTIDES_FUNC = replace(
    _MOLECULES,
    name="PeptidesFunc",
    num_targets=10,
    target_names=_FUNCTIONS,
    disk_mb=55.0,
    source="peptidesfunc.zip, by the address in PyG",
)

PEPTIDES_STRUCT = replace(
    _MOLECULES,
    name="PeptidesStruct",
    task="graph-regression",
    metric="MAE",
    higher_is_better=False,
    loss="L1",
    num_targets=11,
    target_names=_SHAPES,
    target_units=("sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd"),
    disk_mb=56.0,
    source="peptidesstruct.zip, by the address in PyG",
)

PASCAL_VOC_SP = replace(
    _SUPERPIXELS,
    name="PascalVOCSP",
    num_classes=21,
    target_names=_VOC_CLASSES,
    split_sizes=(8_498, 1_428, 1_429),
    mean_nodes=479.40,
    mean_edges=2_710.48,
    disk_mb=527.0,
    licence="that of Pascal VOC 2011, respecting Flickr's terms of use",
    source="pascalvocsp.zip, by the address in PyG",
)

COCO_SP = replace(
    _SUPERPIXELS,
    name="COCOSP",
    num_classes=81,
    split_sizes=(113_286, 5_000, 5_000),
    mean_nodes=476.88,
    mean_edges=2_693.67,
    disk_mb=5_690.0,
    licence="CC BY 4.0",
    source="cocosp.zip, by the address in PyG",
)
