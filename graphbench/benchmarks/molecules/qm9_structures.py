"""Read molecules of QM9 with their geometry: match atoms with coordinates, and convert them to arrays on all cores.

Do not import torch here, so that spawned workers start fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.features import FeatureSet
from graphbench.benchmarks.molecules.chemistry.problems import UNREADABLE, MoleculeProblem, quote
from graphbench.benchmarks.molecules.chemistry.properties import logp_terms
from graphbench.benchmarks.molecules.chemistry.reading import (
    MoleculeArrays,
    ReadMolecule,
    Recipe,
    concatenate,
    examine,
    read_each,
    stack_molecules,
)
from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles

#: Covalent radii in Angstrom (Cordero et al., Dalton Trans. 2832 (2008)).
_RADII = {"H": 0.31, "C": 0.76, "N": 0.71, "O": 0.66, "F": 0.57}
#: Maximum length of a bond over the sum of its radii; the second is for the two most strained molecules.
_STRETCHES = (1.3, 1.5)
#: PCQM-Contact's rule (Dwivedi et al., 2022, section 4.2): maximum distance in Angstrom, minimum number of bonds.
CONTACT_DISTANCE, CONTACT_BONDS = 3.5, 5
_ALL = Chem.SanitizeFlags.SANITIZE_ALL
_NO_VALENCE = _ALL ^ Chem.SanitizeFlags.SANITIZE_PROPERTIES
#: From strict to lenient: all checks; no valence check; no valence check and no Kekulé form.
_STAGES = (_ALL, _NO_VALENCE, _NO_VALENCE ^ Chem.SanitizeFlags.SANITIZE_KEKULIZE)


@dataclass(frozen=True)
class StructureRecipe:
    """Values to compute for every molecule.

    Args:
        hydrogens: whether hydrogens are nodes.
        positions: whether to return coordinates of every node.
        terms: whether to compute the three terms of penalised logP, with the smallest rings.
        contacts: whether to return pairs of nodes in contact, see `contact_pairs`.
        features: columns of atoms and bonds; "qm9" has types of heavy atoms only.
    """

    hydrogens: bool = True
    positions: bool = False
    terms: bool = False
    contacts: bool = False
    features: FeatureSet = "ogb"

    @property
    def geometry(self) -> bool:
        """Return whether coordinates are needed."""
        return self.positions or self.contacts


@dataclass(frozen=True)
class PackRecord:
    """One row of qm9pack: SMILES, element symbols, and coordinates in Angstrom in the order of the symbols, as text."""

    smiles: str
    elements: tuple[str, ...] = ()
    coordinates: str = ""


@dataclass(frozen=True)
class MolBlock:
    """One record of an SDF file, including hydrogens and coordinates."""

    text: str


Record = PackRecord | MolBlock


@dataclass
class Structures:
    """Molecules as arrays, one after the other. Legend: M readable molecules, A atoms, C contacts.

    Args:
        arrays: graphs and properties.
        positions: Angstrom, float32 `[A, 3]`, or `[0, 3]`.
        contacts: node numbers within the molecule, smaller first, uint8 `[C, 2]`.
        num_contacts: contacts per molecule `[M]`.
        smiles: SMILES without hydrogens `[M]`.
    """

    arrays: MoleculeArrays
    positions: np.ndarray
    contacts: np.ndarray
    num_contacts: np.ndarray
    smiles: list[str]


@dataclass(frozen=True)
class _Structure:
    """Values of one record, with fields as in `Structures`."""

    molecule: ReadMolecule
    positions: np.ndarray
    contacts: np.ndarray
    smiles: str


def molecule_of_pack(record: PackRecord, geometry: bool) -> Chem.Mol:
    """Parse a SMILES into a molecule with all hydrogens and, if `geometry`, coordinates for every atom.

    Atoms have the order of the SMILES, followed by their hydrogens. Coordinates nearly always have the same order; if
    not, bonds are derived from distances and the two graphs are matched.
    """
    mol = Chem.AddHs(parse_smiles(record.smiles))
    if not geometry:
        return mol
    cells = record.coordinates.replace("[", " ").replace("]", " ").replace(",", " ").split()
    positions = np.array(cells, dtype=np.float64).reshape(-1, 3)
    if not len(positions) == len(record.elements) == mol.GetNumAtoms():
        raise MoleculeProblem(
            "the coordinates are not those of the SMILES", f"{len(positions)} of {len(cells)} numbers"
        )
    order = _order_of_atoms(mol, record.elements, positions)
    conformer = Chem.Conformer(mol.GetNumAtoms())
    conformer.SetPositions(np.ascontiguousarray(positions[order]))
    mol.AddConformer(conformer)
    return mol


def _order_of_atoms(mol: Chem.Mol, elements: Sequence[str], positions: np.ndarray) -> np.ndarray:
    """Return the row of `positions` for each atom: `[atoms]`."""
    radii = np.array([_RADII.get(symbol, 0.0) for symbol in elements])
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=-1) / (radii[:, None] + radii[None])
    bonded = Chem.GetAdjacencyMatrix(mol).astype(bool)
    symbols = [atom.GetSymbol() for atom in mol.GetAtoms()]
    template = _skeleton(symbols, [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in mol.GetBonds()])
    for stretch in _STRETCHES:
        close = distance < stretch
        # The order of the symbols is nearly always that of the atoms, which makes the search for a match unnecessary.
        if symbols == list(elements) and bool(close[bonded].all()):
            return np.arange(len(elements))
        measured = _skeleton(elements, [(int(i), int(j)) for i, j in np.argwhere(np.triu(close, 1))])
        if match := measured.GetSubstructMatch(template):
            return np.array(match)
    raise MoleculeProblem("the coordinates are not those of the SMILES")


def _skeleton(elements: Sequence[str], bonds: Sequence[tuple[int, int]]) -> Chem.Mol:
    """Build a molecule of elements and single bonds, to match it with another."""
    mol = Chem.RWMol()
    for symbol in elements:
        mol.AddAtom(Chem.Atom(symbol))
    for begin, end in bonds:
        mol.AddBond(begin, end, Chem.BondType.SINGLE)
    return mol.GetMol()


def molecule_of_block(record: MolBlock) -> Chem.Mol:
    """Parse an SDF record into a molecule with all its hydrogens and coordinates.

    Records that RDKit cannot sanitise (ions without their charges) are read without a valence check, and if necessary
    without a Kekulé form.
    """
    mol = Chem.MolFromMolBlock(record.text, sanitize=False, removeHs=False)
    if mol is None or mol.GetNumAtoms() == 0:
        raise MoleculeProblem(UNREADABLE)
    return sanitize(mol)


def sanitize(mol: Chem.Mol) -> Chem.Mol:
    """Sanitise a copy of a molecule as strictly as possible."""
    for stage in _STAGES:
        copy = Chem.Mol(mol)
        copy.UpdatePropertyCache(strict=False)
        if Chem.SanitizeMol(copy, sanitizeOps=stage, catchErrors=True) == Chem.SanitizeFlags.SANITIZE_NONE:
            return copy
    raise MoleculeProblem(UNREADABLE)


def without_hydrogens(mol: Chem.Mol) -> Chem.Mol:
    """Remove the hydrogens of a sanitised molecule; heavy atoms keep their coordinates and number of hydrogens."""
    heavy = Chem.RemoveHs(mol, sanitize=False)
    # Set hydrogen counts only if RDKit cannot derive them, since explicit counts show in the SMILES.
    if Chem.DetectChemistryProblems(heavy):
        heavy = Chem.RemoveHs(mol, updateExplicitCount=True, sanitize=False)
    return sanitize(heavy)


def contact_pairs(mol: Chem.Mol) -> np.ndarray:
    """Return pairs of atoms closer than 3.5 Angstrom but at least 5 bonds apart `[C, 2]`, smaller number first.

    This is PCQM-Contact's rule (Dwivedi et al., "Long Range Graph Benchmark", NeurIPS 2022, section 4.2). Atoms of
    different fragments are never in contact.
    """
    positions = mol.GetConformer().GetPositions()
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=-1)
    bonds = Chem.GetDistanceMatrix(mol)
    apart = (bonds >= CONTACT_BONDS) & (bonds < mol.GetNumAtoms())  # RDKit marks "no path" by a large number
    return np.argwhere(np.triu(apart & (distance < CONTACT_DISTANCE), 1))


def _read_one(recipe: StructureRecipe, record: Record) -> _Structure:
    if isinstance(record, PackRecord):
        full, smiles = molecule_of_pack(record, recipe.geometry), record.smiles
        heavy = Chem.RemoveHs(full)
    else:
        full = molecule_of_block(record)
        heavy = without_hydrogens(full)
        smiles = Chem.MolToSmiles(heavy)
    mol = full if recipe.hydrogens else heavy
    molecule = examine(Recipe(recipe.features), mol)
    if recipe.terms:
        molecule = replace(molecule, terms=logp_terms(heavy))
    return _Structure(
        molecule,
        mol.GetConformer().GetPositions() if recipe.positions else np.empty((0, 3)),
        contact_pairs(mol) if recipe.contacts else np.empty((0, 2)),
        smiles,
    )


def read_structures(recipe: StructureRecipe, chunk: tuple[int, Sequence[Record]]) -> Structures:
    """Read the records `chunk[1]`, which begin at row `chunk[0]` of the input."""
    start, records = chunk
    name = lambda row, one: quote(one.smiles) if isinstance(one, PackRecord) else f"record {row + 1:,}"  # noqa: E731
    by_row, problems = read_each(partial(_read_one, recipe), records, start, name)
    molecules = {row: structure.molecule for row, structure in by_row.items()}
    columns = Recipe(recipe.features, "smallest_rings" if recipe.terms else None)
    arrays = stack_molecules(columns, molecules, problems)
    structures = list(by_row.values())
    return Structures(
        arrays,
        np.concatenate([np.empty((0, 3)), *(one.positions for one in structures)]).astype(np.float32),
        np.concatenate([np.empty((0, 2)), *(one.contacts for one in structures)]).astype(np.uint8),
        np.array([len(one.contacts) for one in structures], dtype=np.int64),
        [one.smiles for one in structures],
    )


def read_texts(recipe: StructureRecipe, chunk: tuple[int, Sequence[str]]) -> MoleculeArrays:
    """Read graphs of SMILES, without coordinates and targets; `chunk` is as in `read_structures`."""
    start, texts = chunk
    graphs = replace(recipe, positions=False, terms=False, contacts=False)
    return read_structures(graphs, (start, [PackRecord(text) for text in texts])).arrays


def join_structures(parts: Sequence[Structures]) -> Structures:
    """Concatenate chunks."""
    return Structures(
        concatenate([part.arrays for part in parts]),
        np.concatenate([part.positions for part in parts]),
        np.concatenate([part.contacts for part in parts]),
        np.concatenate([part.num_contacts for part in parts]),
        [text for part in parts for text in part.smiles],
    )
