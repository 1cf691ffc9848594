"""Names and sizes of the categorical features of atoms and bonds.

All values are literals, so that a benchmark's specification can be read without importing RDKit, OGB or torch.
"""

from __future__ import annotations

from graphbench.contracts import Features

#: The 28 atom types of ZINC in "Benchmarking Graph Neural Networks" (Dwivedi et al., 2023), in the published order:
#: element, hydrogens if a Kekulé SMILES must show them, sign of the charge.
ZINC_ATOM_TYPES = (
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -", "S -", "I", "P",
    "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +", "C H1 -", "P H1 +",
)  # fmt: skip
#: The 15 types of heavy atoms of QM9: element, and for a charged atom its hydrogens and the charge's sign. Twelve occur
#: in qm9pack 1.0.3, in order of frequency. "Graph Transformers Dream of Electric Flow" (arXiv 2410.16699) implies only
#: their number, by 799,747 parameters; its code names a notebook (CS6208_2023, lab 9) with 13 types, of which qm9pack
#: lacks the last three here. It is a guess that this union of 15 is the authors' list.
QM9_ATOM_TYPES = (
    "C", "O", "N", "F", "O -", "N H2 +", "N +", "N H1 +", "C -", "N H3 +", "N -", "C H1 -", "N H1 -", "C +", "O +",
)  # fmt: skip
#: Bond types of ZINC and QM9 in their Kekulé forms; type 0 marks "no bond" in adjacency matrices and never occurs on
#: an edge.
ZINC_BOND_TYPES = ("none", "single", "double", "triple")

#: Atom columns of OGB (`ogb.utils.features.atom_to_feature_vector`, Hu et al., 2020).
OGB_ATOMS = Features(
    vocabularies=(119, 5, 12, 12, 10, 6, 6, 2, 2),
    names=(
        "atomic_num", "chirality", "degree", "formal_charge", "num_hydrogens", "num_radical_electrons",
        "hybridization", "is_aromatic", "is_in_ring",
    ),
)  # fmt: skip
#: Bond columns of OGB (`ogb.utils.features.bond_to_feature_vector`).
OGB_BONDS = Features(vocabularies=(5, 6, 2), names=("bond_type", "stereo", "is_conjugated"))
