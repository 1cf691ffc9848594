"""Peptides that the package modlamp ships: a stand-in for LRGB's Peptides-func without a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from graphbench.benchmarks.molecules import specs
from graphbench.benchmarks.molecules.base import MoleculeBenchmark
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.tables import subset, to_table, with_targets, with_text
from graphbench.benchmarks.molecules.peptide_sequences import (
    Peptides,
    grouped_split,
    likeness_groups,
    merge_labels,
    read_sequences,
    sequence_smiles,
)
from graphbench.contracts import SPLITS, GraphTable
from graphbench.data.package_files import file_sha256, package_file
from graphbench.data.progress import track
from graphbench.errors import check_choice, check_range

Labels = Literal["functions", "antimicrobial"]

_FRACTIONS, _SPLIT_SEED = (0.7, 0.15, 0.15), 0
_LENGTH = 30  # amino acids: gives molecules as large as those of Peptides-func
_ANTIMICROBIAL, _ANTICANCER, _MEMBRANE = range(3)
#: File -> what its class 0 and its class 1 say: (label, value) each.
_SOURCES: dict[str, tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]] = {
    "AMPvsUniProt.csv": (((_ANTIMICROBIAL, 0),), ((_ANTIMICROBIAL, 1),)),
    "AMPvsTMset.csv": (((_ANTIMICROBIAL, 0), (_MEMBRANE, 1)), ((_ANTIMICROBIAL, 1), (_MEMBRANE, 0))),
    "ACP_CancPPD_vs_TM.csv": (((_ANTICANCER, 0), (_MEMBRANE, 1)), ((_ANTICANCER, 1), (_MEMBRANE, 0))),
    "ACP_CancPPD_vs_Random.csv": (((_ANTICANCER, 0),), ((_ANTICANCER, 1),)),
}


class AMPPeptides(MoleculeBenchmark):
    """Natural and designed peptides as graphs of atoms; which are antimicrobial, anticancer, or part of a membrane.

    A stand-in for Peptides-func that needs no network, not a copy of it: other peptides, three labels instead of ten,
    and a split without leakage. Scores do not compare with those on Peptides-func. Sequences come from the package
    modlamp, which collected them from APD3, CancerPPD, UniProt and the protein data bank; RDKit makes linear molecules
    of them, atoms and bonds get OGB's nine and three columns.

    `labels=functions`: the three labels, where a peptide's source tells them (the others are unknown and do not
    count); scored by average precision (AP). `labels=antimicrobial`: only the file of antimicrobial peptides
    against UniProt's, two classes, scored by AUROC.

    Up to 30 amino acids, as by default, molecules have the size of those in Peptides-func: 151 atoms and 306 directed
    edges on average. A sequence counts once; those that carry both values of a label are left out. Like sequences
    (and chains of them, see `likeness_groups`) are in the same split: 70, 15 and 15% train, validate and test.

    Args:
        labels: see above.
        max_length: amino acids of the longest peptide; None takes all, up to 174 (1,359 atoms).
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for options out of range.
    """

    spec = specs.AMP_PEPTIDES

    def __init__(self, labels: Labels = "functions", max_length: int | None = _LENGTH, **options: Any) -> None:
        super().__init__(**options)
        check_choice("labels", labels, get_args(Labels))
        if max_length is not None:
            check_range("max_length", max_length, at_least=1, whole=True)
        self.labels, self.max_length = labels, max_length
        if (labels, max_length) != ("functions", _LENGTH):
            self.spec = replace(self.spec, split_sizes=None, mean_nodes=None, mean_edges=None, disk_mb=None)
        self.files = tuple(_SOURCES)
        if labels == "antimicrobial":
            self.files = ("AMPvsUniProt.csv",)
            self.spec = replace(
                self.spec,
                task="graph-classification",
                metric="AUROC",
                loss="cross_entropy",
                num_targets=1,
                num_classes=2,
                target_names=("other", "antimicrobial"),
                source="AMPvsUniProt.csv in the package modlamp",
            )

    def source_key(self) -> dict[str, Any]:
        """Checksums of the files, and what decides about labels and split.

        Raises:
            MissingExtra: modlamp is not installed.
        """
        files = {name: file_sha256(_packaged(name)) for name in self.files}
        return {
            "files": files,
            "labels": self.labels,
            "max_length": self.max_length,
            "split": [list(_FRACTIONS), _SPLIT_SEED],
        }

    def peptides(self) -> Peptides:
        """Sequences and labels, out of the package's files.

        Raises:
            MissingExtra: modlamp is not installed.
            CorruptData: a file is damaged.
        """
        statements = (
            (sequence, label, value)
            for name in self.files
            for sequence, number in read_sequences(_packaged(name))
            if self.max_length is None or len(sequence) <= self.max_length
            for label, value in _SOURCES[name][number]
        )
        return merge_labels(statements, self.spec.num_targets)

    def read(self) -> Mapping[str, GraphTable]:
        """Make molecules of the sequences, and share them out.

        Raises:
            CorruptData: a file is damaged.
        """
        found = self.peptides()
        steps = track(found.sequences, f"Molecules of {self.spec.name}", unit="sequences")
        smiles = [sequence_smiles(sequence) for sequence in steps]
        arrays = read_molecules(smiles, Recipe("ogb"), track=track)
        classes = self.spec.num_classes is not None
        targets = found.labels[arrays.rows]
        table = with_targets(to_table(arrays), targets.astype(np.int64) if classes else targets)
        kept = [found.sequences[row] for row in arrays.rows]
        table = with_text(table, {"smiles": [smiles[row] for row in arrays.rows], "id": kept})
        fractions: dict[str, float] = dict(zip(SPLITS, _FRACTIONS, strict=True))
        rows = grouped_split(likeness_groups(kept), targets, fractions, _SPLIT_SEED)
        return {name: subset(table, rows[name]) for name in SPLITS}


def _packaged(name: str) -> Path:
    return package_file("modlamp", f"data/{name}", extra="peptides", purpose="AMPPeptides")
