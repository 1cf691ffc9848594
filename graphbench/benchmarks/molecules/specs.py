"""Specifications of the molecule benchmarks.

This module has no heavy imports: `graphbench list` reads it without torch.
"""

from __future__ import annotations

from dataclasses import replace

from graphbench.benchmarks.molecules.chemistry.vocabulary import OGB_ATOMS, OGB_BONDS
from graphbench.contracts.spec import BenchmarkSpec, Features

_COMMON = BenchmarkSpec(
    name="",
    task="graph-regression",
    node=OGB_ATOMS,
    edge=OGB_BONDS,
    metric="MAE",
    higher_is_better=False,
    loss="L1",
    molecules=True,
    extra={"atom_vocabulary": "ogb"},
)

_LABELS = replace(_COMMON, task="graph-multilabel", metric="AP", higher_is_better=True, loss="BCE")

NCI = replace(
    _COMMON,
    name="NCI",
    target_names=("penalized_logp",),
    target_units=("",),
    split_sizes=(3769, 471, 472),
    mean_nodes=15.7,
    max_nodes=38,
    mean_edges=32.3,
    offline=True,
    disk_mb=1.8,
    licence="BSD-3-Clause, as shipped with RDKit",
    citation="Voigt et al., J. Chem. Inf. Comput. Sci. 41, 702 (2001); target: Jin et al., ICML 2018",
    source="Data/NCI/first_5K.smi of the installed RDKit",
    extra={"atom_vocabulary": "ogb_cip", "target": "zinc-full constants, smallest_rings"},
)

MOL_HIV = replace(
    _LABELS,
    name="MolHIV",
    metric="AUROC",
    target_names=("HIV_active",),
    split_sizes=(32_901, 4_113, 4_113),
    mean_nodes=25.5,
    max_nodes=222,
    mean_edges=54.9,
    disk_mb=38.0,
    licence="MIT",
    citation="Hu et al., NeurIPS (2020); Wu et al., Chem. Sci. 9, 513 (2018)",
    source="hiv.zip, by the address in ogb",
)

MOL_PCBA = replace(
    _LABELS,
    name="MolPCBA",
    num_targets=128,
    split_sizes=(350_343, 43_793, 43_793),
    mean_nodes=26.0,
    max_nodes=332,
    mean_edges=56.2,
    disk_mb=640.0,
    licence="MIT",
    citation="Hu et al., NeurIPS (2020); Wu et al., Chem. Sci. 9, 513 (2018)",
    source="pcba.zip, by the address in ogb",
)

MOLECULES = replace(
    _COMMON,
    name="Molecules",
    offline=True,
    licence="that of your file",
    source="your file of SMILES and targets",
    extra={"atom_vocabulary": "ogb_cip"},
)

OPENADMET = replace(
    _COMMON,
    name="OpenADMET",
    licence="CC BY 4.0 (expansionrx); that of each data set on Hugging Face",
    citation="OpenADMET blind challenges: ExpansionRx, PXR (2026); antiviral with ASAP Discovery and Polaris (2025)",
    source="CSV files of the data sets of openadmet on Hugging Face",
    extra={"atom_vocabulary": "ogb_cip"},
)

PCQM4M_V2 = replace(
    _COMMON,
    name="PCQM4Mv2",
    target_names=("homo_lumo_gap",),
    target_units=("eV",),
    split_sizes=(3_228_606, 150_000, 73_545),
    mean_nodes=14.1,
    mean_edges=29.1,
    disk_mb=1_750.0,
    licence="CC BY 4.0",
    citation="Hu et al., OGB-LSC, NeurIPS Datasets and Benchmarks (2021)",
    source="pcqm4m-v2.zip, by the address in ogb",
)

PCQM4M = replace(
    PCQM4M_V2,
    name="PCQM4M",
    split_sizes=(2_895_360, 150_000, 380_670),
    disk_mb=1_740.0,
    citation="Hu et al., OGB-LSC, KDD Cup (2021)",
    source="pcqm4m_kddcup2021.zip, by the address in ogb",
)

AMP_PEPTIDES = replace(
    _LABELS,
    name="AMPPeptides",
    num_targets=3,
    target_names=("antimicrobial", "anticancer", "membrane"),
    split_sizes=(2_490, 533, 531),
    mean_nodes=150.6,
    mean_edges=306.2,
    offline=True,
    disk_mb=13.7,
    licence="BSD-3-Clause (modlAMP); the databases it drew on name no terms in the package",
    citation="Müller et al., modlAMP: Python for antimicrobial peptides, Bioinformatics 33, 2753 (2017)",
    source="four files of sequences in the package modlamp",
)

QM9 = replace(
    _COMMON,
    name="QM9",
    target_names=("gap",),
    target_units=("eV",),
    split_sizes=(110_000, 10_000, 10_831),
    mean_nodes=18.0,
    max_nodes=29,
    mean_edges=37.3,
    disk_mb=52.0,
    licence="CC BY 4.0",
    citation="Ramakrishnan et al., Scientific Data 1, 140022 (2014); Wu et al., Chem. Sci. 9, 513 (2018)",
    source="gdb9.sdf and gdb9.sdf.csv, by the addresses in PyG",
)

QM9_CONTACTS = replace(
    _COMMON,
    name="QM9Contacts",
    task="link-ranking",
    metric="MRR",
    higher_is_better=True,
    loss="contrastive_BCE",
    target_names=("contact",),
    split_sizes=(83_454, 4_636, 4_636),
    mean_nodes=18.9,
    max_nodes=29,
    mean_edges=39.1,
    offline=True,
    disk_mb=39.0,
    licence="MIT (qm9pack); QM9: CC BY 4.0",
    citation="Ramakrishnan et al., Scientific Data 1, 140022 (2014); rule: Dwivedi et al., NeurIPS 2022",
    source="files in the package qm9pack",
    extra={"atom_vocabulary": "ogb", "stands_for": "PCQM-Contact"},
)

ZINC = replace(
    _COMMON,
    name="ZINC",
    node=Features(vocabularies=(28,), names=("atom_type",)),
    edge=Features(vocabularies=(4,), names=("bond_type",)),
    target_names=("penalized_logp",),
    target_units=("",),
    split_sizes=(10_000, 1_000, 1_000),
    mean_nodes=23.2,
    max_nodes=38,
    mean_edges=49.8,
    disk_mb=3.1,
    licence="free to use; ZINC's terms limit redistribution of large parts",
    citation="Sterling and Irwin, J. Chem. Inf. Model. 55, 2324 (2015); Dwivedi et al., JMLR 24 (2023)",
    source="molecules.zip of the GNN benchmark, by the addresses in PyG",
    extra={"atom_vocabulary": "zinc", "labels": "as published"},
)
