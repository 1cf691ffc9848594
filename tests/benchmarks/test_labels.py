"""Labels in the columns of new inputs, for benchmarks of molecules and of texts alike."""

import numpy as np
import pytest

from graphbench.benchmarks import Graphs, ListOps, Molecules
from graphbench.errors import BadInput


def labels(data, file, text, column=None):
    file.write_text(text)
    (part,) = data.read_labelled(str(file), column)
    y = part.table.columns["y"].numpy()
    return [y[number].tolist() for number in range(len(y))], part.problems


def test_texts_have_classes_by_number(tmp_path):
    data = ListOps(root=str(tmp_path))
    text = "text,class\n[MAX 1 2 ],2\n[MIN 3 4 ],\n[MED 3 4 5 ],4.0\n[SM 1 ],12\n"
    y, problems = labels(data, tmp_path / "t.csv", text, "text")
    assert y[:3] == [[2], [-1], [4]]
    assert list(problems) == [3]
    assert "12" in problems[3]


def molecules(tmp_path, target, **options):
    (tmp_path / "own.csv").write_text("smiles\n")
    return Molecules(str(tmp_path / "own.csv"), target, root=str(tmp_path), **options)


@pytest.mark.parametrize("word", ["", "NaN", "n/a", "none", "NULL"])
def test_words_for_a_missing_number(tmp_path, word):
    y, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", f"smiles,Y\nCC,{word}\nCO,1e3\n")
    assert np.isnan(y[0][0])
    assert y[1] == [1000.0]
    assert not problems


def test_a_class_may_be_called_none(tmp_path):
    data = molecules(tmp_path, "y", task="classification", classes=["none", "some"])
    assert labels(data, tmp_path / "f.csv", "smiles,y\nCC,none\nCO,some\nCN,\n")[0] == [[0], [1], [-1]]


def test_some_of_several_labels(tmp_path):
    data = molecules(tmp_path, ["hot", "cold"], task="multilabel")
    y, problems = labels(data, tmp_path / "f.csv", "smiles,hot,cold\nCC,true,\nCO,0,2\nCN,,1\n")
    assert y[0][0] == 1
    assert np.isnan(y[0][1])
    assert y[2][1] == 1
    assert list(problems) == [1]


def test_a_row_that_is_no_molecule_keeps_its_own_reason(tmp_path):
    _, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", "smiles,y\nCC,1\nC(,x\n")
    assert "RDKit" in problems[1]


def test_a_computed_target_needs_no_column(tmp_path):
    from graphbench.benchmarks.molecules.chemistry.properties import combine_terms
    from graphbench.benchmarks.molecules.chemistry.reading import Recipe, read_molecules

    y, _ = labels(molecules(tmp_path, "penalized_logp"), tmp_path / "f.csv", "smiles\nCCO\nc1ccccc1C\n")
    expected = combine_terms(read_molecules(["CCO", "c1ccccc1C"], Recipe("ogb", "smallest_rings"), num_workers=0).terms)
    assert np.ravel(y) == pytest.approx(np.ravel(expected), rel=1e-6)


def test_numbers_with_commas_between_commas_are_no_numbers(tmp_path):
    _, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", 'smiles,y\nCC,"1,5"\n')
    assert list(problems) == [0]
    y, problems = labels(molecules(tmp_path, "y"), tmp_path / "f.csv", "smiles;y\nCC;1,5\n")
    assert (y, problems) == ([[1.5]], {})


def test_a_missing_column_is_named(tmp_path):
    with pytest.raises(BadInput, match="'solubility'"):
        labels(molecules(tmp_path, "solubility"), tmp_path / "f.csv", "smiles,solubilty\nCC,1\n")


def test_standard_input_is_no_source_of_own_graphs(tmp_path):
    from own_graphs import make_graphs

    with pytest.raises(BadInput, match="standard input"):
        Graphs(make_graphs(10), target="y", root=str(tmp_path)).read_labelled("-")
