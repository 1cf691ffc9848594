"""A user's file as a whole: one message names every defect, or the other molecules are read."""

import logging

import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.properties import penalized_logp
from graphbench.benchmarks.molecules.chemistry.smiles import parse_smiles
from graphbench.benchmarks.molecules.chemistry.tables import read_text
from graphbench.benchmarks.molecules.chemistry.user_file import FileRequest, read_user_file
from graphbench.errors import BadInput

BROKEN = """\
smiles,y,fold,name
CCO,1.0,train,ethanol
C1CC,2.0,train,open ring
,3.0,val,nothing
c1ccccc1,,val,no target
CCN,abc,test,no number
CN(C)(C)C,4.0,test,five bonds
CCC,inf,train,endless
CCCC,5.0,holdout,no split
CCCCC,6.0,Valid,fine
CC,7.0
c1ccncc1,8.0,TEST,fine too
"""
MESSAGE = """\
broken.csv: 8 of 11 rows cannot be used.
  2 x RDKit cannot read the molecule: line 3 ('C1CC': ring bond 1 is opened and not closed); line 7 ('CN(C)(C)C': \
Explicit valence for atom # 1 N, 4, is greater than permitted)
  1 x target 'y' is missing: line 5
  1 x target 'y' is not a finite number in single precision: line 8 ('inf')
  1 x target 'y' is not a number: line 6 ('abc')
  1 x the molecule has no atoms: line 4 ('')
  1 x the row has another number of cells than the header: line 11 (2 instead of 4)
  1 x the split is not train, val or test: line 9 ('holdout')"""


@pytest.fixture
def broken(tmp_path):
    path = tmp_path / "broken.csv"
    path.write_text(BROKEN)
    return path


def request(path, **options):
    return FileRequest(path, targets=("y",), id_column="name", split_column="fold", **options)


def test_all_defects_are_told_at_once(broken):
    with pytest.raises(BadInput) as caught:
        read_user_file(request(broken))
    said = str(caught.value).removeprefix(MESSAGE)
    assert said.startswith("\nCorrect these rows, or leave them out with --data.on_error skip.")
    assert said.endswith("""--data.missing '["abc"]'.""")


def test_bad_rows_can_be_left_out(broken, caplog):
    with caplog.at_level(logging.WARNING):
        molecules = read_user_file(request(broken, on_error="skip", scaffold=True))
    assert read_text(molecules.table, "smiles") == ["CCO", "CCCCC", "c1ccncc1"]
    assert read_text(molecules.table, "id") == ["ethanol", "fine", "fine too"]
    assert molecules.table.columns["y"].tolist() == [[1.0], [6.0], [8.0]]
    assert molecules.split_labels == ["train", "valid", "test"]
    assert molecules.scaffolds == ["", "", "c1ccncc1"]
    (record,) = caplog.records
    assert "8 of 11 rows cannot be used" in record.message
    assert record.message.endswith("These rows are left out.")


def test_nothing_left_is_an_error(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("smiles,y\nC1CC,1\nCC,x\n")
    with pytest.raises(BadInput, match=r"2 of 2 rows(.|\n)*No usable molecule is left"):
        read_user_file(FileRequest(path, targets=("y",), on_error="skip"))


def test_computed_target_needs_no_column(tmp_path):
    path = tmp_path / "a.smi"
    path.write_text("CCO\n\nC1CCCCCCC1 ring\n")
    table = read_user_file(FileRequest(path)).table
    expected = [penalized_logp(parse_smiles(smiles)) for smiles in ("CCO", "C1CCCCCCC1")]
    assert table.columns["y"][:, 0].tolist() == pytest.approx(expected, rel=1e-6)
    assert read_text(table, "id") == ["1", "3"]  # lines of the file


def test_computed_target_may_not_hide_a_column(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("smiles,penalized_logp\nCC,1\n")
    with pytest.raises(BadInput, match="one word cannot mean both"):
        read_user_file(FileRequest(path))


def test_spellings_of_a_molecule_have_equal_computed_targets(tmp_path, caplog):
    path = tmp_path / "a.csv"
    mol = Chem.MolFromSmiles("Cc1c(/C=N/c2cc(Br)ccn2)c(O)n2c(nc3ccccc32)c1C#N")
    spellings = {Chem.MolToSmiles(mol, rootedAtAtom=atom.GetIdx(), canonical=False) for atom in mol.GetAtoms()}
    path.write_text("\n".join(["smiles", "CCO", *sorted(spellings)]))
    assert len({penalized_logp(Chem.MolFromSmiles(text)) for text in spellings}) > 1  # in float64
    with caplog.at_level(logging.INFO):
        read_user_file(FileRequest(path))
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert caplog.messages[0].endswith("rows, with equal targets.")


def test_decimal_commas_and_repeats_are_told_in_one_line_each(tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text("smiles;y;w;fold\nCCO;1,5;1;train\nOCC;2,5;0,5;test\nCC;3;2;val\nC;4;0;val\n[CH4];4;0;val\n")
    with caplog.at_level(logging.INFO):
        molecules = read_user_file(FileRequest(path, targets=("y",), weight="w", split_column="fold"))
    assert molecules.table.columns["y"][:, 0].tolist() == [1.5, 2.5, 3.0, 4.0, 4.0]
    assert molecules.table.columns["weight"].tolist() == [1.0, 0.5, 2.0, 0.0, 0.0]
    assert molecules.canonical == ["CCO", "CCO", "CC", "C", "C"]
    layout, repeats, leaks = [record.message for record in caplog.records]
    assert layout == f"{path}: cells are separated by semicolons, numbers have decimal commas"
    assert repeats == (
        "a.csv: 2 molecules are there more than once, in 4 rows; 1 of them with different targets: "
        "'CCO' (lines 2, 3: 1.5, 2.5)."
    )
    assert leaks.startswith("a.csv: 1 molecule is in several splits")


@pytest.mark.parametrize("text", ['smiles,y\nCC,"1,5"\n', "smiles;y\nCC;1,5\nC;1.5\n", "smiles;y\nCC;1.234,5\n"])
def test_commas_that_may_mean_thousands_are_no_numbers(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadInput, match="1 x target 'y' is not a number: line 2"):
        read_user_file(FileRequest(tmp_path / "a.csv", targets=("y",)))


def test_every_row_needs_a_weight(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,y,w\nC,1,1\nCC,1,\nCCC,1,-2\nCCO,1,inf\nCO,1,x\n")
    with pytest.raises(BadInput) as caught:
        read_user_file(FileRequest(tmp_path / "a.csv", targets=("y",), weight="w"))
    for told in ("is missing: line 3", "is below 0: line 4 ('-2')", "precision: line 5", "no number: line 6"):
        assert told.replace("no number", "is not a number") in str(caught.value)


def test_salts_and_mixtures_are_counted_and_read_whole(tmp_path, caplog):
    path = tmp_path / "salts.csv"
    path.write_text("smiles,y\nCCN,1\nCCN.Cl,2\nCC(=O)[O-].[Na+],3\n")
    with caplog.at_level(logging.INFO):
        molecules = read_user_file(FileRequest(path, targets=("y",)))
    assert list(read_text(molecules.table, "smiles")) == ["CCN", "CCN.Cl", "CC(=O)[O-].[Na+]"]
    (said,) = [text for text in caplog.messages if "salts" in text.removeprefix("salts.csv")]
    assert "2 of 3" in said
    assert "line 3, 4" in said
