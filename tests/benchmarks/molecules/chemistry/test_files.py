"""Files of the user: every format gives the same rows; every defect has its line."""

import pandas as pd
import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.files import NAME, read_rows
from graphbench.errors import BadInput

SMILES, VALUES = ["CCO", "c1ccccc1", "CC(C)N"], ["1.5", "", "-2"]


@pytest.fixture
def write(tmp_path):
    """Write text under a name and give its path."""

    def write(name, text):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.fixture
def sdf(tmp_path):
    """Three molecules with a property; the second lacks it."""
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
    assert (rows.lines, rows.problems, rows.num_rows) == (lines, [], 3)


def test_smiles_file_without_header_has_names(write):
    rows = read_rows(write("a.smi", "CCO ethanol\n\nc1ccccc1\nCC(C)N\tthe amine\n"), "smiles", [NAME])
    assert rows.columns == {"smiles": SMILES, NAME: ["ethanol", "", "the amine"]}
    assert rows.lines == [1, 3, 4]


def test_smiles_file_with_header_has_columns(write):
    rows = read_rows(write("a.smi", "smiles y\nCCO 1.5\nCC(C)N -2 3\n"), "smiles", ["y"])
    assert rows.columns == {"smiles": ["CCO"], "y": ["1.5"]}
    assert [(problem.line, problem.detail) for problem in rows.problems] == [(3, "3 instead of 2")]


def test_sdf_has_properties_and_names(sdf):
    rows = read_rows(sdf, "smiles", ["y", NAME])
    assert rows.columns == {"smiles": SMILES, "y": VALUES, NAME: ["mol 0", "mol 1", "mol 2"]}
    starts = [number for number, line in enumerate(sdf.read_text().splitlines(), 1) if line.startswith("mol ")]
    assert rows.lines == starts


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
    assert (rows.lines, rows.unit) == ([1, 2, 3], "row")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "smiles,y,z\nCCO,1,2\n", r"no column 'target'\. Its columns: 'smiles', 'y', 'z'"),
        ("a.csv", "smiles,target,y,target\nCCO,1,2,3\n", "line 1 has duplicate columns: 'target' as columns 2, 4"),
        ("a.csv", "smiles,target\n", "holds no molecules"),
        ("a.csv", "", "no column 'smiles' or 'target'. Its columns: none"),
        ("a.csv", 'smiles,target\n"' + "C" * 140_000 + '",1', "line 2 is not valid CSV"),
        ("a.smi", "CCO\n", "no column 'target'"),
        ("a.sdf", "", "cannot read it as an SDF file"),
        ("a.parquet", "text", "not a Parquet file"),
        ("a.xyz", "text", "not from '.xyz'"),
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
    assert (rows.lines, rows.unit, [problem.line for problem in rows.problems]) == ([2, 4], "row", [5])
