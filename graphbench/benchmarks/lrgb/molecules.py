"""The molecules of the Long Range Graph Benchmark: PCQM-Contact, Peptides-func and Peptides-struct."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from graphbench.benchmarks.lrgb import specs
from graphbench.benchmarks.lrgb.files import Convert, contact_table, peptide_table, read_molecules
from graphbench.benchmarks.lrgb.superpixels import LRGBBenchmark
from graphbench.benchmarks.molecules.base import SmilesInput
from graphbench.contracts import GraphTable


class _Molecules(LRGBBenchmark):
    """Base of all three: reads lists saved by torch, and converts their graphs to tables with `convert`."""

    convert: ClassVar[Convert]

    def read_split(self, path: Path) -> Iterator[GraphTable]:
        """Read tables from one split's file."""
        return read_molecules(path, type(self).convert)


class PCQMContact(_Molecules):
    """PCQM-Contact of LRGB: atoms at least five bonds apart that are closer than 3.5 Angstrom in space.

    A batch has the pairs in contact, in both directions, as `contact_index [num_pairs, 2]`. Training samples two wrong
    partners per atom of a pair; evaluation ranks the partner among all atoms of the molecule. The selecting `MRR` is
    that of LRGB, which counts other true partners and the atom itself as candidates; `filtered_MRR` excludes other true
    partners, `filtered_no_self_MRR` also excludes the atom. Atoms and bonds have OGB's features; hydrogens are atoms.
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.2).
    """

    published_name: ClassVar[str] = "pcqm-contact"
    spec = specs.PCQM_CONTACT
    convert = contact_table


class PeptidesFunc(SmilesInput, _Molecules):
    """Peptides-func of LRGB: ten functions of 15,535 peptides; a peptide may have several.

    The score is the average precision (AP), averaged over the ten. Atoms and bonds have OGB's features.
    "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.3).
    """

    published_name: ClassVar[str] = "peptides-func"
    advice: ClassVar[str] = "Without a network, AMPPeptides has molecules of the same kind; its scores do not compare."
    spec = specs.PEPTIDES_FUNC
    convert = peptide_table


class PeptidesStruct(SmilesInput, _Molecules):
    """Peptides-struct of LRGB: eleven numbers that describe the shape in space of the same 15,535 peptides.

    Targets are z-scores over the whole data set, as published, and the mean absolute error (MAE) is on the same scale.
    Atoms and bonds have OGB's features. "Long Range Graph Benchmark" (Dwivedi et al., NeurIPS 2022, section 4.3).
    """

    published_name: ClassVar[str] = "peptides-struct"
    spec = specs.PEPTIDES_STRUCT
    convert = peptide_table
