"""Every model of molecules gives a molecule one answer, whatever its spelling, form and isotopes."""

import csv
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from rdkit import Chem, RDLogger

import graphbench
from graphbench import registry
from graphbench.benchmarks import NCI, Molecules, MolHIV
from graphbench.benchmarks.molecules.chemistry.problems import find_repeats
from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules
from graphbench.benchmarks.molecules.chemistry.smiles import R, S
from graphbench.data.encode import encoded_here

#: Centres of an amino acid, a sugar, neighbours that differ only in handedness, rings, S, P, double bonds.
CHIRAL = (
    "N[C@@H](C)C(=O)O",
    "OC[C@H]1O[C@@H](O)[C@H](O)[C@@H](O)[C@@H]1O",
    "O[C@@H](C)[C@H](O)[C@H](C)O",
    "C[C@H]1CC[C@@H](C)CC1",
    "C[S@](=O)c1ccccc1",
    "C[P@](=O)(O)c1ccccc1",
    "C/C=C/[C@H](F)/C=C\\C",
    "CC(C)(C)c1ccc(O[P@]2OC[C@]3(CO2)CO[P@](OC4CC4)OC3)cc1",
)
MEASURED = Path(__file__).parents[5] / "shared" / "data" / "aqsol" / "aqsoldb.csv"
#: Models of sequences, which read no molecules, and `Positions`, which predicts nothing.
OTHERS = {"Luna", "MEGA", "S4D", "SequenceSequoia", "SequenceTransformer", "Positions"}
#: Models whose published method depends on the numbers of the nodes, and so on the spelling.
NUMBERED = {
    "DeepGraph": "samples substructures; equal in expectation alone",
    "Exphormer": "draws its expander on the numbered nodes",
    "GraphMamba": "reads nodes of equal degree in the order of their numbers",
    "LinearTransformer": "has weights for each edge by its number",
    "NeuralWalker": "draws its walks on the numbered nodes",
}
ARCHITECTURES = sorted(
    name
    for name, found in registry.architectures().items()
    if name not in OTHERS | NUMBERED.keys() and found.distribution != "graphbench-point-clouds"
)


def spellings(smiles, count=4, seed=0):
    """Return SMILES of the same molecule with its atoms in other orders."""
    mol, drawn = Chem.MolFromSmiles(smiles), random.Random(seed)
    order = list(range(mol.GetNumAtoms()))
    found = [smiles]
    for _ in range(count):
        drawn.shuffle(order)
        found.append(Chem.MolToSmiles(Chem.RenumberAtoms(mol, order), canonical=False))
    return found


def read(smiles, features="ogb_cip"):
    return read_molecules(list(smiles), Recipe(features, canonical=True), num_workers=0)


def atoms_of(arrays):
    """Return the rows of every molecule's atoms, sorted."""
    ends = np.cumsum(arrays.num_nodes)[:-1]
    return [sorted(map(tuple, part.tolist())) for part in np.split(arrays.x, ends)]


@pytest.mark.parametrize("smiles", CHIRAL)
def test_spellings_have_the_same_atoms(smiles):
    arrays = read(spellings(smiles, 8))
    assert all(atoms == atoms_of(arrays)[0] for atoms in atoms_of(arrays))
    assert len(set(arrays.canonical)) == 1
    assert arrays.x[:, 1].any()


def test_enantiomers_differ_and_tags_of_rdkit_do_not_tell_them_apart():
    left, also_left, right = "N[C@@H](C)C(=O)O", "C[C@H](N)C(=O)O", "C[C@@H](N)C(=O)O"
    assert read([left, also_left, right]).x[:, 1].nonzero()[0].tolist() == [1, 7, 13]
    assert [int(tag) for tag in read([left, also_left, right]).x[:, 1] if tag] == [S, S, R]
    published = [int(tag) for tag in read([left, also_left, right], "ogb").x[:, 1] if tag]
    assert published[0] != published[1]


@pytest.mark.skipif(not MEASURED.is_file(), reason="needs ../shared/data/aqsol")
def test_measured_chiral_molecules_have_one_description_each():
    RDLogger.DisableLog("rdApp.*")
    with MEASURED.open(encoding="utf-8") as file:
        chiral = [row["smiles"] for row in csv.DictReader(file) if "@" in row["smiles"]][::4]
    assert len(chiral) > 100
    for smiles in chiral:
        if Chem.MolFromSmiles(smiles) is None:
            continue
        arrays = read(spellings(smiles, 2))
        assert all(atoms == atoms_of(arrays)[0] for atoms in atoms_of(arrays)), smiles


