"""Atoms and bonds as categorical columns: OGB's vocabularies, or ZINC's atom types with Kekulé bonds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.problems import MoleculeProblem
from graphbench.benchmarks.molecules.chemistry.vocabulary import ZINC_ATOM_TYPES
from graphbench.data.package_files import load_module, package_file

FeatureSet = Literal["ogb", "zinc"]
_BondFeatures = Callable[[Chem.Bond], list[int]]

#: (element, hydrogens shown, charge) -> type
_ZINC_TYPE_OF = {
    (
        label.split()[0],
        next((int(part[1:]) for part in label.split()[1:] if part[0] == "H"), 0),
        {"+": 1, "-": -1}.get(label.split()[-1], 0),
    ): number
    for number, label in enumerate(ZINC_ATOM_TYPES)
}
_ZINC_BOND_OF = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}
_TETRAHEDRAL = (Chem.ChiralType.CHI_TETRAHEDRAL_CW, Chem.ChiralType.CHI_TETRAHEDRAL_CCW)


@dataclass(frozen=True)
class MoleculeGraph:
    """One molecule as nested lists.

    Args:
        atoms: categorical columns of every atom, `num_atoms` rows.
        edges: (from, to) of every directed edge; each bond gives two neighbouring rows, one a direction.
        bonds: categorical columns of every directed edge.
    """

    atoms: list[list[int]]
    edges: list[tuple[int, int]]
    bonds: list[list[int]]


@functools.cache
def ogb_vocabulary() -> ModuleType:
    """OGB's own feature module, loaded from the installed package by path."""
    return load_module(package_file("ogb", "utils/features.py", purpose="Atom features"), "ogb_utils_features")


def _both_directions(mol: Chem.Mol, bond_features: _BondFeatures) -> tuple[list[tuple[int, int]], list[list[int]]]:
    edges, rows = [], []
    for number in range(mol.GetNumBonds()):  # twice as fast as iterating over `GetBonds()`
        bond = mol.GetBondWithIdx(number)
        begin, end, features = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx(), bond_features(bond)
        edges += [(begin, end), (end, begin)]
        rows += [features, features]
    return edges, rows


def _atoms(mol: Chem.Mol) -> Iterator[Chem.Atom]:
    """All atoms; twice as fast as `GetAtoms()`, which asks for its length at every step."""
    return map(mol.GetAtomWithIdx, range(mol.GetNumAtoms()))


def ogb_graph(mol: Chem.Mol) -> MoleculeGraph:
    """Nine atom and three bond columns of OGB (Hu et al., 2020), in the order of `ogb.utils.smiles2graph`.

    Raises:
        MoleculeProblem: a bond has a stereo label that OGB's vocabulary lacks (atropisomers).
    """
    vocabulary = ogb_vocabulary()
    atoms = [vocabulary.atom_to_feature_vector(atom) for atom in _atoms(mol)]
    try:
        edges, bonds = _both_directions(mol, vocabulary.bond_to_feature_vector)
    except ValueError as error:  # the stereo column is the one without a "misc" value
        raise MoleculeProblem("a bond's stereo label is not in OGB's vocabulary", str(error)) from error
    return MoleculeGraph(atoms, edges, bonds)


def zinc_atom_type(atom: Chem.Atom) -> int:
    """Number in `ZINC_ATOM_TYPES` of an atom of a Kekulé molecule (aromatic flags cleared).

    The published names are element, hydrogens and charge as a Kekulé SMILES writes them. Hydrogens show only where
    an atom needs brackets: when it is charged or a tetrahedral stereo centre, or is phosphorus.

    Raises:
        MoleculeProblem: none of the 28 types fits.
    """
    symbol, charge = atom.GetSymbol(), atom.GetFormalCharge()
    bracketed = charge != 0 or atom.GetChiralTag() in _TETRAHEDRAL or symbol == "P"
    hydrogens = atom.GetTotalNumHs() if bracketed else 0
    number = _ZINC_TYPE_OF.get((symbol, hydrogens, charge))
    if number is None:
        name = symbol + (f" H{hydrogens}" if hydrogens else "") + (f" {charge:+d}" if charge else "")
        raise MoleculeProblem("an atom is none of ZINC's 28 types", name)
    return number


def _zinc_bond(bond: Chem.Bond) -> list[int]:
    number = _ZINC_BOND_OF.get(bond.GetBondType())
    if number is None:
        raise MoleculeProblem("a bond is not single, double or triple", str(bond.GetBondType()))
    return [number]


def zinc_graph(mol: Chem.Mol) -> MoleculeGraph:
    """One atom column (28 types) and one bond column (1 single, 2 double, 3 triple) of the Kekulé form.

    Which of several Kekulé forms is taken is RDKit's choice and may change with its version.

    Raises:
        MoleculeProblem: an atom or a bond is outside the published vocabulary.
    """
    kekule = Chem.Mol(mol)
    Chem.Kekulize(kekule, clearAromaticFlags=True)
    atoms = [[zinc_atom_type(atom)] for atom in _atoms(kekule)]
    return MoleculeGraph(atoms, *_both_directions(kekule, _zinc_bond))


GRAPH_OF: dict[FeatureSet, Callable[[Chem.Mol], MoleculeGraph]] = {"ogb": ogb_graph, "zinc": zinc_graph}
#: (atom columns, bond columns)
NUM_COLUMNS: dict[FeatureSet, tuple[int, int]] = {"ogb": (9, 3), "zinc": (1, 1)}
