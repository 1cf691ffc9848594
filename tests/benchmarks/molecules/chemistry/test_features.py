"""Atom and bond columns against OGB's conversion and against Kekulé SMILES."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest
from ogb.utils import smiles2graph
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.features import ogb_graph, qm9_graph, value_words, zinc_graph
from graphbench.benchmarks.molecules.chemistry.problems import MoleculeProblem
from graphbench.benchmarks.molecules.chemistry.vocabulary import OGB_ATOMS, OGB_BONDS, QM9_ATOM_TYPES, ZINC_ATOM_TYPES

DRUG = "C[C@@H]1CC(Nc2cncc(-c3nncn3C)c2)C[C@@H](C)C1"
MOLECULES = (
    DRUG,
    "C/C=C\\C#N",
    "[NH3+]C(C)C(=O)[O-]",
    "O=[N+]([O-])c1ccc[nH]1",
    "C",
    "O1C=C[C@H]([C@H]1O2)c3c2cc(OC)c4c3OC(=O)C5=C4CCC(=O)5",
    # values beyond OGB's lists, and rare ones: elements, charges, radicals, bonds, geometries
    "*C[CH2]",
    "[U+6].[O][O].[H][H].[Og]",
    "FS(F)(F)(F)(F)F",
    "N->[Pt](<-N)(Cl)Cl",
    "Cl[Pt@SP1](Br)(F)I",
)


@pytest.mark.parametrize("smiles", MOLECULES)
def test_ogb_graph_equals_ogb(smiles):
    expected, graph = smiles2graph(smiles), ogb_graph(Chem.MolFromSmiles(smiles))
    assert np.array_equal(np.array(graph.atoms), expected["node_feat"])
    assert np.array_equal(np.array(graph.edges).reshape(-1, 2), expected["edge_index"].T)
    assert np.array_equal(np.array(graph.bonds).reshape(-1, 3), expected["edge_feat"])


def kekule_tokens(smiles):
    """Count atom types in another way: write the Kekulé SMILES and parse the atoms of its text."""
    mol = Chem.MolFromSmiles(smiles)
    Chem.Kekulize(mol, clearAromaticFlags=True)
    tokens = []
    for bracket, plain in re.findall(r"\[([^\]]+)\]|(Cl|Br|[BCNOPSFI])", Chem.MolToSmiles(mol, kekuleSmiles=True)):
        if plain:
            tokens.append(plain)
            continue
        symbol, hydrogens, count, sign = re.fullmatch(r"(Cl|Br|[A-Z])@*(H?)(\d*)([+-]?)", bracket).groups()
        shown = f" H{count or 1}" if hydrogens and not (symbol == "N" and not sign and "@" not in bracket) else ""
        tokens.append(f"{symbol}{shown}" + (f" {sign}" if sign else ""))
    return Counter(tokens)


@pytest.mark.parametrize(
    "smiles",
    [
        DRUG,
        "CCN(Cc1ccc(OC)c(OC)c1)C(=O)c1ccsc1",
        "CC[NH+](CC)[C@](C)(CC)[C@H](O)c1cscc1Br",
        "N#CC1=C(SCC(=O)Nc2cccc(Cl)c2)N=C([O-])[C@H](C#N)C12CCCCC2",
        "O=[N+]([O-])c1ccc[nH]1",
        "C[S@](=O)CC[NH3+]",
        "CP(C)C",
        "C[N-]S(=O)(=O)I",
    ],
)
def test_zinc_atom_types_are_those_of_the_kekule_smiles(smiles):
    graph = zinc_graph(Chem.MolFromSmiles(smiles))
    assert Counter(ZINC_ATOM_TYPES[row[0]] for row in graph.atoms) == kekule_tokens(smiles)


@pytest.mark.parametrize(
    ("smiles", "token"),
    [
        ("C[C@H](N)O", "C H1"),
        ("CC(N)O", "C"),
        ("c1ccc[nH]1", "N"),
        ("C[NH2+]C", "N H2 +"),
        ("CPC", "P H1"),
        ("CP", "P H2"),
        ("C[OH+]C", "O H1 +"),
        ("[CH2-]C", "C H2 -"),
    ],
)
def test_hydrogens_show_only_where_brackets_are_needed(smiles, token):
    assert ZINC_ATOM_TYPES.index(token) in [row[0] for row in zinc_graph(Chem.MolFromSmiles(smiles)).atoms]


@pytest.mark.parametrize("graph_of", [zinc_graph, qm9_graph])
def test_bonds_are_kekule_and_both_ways(graph_of):
    graph = graph_of(Chem.MolFromSmiles("c1ccccc1C#N"))
    assert Counter(row[0] for row in graph.bonds) == {1: 2 * 4, 2: 2 * 3, 3: 2}
    assert Counter(graph.edges) == Counter((b, a) for a, b in graph.edges)
    kinds = dict(zip(graph.edges, graph.bonds, strict=True))
    assert all(kinds[a, b] == kinds[b, a] for a, b in graph.edges)


@pytest.mark.parametrize("graph_of", [zinc_graph, qm9_graph])
def test_reading_the_molecule_leaves_it_aromatic(graph_of):
    mol = Chem.MolFromSmiles("c1ccccc1")
    graph_of(mol)
    assert all(atom.GetIsAromatic() for atom in mol.GetAtoms())


@pytest.mark.parametrize(("smiles", "named"), [("CB(O)O", "B"), ("[Si](C)(C)(C)C", "Si"), ("C[N+2]C", r"N \+2")])
def test_atoms_outside_the_vocabulary_are_named(smiles, named):
    with pytest.raises(MoleculeProblem, match=f"none of ZINC's 28 types: {named}$"):
        zinc_graph(Chem.MolFromSmiles(smiles, sanitize=False) if "+2" in smiles else Chem.MolFromSmiles(smiles))


def test_dative_bonds_are_refused():
    with pytest.raises(MoleculeProblem, match="not single, double or triple: DATIVE"):
        zinc_graph(Chem.MolFromSmiles("CN->O", sanitize=False))


@pytest.mark.parametrize(
    ("smiles", "names"),
    [
        ("C", "C"),
        ("NC(=O)CF", "N,C,O,C,F"),
        ("[NH3+]CCC([O-])=O", "N H3 +,C,C,C,O -,O"),
        ("NC(=[NH2+])C([O-])=O", "N,C,N H2 +,C,O -,O"),
        ("C[NH+]=C(N)C([O-])=O", "C,N H1 +,C,N,C,O -,O"),
        ("[NH2+]=CN[C-](C#N)C#N", "N H2 +,C,N,C -,C,N,C,N"),
        ("[NH2+]=C1[CH-]C(=O)C=CN1", "N H2 +,C,C H1 -,C,O,C,C,N"),
        ("O=[N+]([O-])c1ccc[nH]1", "O,N +,O -,C,C,C,C,N"),
        ("C[C@H](O)[C@@H](N)C#N", "C,C,O,C,N,C,N"),  # stereo centres show no hydrogen
        ("C[NH-]", "C,N H1 -"),
        ("C[C+](C)C", "C,C +,C,C"),
        ("C[O+](C)C", "C,O +,C,C"),
    ],
)
def test_qm9_atom_types_are_element_and_charge_with_its_hydrogens(smiles, names):
    assert [QM9_ATOM_TYPES[row[0]] for row in qm9_graph(Chem.MolFromSmiles(smiles)).atoms] == names.split(",")


@pytest.mark.parametrize(("smiles", "named"), [("CS", "S"), ("C[OH+]C", r"O H1 \+1"), ("[CH3-]", "C H3 -1")])
def test_atoms_outside_qm9_are_named(smiles, named):
    with pytest.raises(MoleculeProblem, match=f"none of QM9's 15 types: {named}$"):
        qm9_graph(Chem.MolFromSmiles(smiles))


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
