"""Convert atoms and bonds to categorical columns: OGB's vocabularies, or atom types of ZINC or QM9 and Kekulé bonds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.problems import MoleculeProblem
from graphbench.benchmarks.molecules.chemistry.smiles import handedness
from graphbench.benchmarks.molecules.chemistry.vocabulary import (
    OGB_ATOMS,
    QM9_ATOM_TYPES,
    ZINC_ATOM_TYPES,
    ZINC_BOND_TYPES,
)
from graphbench.data.package_files import load_module, package_file

FeatureSet = Literal["ogb", "ogb_cip", "zinc", "qm9"]


def _numbers(names: Sequence[str]) -> dict[tuple[str, int, int], int]:
    """Map (element, hydrogens shown, charge) to the number of a type, from names like "C", "C H1" and "N H2 +"."""
    numbers = {}
    for number, (element, *marks) in enumerate(map(str.split, names)):
        hydrogens = sum(int(mark[1:]) for mark in marks if mark[0] == "H")
        numbers[element, hydrogens, marks.count("+") - marks.count("-")] = number
    return numbers


_ZINC_TYPE_OF, _QM9_TYPE_OF = _numbers(ZINC_ATOM_TYPES), _numbers(QM9_ATOM_TYPES)
_KEKULE_BOND_OF = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}
_CHIRALITY = OGB_ATOMS.names.index("chirality")
_ATOM_TYPES = {"zinc": ZINC_ATOM_TYPES, "qm9": QM9_ATOM_TYPES}
#: Values of the chirality column of `ogb_cip`.
_CIP = ("none", "R", "S", "that CIP rules leave undecided")
#: Maps a feature to its list in OGB's module.
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
#: OGB's columns in order, with the functions that return their values in RDKit.
_ATOM_VALUES: dict[str, Callable[[Chem.Atom], Any]] = {
    "atomic_num": Chem.Atom.GetAtomicNum,
    "chirality": Chem.Atom.GetChiralTag,
    "degree": Chem.Atom.GetTotalDegree,
    "formal_charge": Chem.Atom.GetFormalCharge,
    "num_hydrogens": Chem.Atom.GetTotalNumHs,
    "num_radical_electrons": Chem.Atom.GetNumRadicalElectrons,
    "hybridization": Chem.Atom.GetHybridization,
    "is_aromatic": Chem.Atom.GetIsAromatic,
    "is_in_ring": Chem.Atom.IsInRing,
}
_BOND_VALUES: dict[str, Callable[[Chem.Bond], Any]] = {
    "bond_type": Chem.Bond.GetBondType,
    "stereo": Chem.Bond.GetStereo,
    "is_conjugated": Chem.Bond.GetIsConjugated,
}
_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)


@dataclass(frozen=True)
class MoleculeGraph:
    """One molecule as lists of rows: columns of every atom, (from, to) and columns of every directed edge.

    Each bond becomes two consecutive edges, one per direction.
    """

    atoms: list[tuple[int, ...]]
    edges: list[tuple[int, int]]
    bonds: list[tuple[int, ...]]


@functools.cache
def ogb_vocabulary() -> ModuleType:
    """Load OGB's feature module from the installed package by path."""
    return load_module(package_file("ogb", "utils/features.py", purpose="Atom features"), "ogb_utils_features")


class _Places(dict[Any, int]):
    """Positions of values in one of OGB's lists, each looked up once; RDKit's enums are listed by name."""

    def __init__(self, feature: str) -> None:
        super().__init__()
        self.feature = feature
        self.listed: list[Any] = ogb_vocabulary().allowable_features[_OGB_LISTS[feature]]

    def __missing__(self, value: Any) -> int:
        """Find a new value, or "misc", the last of most lists; raise `MoleculeProblem` if the list has neither."""
        place = next((number for number, one in enumerate(self.listed) if one in (value, str(value))), None)
        if place is None and self.listed[-1] != "misc":
            raise MoleculeProblem(f"a bond's {self.feature} label is not in OGB's vocabulary", str(value))
        self[value] = len(self.listed) - 1 if place is None else place
        return self[value]


@functools.cache
def _ogb_places() -> tuple[list[_Places], list[_Places]]:
    return [_Places(name) for name in _ATOM_VALUES], [_Places(name) for name in _BOND_VALUES]


def _rows(
    items: Sequence[Any], values: Iterable[Callable[[Any], Any]], places: Iterable[_Places]
) -> list[tuple[int, ...]]:
    """Look up the columns of atoms or bonds column by column, since a Python loop takes longer than RDKit."""
    columns = (map(place.__getitem__, map(value, items)) for value, place in zip(values, places, strict=True))
    return list(zip(*columns, strict=True))


def _atoms(mol: Chem.Mol) -> list[Chem.Atom]:
    """Return the atoms, faster than `GetAtoms()`, which computes its length at every step."""
    return list(map(mol.GetAtomWithIdx, range(mol.GetNumAtoms())))


def _bonds(mol: Chem.Mol) -> list[Chem.Bond]:
    return list(map(mol.GetBondWithIdx, range(mol.GetNumBonds())))


def _graph(
    atoms: list[tuple[int, ...]], bonds: Sequence[Chem.Bond], bond_rows: Iterable[tuple[int, ...]]
) -> MoleculeGraph:
    """Add both directions of every bond."""
    ends = zip(map(Chem.Bond.GetBeginAtomIdx, bonds), map(Chem.Bond.GetEndAtomIdx, bonds), strict=True)
    edges = [edge for begin, end in ends for edge in ((begin, end), (end, begin))]
    return MoleculeGraph(atoms, edges, [row for row in bond_rows for _ in range(2)])


