"""Features in words, held against RDKit."""

from __future__ import annotations

import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.features import qm9_graph, zinc_graph
from graphbench.benchmarks.molecules.chemistry.vocabulary import OGB_ATOMS, OGB_BONDS
from graphbench.benchmarks.molecules.chemistry.words import value_words


def test_every_element_has_its_symbol():
    table = Chem.GetPeriodicTable()
    assert [value_words("ogb", "atomic_num", n - 1) for n in range(1, 119)] == [
        f"atom type {table.GetElementSymbol(n)}" for n in range(1, 119)
    ]


@pytest.mark.parametrize("features", [OGB_ATOMS, OGB_BONDS], ids=["atoms", "bonds"])
def test_every_value_of_every_column_has_words(features):
    for name, size in zip(features.names, features.vocabularies, strict=True):
        words = {value_words("ogb", name, value) for value in range(size)}
        assert len(words) == size


def test_types_of_atoms_and_bonds():
    graph = zinc_graph(Chem.MolFromSmiles("C=[NH2+]"))
    assert [value_words("zinc", "atom_type", atom[0]) for atom in graph.atoms] == ["atom type C", "atom type N H2 +"]
    assert value_words("zinc", "bond_type", graph.bonds[0][0]) == "bond type double"
    graph = qm9_graph(Chem.MolFromSmiles("[O-]C"))
    assert value_words("qm9", "atom_type", graph.atoms[0][0]) == "atom type O -"
