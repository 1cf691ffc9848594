"""Users' files: every format gives the same rows; every defect is reported with its line."""

import pandas as pd
import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.files import (
    read_rows,
    stream_molecules,
)
from graphbench.data import progress
from graphbench.errors import BadInput
from graphbench.tables.formats import TORN
from graphbench.tables.records import NAME

SMILES, VALUES = ["CCO", "c1ccccc1", "CC(C)N"], ["1.5", "", "-2"]


@pytest.fixture
def write(tmp_path):
    """Write text under a name and return its path."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def sdf(tmp_path):
    """Write three molecules; the second lacks a property of the others."""
    writer = Chem.SDWriter(str(tmp_path / "a.sdf"))
    for number, (smiles, value) in enumerate(zip(SMILES, VALUES, strict=True)):
        mol = Chem.MolFromSmiles(smiles)
        mol.SetProp(NAME, f"mol {number}")
        if value:
            mol.SetProp("y", value)
        writer.write(mol)
    writer.close()
    return tmp_path / "a.sdf"


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.csv", "smiles,y\nCCO,1.5\nc1ccccc1,\nCC(C)N,-2\n", [2, 3, 4]),
        ("a.csv", "\ufeffid, y ,smiles\r\n1, 1.5 ,CCO\r\n\r\n2,,c1ccccc1\r\n3,-2,CC(C)N", [2, 4, 5]),
        ("a.csv", 'note,smiles,y\n"two\nlines",CCO,1.5\n"a, b",c1ccccc1,\n,CC(C)N,-2\n', [2, 4, 5]),
        ("a.tsv", "smiles\ty\nCCO\t1.5\nc1ccccc1\t\nCC(C)N\t-2\n", [2, 3, 4]),
    ],
)
def test_tables_of_text(write, name, text, lines):
    rows = read_rows(write(name, text), "smiles", ["y"])
    assert rows.columns == {"smiles": SMILES, "y": VALUES}
    assert (list(rows.lines), rows.problems, rows.num_rows) == (lines, [], 3)


def test_smiles_file_without_header_has_names(write):
    rows = read_rows(write("a.smi", "CCO ethanol\n\nc1ccccc1\nCC(C)N\tthe amine\n"), "smiles", [NAME])
    assert rows.columns == {"smiles": SMILES, NAME: ["ethanol", "", "the amine"]}
    assert list(rows.lines) == [1, 3, 4]


def test_smiles_file_with_header_has_columns(write):
    rows = read_rows(write("a.smi", "smiles y\nCCO 1.5\nCC(C)N -2 3\n"), "smiles", ["y"])
    assert rows.columns == {"smiles": ["CCO"], "y": ["1.5"]}
    assert [(problem.line, problem.detail) for problem in rows.problems] == [(3, "3 instead of 2")]


def test_sdf_has_properties_and_names(sdf):
    rows = read_rows(sdf, "smiles", ["y", NAME])
    assert rows.columns == {"smiles": SMILES, "y": VALUES, NAME: ["mol 0", "mol 1", "mol 2"]}
    starts = [number for number, line in enumerate(sdf.read_text().splitlines(), 1) if line.startswith("mol ")]
    assert list(rows.lines) == starts


def test_rows_are_counted_while_they_are_read(sdf, monkeypatch, caplog):
    monkeypatch.setattr(progress, "DELAY", -1.0)
    caplog.set_level("INFO")
    read_rows(sdf, "smiles", ["y"])
    assert caplog.messages[0] == "Reading a.sdf: 3 rows so far"


def test_broken_sdf_record_is_named_by_line(sdf):
    records = sdf.read_text().split("$$$$\n")
    records[1] = records[1].replace("V2000", "V9000")
    sdf.write_text("$$$$\n".join(records))
    rows = read_rows(sdf, "smiles", ["y"])
    assert rows.columns["smiles"] == [SMILES[0], SMILES[2]]
    assert [(problem.line, problem.detail) for problem in rows.problems] == [
        (records[0].count("\n") + 2, "record 2"),
    ]


def test_parquet_counts_rows(tmp_path):
    pd.DataFrame({"smiles": SMILES, "y": [1.5, None, -2.0]}).to_parquet(tmp_path / "a.parquet")
    rows = read_rows(tmp_path / "a.parquet", "smiles", ["y"])
    assert rows.columns == {"smiles": SMILES, "y": ["1.5", "", "-2.0"]}
    assert (list(rows.lines), rows.unit) == ([1, 2, 3], "row")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "smiles,y,z\nCCO,1,2\n", r"no column 'target'\. Its columns: 'smiles', 'y', 'z'"),
        ("a.csv", "smiles,target,y,target\nCCO,1,2,3\n", "line 1 has duplicate columns: 'target' as columns 2, 4"),
        ("a.csv", "smiles,target\n", "holds no molecules"),
        ("a.csv", "", "holds no molecules"),
        ("a.csv", 'smiles,target\n"CCO,1\nCC,2\n', "a quote that opens on line 2 is not closed"),
        ("a.smi", "CCO\n", "no column 'target'"),
        ("a.sdf", "", "holds no molecules"),
        ("a.parquet", "text", "not a Parquet file"),
        ("a.xyz", "text", "not from a file that ends in '.xyz'"),
    ],
)
def test_files_that_cannot_be_used(write, name, text, message):
    with pytest.raises(BadInput, match=message):
        read_rows(write(name, text), "smiles", ["target"])


def test_absent_and_foreign_files(tmp_path):
    with pytest.raises(BadInput, match="there is no such file"):
        read_rows(tmp_path / "absent.csv", "smiles", [])
    (tmp_path / "latin.csv").write_bytes("smiles,name\nCCO,Äthanol\n".encode("latin-1"))
    with pytest.raises(BadInput, match="not UTF-8"):
        read_rows(tmp_path / "latin.csv", "smiles", [])


def test_property_that_no_record_has(sdf):
    with pytest.raises(BadInput, match="no column 'z'"):
        read_rows(sdf, "smiles", ["z"])


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize(("separator", "word"), [(",", "commas"), (";", "semicolons"), ("\t", "tabs")])
def test_any_separator_and_any_case(write, name, separator, word):
    text = "\n".join(separator.join(row) for row in [("ID", "SMILES", "Y"), ("a", "CCO", "1.5"), ("b", "CC", "")])
    rows = read_rows(write(name, text), "smiles", ["y"])
    assert rows.columns == {"smiles": ["CCO", "CC"], "y": ["1.5", ""]}
    usual = separator == ("," if name == "a.csv" else "\t")
    assert rows.notes == [
        *([] if usual else [f"cells are separated by {word}"]),
        "the column 'SMILES' is read for 'smiles'",
        "the column 'Y' is read for 'y'",
    ]


def test_near_names_are_named(write):
    with pytest.raises(BadInput, match=r"no column 'logp'\. .*Did you mean 'logP_exp'\?"):
        read_rows(write("a.csv", "smiles;logP_exp\nC;1"), "smiles", ["logp"])


def test_names_in_another_case_in_every_format(sdf, write, tmp_path):
    pd.DataFrame({"Smiles": ["CCO"], "Y": [1.5]}).to_parquet(tmp_path / "a.parquet")
    for path in (sdf, tmp_path / "a.parquet", write("a.smi", "SMILES y\nCCO 1.5\n")):
        rows = read_rows(path, "smiles", ["Y"])
        assert (rows.columns["smiles"][0], rows.columns["Y"][0]) == ("CCO", "1.5"), path


def test_first_sheet_of_a_workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["SMILES", "y"], ["CCO", 1.5], [], ["c1ccccc1", None], ["CC(C)N", -2, "remark"]):
        book.active.append(row)
    book.save(tmp_path / "a.xlsx")
    rows = read_rows(tmp_path / "a.xlsx", "smiles", ["y"])
    assert rows.columns == {"smiles": ["CCO", "c1ccccc1"], "y": ["1.5", ""]}
    assert (list(rows.lines), rows.unit, [problem.line for problem in rows.problems]) == ([2, 4], "row", [5])


# -- part by part ---------------------------------------------------------------------------------------------------

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
    assert part.problems == {0: (TORN, "1 instead of 2"), 1: (TORN, "3 instead of 2")}


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

    assert "duplicate columns: 'smiles' as columns 1, 2" in said("a.csv", "smiles,smiles,y\nC,C,2\n")
    assert "Did you mean 'Canonical_Smiles'?" in said("b.csv", "Canonical_Smiles,y\nC,1\n", "canonical smiles")
    assert "holds no molecules" in said("c.csv")
    assert "holds no molecules" in said("d.sdf")
    assert "a name without suffix" in said("plain")
    assert "not a Parquet file" in said("e.parquet", "smiles")
    (tmp_path / "g.csv").write_bytes(b"smiles\n\xff\n")
    assert "not UTF-8 text" in said("g.csv")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_any_separator_in_parts(tmp_path, caplog, separator):
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
    assert parts[1].problems == {0: (TORN, "3 instead of 2")}


def test_marks_of_racemates_stay_with_the_structure_in_every_format(tmp_path):
    """A name after a CXSMILES stays a name, and columns after one stay columns."""
    marked = "C[C@H](O)CC |&1:1|"
    mol = Chem.MolFromSmiles(marked)
    (tmp_path / "a.smi").write_text(f"{marked} the racemate\nCCO ethanol\n")
    (tmp_path / "header.smi").write_text(f"smiles\ty\n{marked}\t1.5\nCCO\t2\n")
    (tmp_path / "a.csv").write_text(f'smiles,y\n"{marked}",1.5\n')
    (tmp_path / "a.sdf").write_text(Chem.MolToV3KMolBlock(mol) + "$$$$\n")
    assert read_rows(tmp_path / "a.smi", "smiles", [NAME]).columns == {
        "smiles": [marked, "CCO"], NAME: ["the racemate", "ethanol"],
    }  # fmt: skip
    assert read_rows(tmp_path / "header.smi", "smiles", ["y"]).columns == {"smiles": [marked, "CCO"], "y": ["1.5", "2"]}
    for name in ("a.csv", "a.sdf"):
        (text,) = read_rows(tmp_path / name, "smiles", []).columns["smiles"]
        assert Chem.MolFromSmiles(text).GetStereoGroups(), name


def test_a_property_called_as_the_column_of_structures_is_beside_them(tmp_path):
    text = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO")) + "> <smiles>\nC\n\n> <y>\n1\n\n$$$$\n"
    (tmp_path / "a.sdf").write_text(text)
    (part,) = stream_molecules(tmp_path / "a.sdf", "smiles", 9)
    assert part.smiles == ["CCO"]
    assert part.frame.to_dict("list") == {"smiles": ["CCO"], NAME: [""], "smiles.1": ["C"], "y": ["1"]}
    assert read_rows(tmp_path / "a.sdf", "smiles", ["y"]).columns == {"smiles": ["CCO"], "y": ["1"]}


def test_blank_rows_come_out_of_a_prediction_and_cost_a_training_nothing(tmp_path):
    (tmp_path / "a.csv").write_text('smiles,y\nCCO,1\n,\n\n" ",\nCC,2\n')
    (part,) = stream_molecules(tmp_path / "a.csv", "smiles", 9)
    assert part.smiles == ["CCO", "", "", "CC"]
    assert list(part.problems) == [1, 2]
    rows = read_rows(tmp_path / "a.csv", "smiles", ["y"])
    assert (rows.columns["smiles"], list(rows.lines), rows.num_rows) == (["CCO", "CC"], [2, 6], 2)