def ogb_graph(mol: Chem.Mol) -> MoleculeGraph:
    """Compute OGB's nine atom and three bond columns (Hu et al., 2020), in the order of `ogb.utils.smiles2graph`.

    Raises `MoleculeProblem` for a stereo label that is not in OGB's vocabulary (atropisomers).
    """
    bonds = _bonds(mol)
    atom_places, bond_places = _ogb_places()
    atoms = _rows(_atoms(mol), _ATOM_VALUES.values(), atom_places)
    return _graph(atoms, bonds, _rows(bonds, _BOND_VALUES.values(), bond_places))


def ogb_cip_graph(mol: Chem.Mol) -> MoleculeGraph:
    """Compute the columns of `ogb_graph` with R or S for chirality, since RDKit's tag depends on the neighbour order.

    The molecule must not have isotopes or map numbers, see `smiles.without_labels`.
    """
    graph = ogb_graph(mol)
    for atom, number in handedness(mol).items():
        row = graph.atoms[atom]
        graph.atoms[atom] = (*row[:_CHIRALITY], number, *row[_CHIRALITY + 1 :])
    return graph


def zinc_atom_type(atom: Chem.Atom) -> int:
    """Return the number in `ZINC_ATOM_TYPES` of an atom of a Kekulé molecule (aromatic flags cleared).

    The published names are element, hydrogens and charge as written in a Kekulé SMILES. Hydrogens are shown only on
    atoms that need brackets: charged ones, tetrahedral stereo centres and phosphorus.
    """
    bracketed = atom.GetFormalCharge() != 0 or atom.GetChiralTag() in _TETRAHEDRAL or atom.GetSymbol() == "P"
    return _number(atom, bracketed, _ZINC_TYPE_OF, "ZINC's 28 types")


def qm9_atom_type(atom: Chem.Atom) -> int:
    """Return the number in `QM9_ATOM_TYPES` of a heavy atom, whose hydrogens are shown only if it is charged.

    Stereo centres show none: SDF files have a geometry and thus mark every centre, unlike SMILES of these molecules.
    """
    return _number(atom, atom.GetFormalCharge() != 0, _QM9_TYPE_OF, "QM9's 15 types")


def _number(atom: Chem.Atom, bracketed: bool, type_of: Mapping[tuple[str, int, int], int], types: str) -> int:
    symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
    hydrogens = atom.GetTotalNumHs() if bracketed else 0
    number = type_of.get((symbol, hydrogens, charge))
    if number is None:
        name = symbol + (f" H{hydrogens}" if hydrogens else "") + (f" {charge:+d}" if charge else "")
        raise MoleculeProblem(f"an atom is none of {types}", name)
    return number


def _kekule_graph(atom_type: Callable[[Chem.Atom], int], mol: Chem.Mol) -> MoleculeGraph:
    kekule = Chem.Mol(mol)  # Kekulize changes its argument, whose aromatic form other columns need
    Chem.Kekulize(kekule, clearAromaticFlags=True)

    def bond_row(bond: Chem.Bond) -> tuple[int]:
        if (number := _KEKULE_BOND_OF.get(bond.GetBondType())) is None:
            raise MoleculeProblem("a bond is not single, double or triple", str(bond.GetBondType()))
        return (number,)

    bonds = _bonds(kekule)
    return _graph([(atom_type(atom),) for atom in _atoms(kekule)], bonds, map(bond_row, bonds))


def zinc_graph(mol: Chem.Mol) -> MoleculeGraph:
    """Compute one atom column (28 types) and one bond column (1 single, 2 double, 3 triple) of the Kekulé form.

    RDKit chooses one of several Kekulé forms, and its choice may change with its version.
    """
    return _kekule_graph(zinc_atom_type, mol)


def qm9_graph(mol: Chem.Mol) -> MoleculeGraph:
    """Compute one atom column (15 types, see `QM9_ATOM_TYPES`) and the bond column of `zinc_graph`; no hydrogens."""
    return _kekule_graph(qm9_atom_type, mol)


GRAPH_OF: dict[FeatureSet, Callable[[Chem.Mol], MoleculeGraph]] = {
    "ogb": ogb_graph,
    "ogb_cip": ogb_cip_graph,
    "zinc": zinc_graph,
    "qm9": qm9_graph,
}
#: Maps a feature set to (atom columns, bond columns).
NUM_COLUMNS: dict[FeatureSet, tuple[int, int]] = {"ogb": (9, 3), "ogb_cip": (9, 3), "zinc": (1, 1), "qm9": (1, 1)}


def value_words(vocabulary: str, feature: str, value: int) -> str:
    """Describe the value of a feature of a vocabulary (ogb, ogb_cip, zinc or qm9) for a chemist.

    Examples:
        >>> value_words("ogb", "atomic_num", 13), value_words("zinc", "atom_type", 7)
        ('atom type Si', 'atom type O -')
    """
    names: Sequence[Any]
    if vocabulary == "ogb_cip" and feature == "chirality" and value < len(_CIP):
        names = _CIP
    elif vocabulary in ("ogb", "ogb_cip"):
        names = ogb_vocabulary().allowable_features[_OGB_LISTS[feature]]
    else:
        names = _ATOM_TYPES[vocabulary] if feature == "atom_type" else ZINC_BOND_TYPES
    name = names[value]
    if feature == "atomic_num":
        element = name if isinstance(name, str) else Chem.GetPeriodicTable().GetElementSymbol(name)
        return f"atom type {element}"
    return f"{feature.replace('_', ' ')} {name}"
