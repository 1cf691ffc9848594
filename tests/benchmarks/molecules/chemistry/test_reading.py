"""SMILES to arrays in one or several processes, and molecules that cannot be read."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
from ogb.utils import smiles2graph
from rdkit import Chem
from rdkit.Chem.Scaffolds import MurckoScaffold

from graphbench.benchmarks.molecules.chemistry import reading
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.data import worker_pool as pool
from graphbench.errors import GraphbenchError

GOOD = ["CCO", "c1ccccc1", "C", "CC(C)N", "[Na+].[Cl-]", "C1CCCCCCC1"]
RECIPE = Recipe("ogb", "smallest_rings", scaffold=True)


def same(a, b):
    """Return whether two results are equal in every field."""
    for name, value in vars(a).items():
        other = getattr(b, name)
        if not (np.array_equal(value, other) if isinstance(value, np.ndarray) else value == other):
            return False
    return True


def test_molecules_lie_one_after_the_other():
    arrays = read_molecules(GOOD, RECIPE, num_workers=0)
    assert arrays.num_nodes.tolist() == [3, 6, 1, 4, 2, 8]
    assert arrays.num_edges.tolist() == [4, 12, 0, 6, 0, 16]
    assert arrays.num_fragments.tolist() == [1, 1, 1, 1, 2, 1]
    assert arrays.scaffolds == ["", "c1ccccc1", "", "", "", "C1CCCCCCC1"]
    assert arrays.terms[:, 2].tolist() == [0, 0, 0, 0, 0, -2]
    expected = np.concatenate([smiles2graph(smiles)["node_feat"] for smiles in GOOD])
    assert np.array_equal(arrays.x, expected)


def test_workers_give_the_same_as_one_process():
    smiles = [GOOD[number % len(GOOD)] if number % 50 else "C1CC" for number in range(700)]
    alone, together = (read_molecules(smiles, RECIPE, num_workers=workers) for workers in (0, 2))
    assert same(alone, together)
    assert [row for row, _, _ in alone.problems] == list(range(0, 700, 50))
    assert alone.rows.tolist() == [row for row in range(700) if row % 50]


@pytest.mark.parametrize(
    ("smiles", "kind", "detail"),
    [
        ("C1CC", "RDKit cannot read the molecule", "'C1CC': ring bond 1 is opened and not closed"),
        ("CN(C)(C)C", "RDKit cannot read the molecule", "Explicit valence for atom # 1 N, 4"),
        ("c1cccc1", "RDKit cannot read the molecule", "Can't kekulize"),
        ("", "the molecule has no atoms", "''"),
    ],
)
def test_unusable_molecules_come_back_as_data(smiles, kind, detail, capfd):
    arrays = read_molecules(["CC", smiles, "CO"], RECIPE, num_workers=0)
    (row, found, told), *rest = arrays.problems
    assert (row, found, rest) == (1, kind, [])
    assert detail in told
    assert arrays.rows.tolist() == [0, 2]
    assert capfd.readouterr().err == ""  # RDKit's messages are suppressed


def test_failures_of_rdkit_are_data_too(monkeypatch):
    def fails(mol):
        raise RuntimeError("Pre-condition Violation")

    monkeypatch.setitem(reading.GRAPH_OF, "ogb", fails)
    (problem,) = read_molecules(["CC"], Recipe("ogb"), num_workers=0).problems
    assert problem == (0, "RDKit fails with RuntimeError", "'CC': Pre-condition Violation")


@pytest.mark.parametrize("smiles", ["C:C1=CC(=O)C=CC1=O", "ON=C:C1=CC=C(O)C=C1", "CC:N1C2=C(SC3=C1C=CC=C3)C=CC=C2"])
def test_an_aromatic_bond_outside_of_rings_is_the_single_bond_of_the_canonical_spelling(smiles):
    """RDKit makes the bond single, but keeps hybridisation and conjugation as if it were aromatic."""
    mol = parse_smiles(smiles)
    other = parse_smiles(Chem.MolToSmiles(mol))
    place = other.GetSubstructMatch(mol)
    for atom in mol.GetAtoms():
        assert atom.GetHybridization() == other.GetAtomWithIdx(place[atom.GetIdx()]).GetHybridization()
    for bond in mol.GetBonds():
        same = other.GetBondBetweenAtoms(place[bond.GetBeginAtomIdx()], place[bond.GetEndAtomIdx()])
        assert (bond.GetBondType(), bond.GetIsConjugated()) == (same.GetBondType(), same.GetIsConjugated())


def test_labels_change_neither_canonical_smiles_nor_scaffold():
    """Else a molecule and its copy with map numbers would be in different splits by scaffold."""
    plain = "O=C(Nc1ccccc1)C1CCN(C)C1"
    mol = Chem.MolFromSmiles(plain)
    labelled = []
    for label in (Chem.Atom.SetAtomMapNum, Chem.Atom.SetIsotope):
        for number in range(mol.GetNumAtoms()):
            copy = Chem.Mol(mol)
            label(copy.GetAtomWithIdx(number), 15)
            labelled.append(Chem.MolToSmiles(copy))
    labelled += [plain.replace("N(C)", "N([2H])"), plain.replace("N(C)", "N([H:3])")]
    arrays = read_molecules([plain, *labelled], Recipe("ogb", scaffold=True, canonical=True), num_workers=0)
    assert not arrays.problems
    assert set(arrays.scaffolds) == {MurckoScaffold.MurckoScaffoldSmiles(plain)}
    assert len(set(arrays.canonical)) == 2  # the last two lack the methyl group


def test_nothing_at_all_is_readable():
    for smiles in ([], ["C1CC"]):
        arrays = read_molecules(smiles, RECIPE)
        assert (len(arrays), arrays.x.shape, arrays.terms.shape) == (0, (0, 9), (0, 3))
        assert arrays.scaffolds == []


def test_progress_sees_every_chunk():
    seen = []

    def track(items, description, total, unit):
        for item in items:
            seen.append((description, total, unit, len(item)))
            yield item

    read_molecules(["C"] * 300, Recipe("zinc"), num_workers=0, track=track, description="Molecules")
    assert seen == [("Molecules", 2, "chunks of 256 molecules", size) for size in (256, 44)]


def _dies(recipe, chunk):
    os._exit(9)


def test_killed_worker_is_one_message(monkeypatch):
    monkeypatch.setattr(reading, "read_chunk", _dies)
    with pytest.raises(GraphbenchError, match="Reading molecules: a process was ended from outside"):
        read_molecules(["C"] * 600, Recipe("zinc"), num_workers=2)


def test_workers_do_not_import_torch():
    code = "import sys, graphbench.benchmarks.molecules.chemistry.reading; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_spawned_workers_give_the_same(monkeypatch):
    """Workers are spawned, as on platforms where a fork is not safe."""
    monkeypatch.setattr(pool, "worker_context", lambda: multiprocessing.get_context("spawn"))
    smiles = GOOD * 50
    assert same(read_molecules(smiles, RECIPE, num_workers=2), read_molecules(smiles, RECIPE, num_workers=0))
