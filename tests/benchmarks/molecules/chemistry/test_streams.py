"""Files part by part: every column as it stands, the same SMILES as a fit reads, whatever the size of the parts."""

from __future__ import annotations

import pandas as pd
import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.files import read_rows
from graphbench.benchmarks.molecules.chemistry.streams import stream_molecules
from graphbench.errors import BadInput

FILES = {
    "a.csv": 'n,smiles,y\n"1, one",CCO,1.10\n\n2, CC ,\n3,"C\nC",x\n',
    "a.tsv": "smiles\ty\nCCO\t1\nCC\t\n",
    "a.smi": "CCO ethyl alcohol\n\nCC\n",
    "named.txt": "smiles y\nCCO 1\nCC 2\n",
    "mark.csv": "\ufeffsmiles,y\nCCO,1\n",
}


@pytest.mark.parametrize("name", FILES)
def test_parts_hold_what_a_fit_reads(tmp_path, name):
    path = tmp_path / name
    path.write_text(FILES[name], encoding="utf-8")
    whole = next(stream_molecules(path, "smiles", 100))
    rows = read_rows(path, "smiles", [c for c in whole.frame if c != "smiles"])
    assert whole.smiles == rows.columns["smiles"]
    assert list(whole.frame) == rows.header
    for column in whole.frame:
        assert [text.strip() for text in whole.frame[column]] == rows.columns[column]
    single = list(stream_molecules(path, "smiles", 1))
    assert [part.smiles[0] for part in single] == whole.smiles
    assert pd.concat([part.frame for part in single], ignore_index=True).equals(whole.frame)


def test_cells_too_many_or_too_few_are_told(tmp_path):
    (tmp_path / "a.csv").write_text("smiles,y\nCCO\nCC,1,2\nC,3\n")
    part = next(stream_molecules(tmp_path / "a.csv", "smiles", 10))
    assert part.frame.to_numpy().tolist() == [["CCO", ""], ["CC", "1"], ["C", "3"]]
    assert part.problems == {0: "the row has 1 cells, the header 2", 1: "the row has 3 cells, the header 2"}


def test_structure_files_keep_names_properties_and_broken_records(tmp_path):
    path = tmp_path / "a.sdf"
    with Chem.SDWriter(str(path)) as writer:
        for name, smiles in (("one", "C[C@H](N)O"), ("two", "c1ccccc1")):
            mol = Chem.MolFromSmiles(smiles)
            mol.SetProp("_Name", name)
            mol.SetProp(f"note {name}", "first\nsecond")
            writer.write(mol)
    broken = "broken\n  x\n\n  1  0\nM  END\n> <note one>\nnobody\n\n$$$$\n"
    path.write_text(path.read_text().replace("$$$$\n", f"$$$$\n{broken}", 1) + "\n\n")
    rows = read_rows(path, "smiles", ["_Name"])
    parts = list(stream_molecules(path, "smiles", 2))
    frame = pd.concat([part.frame for part in parts], ignore_index=True)
    assert list(frame) == ["smiles", "_Name", "note one", "note two"]
    assert frame["_Name"].tolist() == ["one", "broken", "two"]
    assert [smiles for smiles in frame["smiles"] if smiles] == rows.columns["smiles"]
    assert frame["note one"].tolist() == ["first\nsecond", "nobody", ""]
    assert [list(part.problems) for part in parts] == [[1], []]


def test_parquet_keeps_its_types(tmp_path):
    given = pd.DataFrame(
        {"n": pd.array([1, None, 3], dtype="Int64"), "smiles": ["CCO", None, "C"], "d": [[1], [], None]}
    )
    given.to_parquet(tmp_path / "a.parquet")
    parts = list(stream_molecules(tmp_path / "a.parquet", "smiles", 2))
    assert [len(part.frame) for part in parts] == [2, 1]
    assert {str(part.frame["n"].dtype) for part in parts} == {"int64[pyarrow]"}
    assert [text for part in parts for text in part.smiles] == ["CCO", "", "C"]


def test_what_is_no_file_of_molecules_is_named(tmp_path):
    def said(name, text="", column="smiles"):
        path = tmp_path / name
        if not path.exists():
            path.write_text(text)
        with pytest.raises(BadInput) as error:
            list(stream_molecules(path, column, 10))
        return str(error.value)

    assert "duplicate columns: 'y'" in said("a.csv", "smiles,y,y\nC,1,2\n")
    assert "Did you mean 'Canonical_Smiles'?" in said("b.csv", "Canonical_Smiles,y\nC,1\n", "canonical smiles")
    assert "holds no molecules" in said("c.csv")
    assert "holds no molecules" in said("d.sdf")
    assert "a name without suffix" in said("plain")
    assert "not a Parquet file" in said("e.parquet", "smiles")
    assert "not valid CSV" in said("f.csv", f'smiles,y\n"{"C" * 200_000}",1\n')
    (tmp_path / "g.csv").write_bytes(b"smiles\n\xff\n")
    assert "not UTF-8 text" in said("g.csv")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_any_separator_and_any_case(tmp_path, caplog, separator):
    (tmp_path / "a.csv").write_text(f"y{separator}SMILES\n1,5{separator}CCO\n".replace("1,5,", "1.5,"))
    with caplog.at_level("INFO"):
        (part,) = stream_molecules(tmp_path / "a.csv", "smiles", 10)
    assert part.smiles == ["CCO"]
    assert part.frame.to_dict("list") == {"y": ["1.5" if separator == "," else "1,5"], "SMILES": ["CCO"]}
    (line,) = [record.message for record in caplog.records]
    assert line.endswith("the column 'SMILES' is read for 'smiles'")


def test_workbook_row_by_row(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["n", "smiles"], [1, "CCO"], [2.5, None], [None, "CC", 9]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    parts = list(stream_molecules(tmp_path / "a.xlsx", "smiles", 2))
    assert [part.smiles for part in parts] == [["CCO", ""], ["CC"]]
    assert parts[0].frame.to_dict("list") == {"n": ["1", "2.5"], "smiles": ["CCO", ""]}
    assert parts[1].problems == {0: "the row has 3 cells, the header 2"}
