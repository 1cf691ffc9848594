"""Categorical features of atoms and bonds in words, for messages about molecules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.features import ogb_vocabulary
from graphbench.benchmarks.molecules.chemistry.vocabulary import QM9_ATOM_TYPES, ZINC_ATOM_TYPES, ZINC_BOND_TYPES

_ATOM_TYPES = {"zinc": ZINC_ATOM_TYPES, "qm9": QM9_ATOM_TYPES}
#: What the chirality column of `ogb_cip` has in place of RDKit's tags.
_CIP = ("none", "R", "S", "that CIP rules leave undecided")
#: Feature's name here -> its list in OGB's module.
_OGB_LISTS = {
    "atomic_num": "possible_atomic_num_list",
    "chirality": "possible_chirality_list",
    "degree": "possible_degree_list",
    "formal_charge": "possible_formal_charge_list",
    "num_hydrogens": "possible_numH_list",
    "num_radical_electrons": "possible_number_radical_e_list",
    "hybridization": "possible_hybridization_list",
    "is_aromatic": "possible_is_aromatic_list",
    "is_in_ring": "possible_is_in_ring_list",
    "bond_type": "possible_bond_type_list",
    "stereo": "possible_bond_stereo_list",
    "is_conjugated": "possible_is_conjugated_list",
}


def value_words(vocabulary: str, feature: str, value: int) -> str:
    """A feature and its value as a chemist says them.

    Args:
        vocabulary: ogb, ogb_cip, zinc or qm9.
        feature: name of the column.
        value: its number.

    Examples:
        >>> value_words("ogb", "atomic_num", 13), value_words("zinc", "atom_type", 7)
        ('atom type Si', 'atom type O -')
    """
    known: Sequence[Any]
    if vocabulary == "ogb_cip" and feature == "chirality" and value < len(_CIP):
        return f"chirality {_CIP[value]}"
    if vocabulary in ("ogb", "ogb_cip"):
        known = ogb_vocabulary().allowable_features[_OGB_LISTS[feature]]
    else:
        known = _ATOM_TYPES[vocabulary] if feature == "atom_type" else ZINC_BOND_TYPES
    found = known[value]
    if feature == "atomic_num":
        element = found if isinstance(found, str) else Chem.GetPeriodicTable().GetElementSymbol(found)
        return f"atom type {element}"
    return f"{feature.replace('_', ' ')} {found}"