@pytest.mark.parametrize(
    ("labelled", "plain"),
    [
        ("[2H]C([2H])([2H])O", "CO"),
        ("[3H]c1ccccc1", "c1ccccc1"),
        ("[13CH3][C@H](C)O", "CC(C)O"),
        ("[CH3:1][OH:2]", "CO"),
        ("[H:3][CH2:1][OH:2]", "CO"),
        ("[2H]O[2H]", "O"),
        ("C[C@]([2H])(F)Cl", "C[C@]([H])(F)Cl"),
    ],
)
def test_labels_that_no_column_has_change_nothing(labelled, plain):
    arrays = read([labelled, plain])
    first, second = atoms_of(arrays)
    assert first == second
    assert len(find_repeats(arrays.canonical, np.array([[1.0], [2.0]])).contradicting) == 1


def test_what_is_not_shown_is_remarked():
    arrays = read(["C[C@H](N)C(=O)O |&1:1|", "C[C@H](N)C(=O)O |o1:1|", "C[C@H](N)C(=O)O", "[2H]OC", "*C*", "[1*]C"])
    assert [row for row, _ in arrays.remarks] == [0, 1, 3]
    assert "racemate" in arrays.remarks[0][1]
    assert "isotopes" in arrays.remarks[2][1]


def test_files_with_marks_are_told(tmp_path, caplog):
    path = tmp_path / "own.csv"
    path.write_text('smiles,y\n"C[C@H](N)CO |&1:1|",1\nCCO,2\nCCCO,3\n[2H]OCC,4\n')
    with caplog.at_level("INFO"):
        Molecules(str(path), "y", store=str(tmp_path / "store"), split="random", fractions=(0.5, 0.25, 0.25)).read()
    assert any("racemate" in line and "line 2" in line for line in caplog.messages)
    assert any("isotopes" in line and "line 5" in line for line in caplog.messages)
    assert any("more than once" in line and "'CCO'" in line for line in caplog.messages)


@pytest.mark.parametrize("benchmark", [NCI, lambda: Molecules("own.csv", "y")])
def test_molecules_count_in_every_form(benchmark):
    data, texts = benchmark(), CHIRAL[:6]
    as_text = [part.table.columns["x"] for part in data.read_objects(texts)]
    as_objects = [part.table.columns["x"] for part in data.read_objects([Chem.MolFromSmiles(t) for t in texts])]
    for one, other in zip(as_text, as_objects, strict=True):
        assert sorted(map(tuple, one.tolist())) == sorted(map(tuple, other.tolist()))
    racemate = next(data.read_objects([Chem.MolFromSmiles("C[C@H](N)O |&1:1|")]))
    assert "racemate" in racemate.remarks[0]


def test_published_sets_keep_the_published_column():
    assert MolHIV.spec.extra["atom_vocabulary"] == "ogb"
    assert Molecules("own.csv", "y", chirality="RDKit").spec.extra["atom_vocabulary"] == "ogb"
    part = next(Molecules("own.csv", "y").read_objects([CHIRAL[0]]))
    tag = int(part.table.columns["x"][:, 1].max())
    assert Molecules("own.csv", "y").value_words("chirality", tag) == "chirality S"


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_model_gives_one_answer_to_all_spellings(name):
    torch.manual_seed(0)
    options = {"mean_log_degree": 1.1} if name == "PNA" else {}  # computed from a file, and there is none
    module, data = graphbench.build(name, Molecules("own.csv", "y"), model_options=options)
    texts = [text for smiles in CHIRAL[:3] for text in spellings(smiles, 2)]
    part = next(data.read_objects(texts))
    table, rows, failed = encoded_here(part.table, module.required_encodings(), "Molecules", workers=1)
    assert not failed
    assert len(rows) == len(texts)
    with torch.no_grad():
        batch = table.batch(range(len(texts))).apply(
            lambda value: value.double() if value.is_floating_point() else value
        )
        answers = module.eval().double()(batch).reshape(len(CHIRAL[:3]), -1)
    assert (answers - answers[:, :1]).abs().max() <= 1e-6 * max(float(answers.abs().max()), 1.0)
