"""The molecules of the Long Range Graph Benchmark: PCQM-Contact, Peptides-func and Peptides-struct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from graphbench.benchmarks.lrgb.files import contact_table, peptide_table, read_molecules
from graphbench.benchmarks.lrgb.superpixels import LRGBBenchmark
from graphbench.benchmarks.molecules.chemistry.vocabulary import (
    OGB_ATOMS,
    OGB_BONDS,
)
from graphbench.benchmarks.molecules.inputs import SmilesInput
from graphbench.contracts import BenchmarkSpec, GraphTable


class PCQMContact(LRGBBenchmark):
    """PCQM-Contact of LRGB: which atoms, five bonds apart or more, come closer than 3.5 Angstrom in space.

    A batch has the pairs in contact, in both directions, as `contact_index [num_pairs, 2]`. Training samples two wrong
    partners per atom of a pair; evaluation ranks the partner among all atoms of the molecule. The selecting `MRR` is
    LRGB's own, which counts other true partners and the atom itself as candidates; `filtered_MRR` leaves out other true
    partners, `filtered_no_self_MRR` the atom too. Atoms and bonds have OGB's features; hydrogens are atoms.
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.2).

    Args:
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "pcqm-contact"
    spec = BenchmarkSpec(
        name="PCQMContact",
        task="link-ranking",
        node=OGB_ATOMS,
        edge=OGB_BONDS,
        metric="MRR",
        higher_is_better=True,
        loss="contrastive_BCE",
        target_names=("contact",),
        split_sizes=(476_490, 26_472, 26_472),
        mean_nodes=30.14,
        mean_edges=61.09,
        disk_mb=420.0,
        licence="CC BY 4.0",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)",
        source="pcqmcontact.zip, by the address in PyG",
        molecules=True,
        extra={"atom_vocabulary": "ogb"},
    )

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""
        return read_molecules(path, contact_table)


class PeptidesFunc(SmilesInput, LRGBBenchmark):
    """Peptides-func of LRGB: ten functions of 15,535 peptides, of which one may have several.

    The score is the average precision (AP), averaged over the ten. Atoms and bonds have OGB's features.
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.3).

    Args:
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "peptides-func"
    advice: ClassVar[str] = "Without a network, AMPPeptides has molecules of the same kind; its scores do not compare."
    spec = BenchmarkSpec(
        name="PeptidesFunc",
        task="graph-multilabel",
        node=OGB_ATOMS,
        edge=OGB_BONDS,
        metric="AP",
        higher_is_better=True,
        loss="BCE",
        num_targets=10,
        target_names=(
            "antifungal",
            "cell-cell communication",
            "anticancer",
            "drug delivery vehicle",
            "antimicrobial",
            "antiviral",
            "antihypertensive",
            "antibacterial",
            "antiparasitic",
            "toxic",
        ),
        split_sizes=(10_873, 2_331, 2_331),
        mean_nodes=150.94,
        mean_edges=307.30,
        disk_mb=55.0,
        licence="CC BY-NC 4.0",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)",
        source="peptidesfunc.zip, by the address in PyG",
        molecules=True,
        extra={"atom_vocabulary": "ogb"},
    )

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""
        return read_molecules(path, peptide_table)


class PeptidesStruct(SmilesInput, LRGBBenchmark):
    """Peptides-struct of LRGB: eleven numbers for the shape of the same 15,535 peptides in space.

    Targets are z-scores over the whole set, as published, and so is the mean absolute error (MAE) over them. Atoms and
    bonds have OGB's features. "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.3).

    Args:
        options: see `GraphBenchmark`.
    """

    published_name: ClassVar[str] = "peptides-struct"
    spec = BenchmarkSpec(
        name="PeptidesStruct",
        task="graph-regression",
        node=OGB_ATOMS,
        edge=OGB_BONDS,
        metric="MAE",
        higher_is_better=False,
        loss="L1",
        num_targets=11,
        target_names=(
            "inertia_mass_a",
            "inertia_mass_b",
            "inertia_mass_c",
            "inertia_valence_a",
            "inertia_valence_b",
            "inertia_valence_c",
            "length_a",
            "length_b",
            "length_c",
            "spherocity",
            "plane_of_best_fit",
        ),
        target_units=("sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd", "sd"),
        split_sizes=(10_873, 2_331, 2_331),
        mean_nodes=150.94,
        mean_edges=307.30,
        disk_mb=56.0,
        licence="CC BY-NC 4.0",
        citation="Dwivedi et al., Long Range Graph Benchmark, NeurIPS Datasets and Benchmarks (2022)",
        source="peptidesstruct.zip, by the address in PyG",
        molecules=True,
        extra={"atom_vocabulary": "ogb"},
    )

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Tables of one split's file."""
        return read_molecules(path, peptide_table)
