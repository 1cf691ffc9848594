"""Tables as users write them: training and prediction read the same rows or give the same error."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
from rdkit import Chem

from graphbench.benchmarks.molecules.chemistry.user_file import FileRequest, read_user_file
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.errors import GraphbenchError
from graphbench.tables.formats import BLANK

SMILES, VALUES = ["CCO", "c1ccccc1", "CC(C)N", "C[C@H](N)O"], [1.5, -2.0, 0.25, 7.0]
PLAIN = "smiles,y\n" + "".join(f"{s},{v}\n" for s, v in zip(SMILES, VALUES, strict=True))
PAIRS = list(zip(SMILES, VALUES, strict=True))


def structures(**properties: str) -> str:
    """Return the molecules as the text of an SDF file."""
    text = ""
    for smiles, value in PAIRS:
        more = "".join(f">  <{name}>\n{cell}\n\n" for name, cell in properties.items())
        text += f"{Chem.MolToMolBlock(Chem.MolFromSmiles(smiles))}>  <y>\n{value}\n\n{more}$$$$\n"
    return text


def parquet(path: Path, frame: pd.DataFrame, **options) -> None:
    frame.to_parquet(path, **options)


def workbook(path: Path, *rows: list) -> None:
    import openpyxl

    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


FRAME = pd.DataFrame({"smiles": SMILES, "y": VALUES})
#: Name -> content (text, bytes, or a function that writes it). All hold the same molecules and targets.
READ = {
    "plain.csv": PLAIN,
    "trailing.csv": PLAIN.replace("\n", ",,\n"),
    "longer_rows.csv": PLAIN.replace("\n", ",,\n").replace("smiles,y,,", "smiles,y"),
    "blank_rows.csv": PLAIN.replace("CC(C)N", "\n,,\n  \nCC(C)N") + ",\n\n",
    "duplicates.csv": PLAIN.replace("\n", ",a,b\n").replace("y,a,b", "y,note,note"),
    "index.csv": "".join(f"{i - 1 if i else ''},{line}\n" for i, line in enumerate(PLAIN.splitlines())),
    "spaces.csv": PLAIN.replace(",", " , ").replace("smiles , y", " smiles , y "),
    "case.csv": PLAIN.replace("smiles,y", "SMILES,Y"),
    "quoted.csv": "note," + PLAIN.replace("\n", '\n"two\nlines, and ""quotes""",', len(SMILES)),
    "semicolons.csv": PLAIN.replace(",", ";"),
    "decimal_commas.csv": PLAIN.replace(",", ";").replace(".", ","),
    "mark.csv": "\ufeff" + PLAIN,
    "carriage_returns.csv": PLAIN.replace("\n", "\r"),
    "windows.csv": PLAIN.replace("\n", "\r\n"),
    "utf16.csv": PLAIN.encode("utf-16"),
    "utf16_unmarked.csv": PLAIN.encode("utf-16-le"),
    "utf16_big.tsv": PLAIN.replace(",", "\t").encode("utf-16-be"),
    "umlauts.csv": PLAIN.replace("smiles,y", "smiles,y,Größe").replace("\n", ",µ\n").replace("Größe,µ", "Größe"),
    "packed.csv.gz": gzip.compress(PLAIN.encode()),
    "packed.tsv.gz": gzip.compress(PLAIN.replace(",", "\t").encode("utf-16")),
    "tabs.tab": PLAIN.replace(",", "\t"),
    "tabs.csv": PLAIN.replace(",", "\t"),
    "upper.CSV": PLAIN,
    "predicted.csv": PLAIN.replace("\n", ",1.0,,\n").replace("y,1.0,,", "y,prediction_y,outside_training,problem"),
    "torn.csv": PLAIN + "CC\nCC,1,2\n",
    "unreadable.csv": PLAIN + "C1CC,1\nInChI=1S/CH4,1\n,1\n",
    "header.smi": PLAIN.replace(",", " "),
    "header.smi.gz": gzip.compress(PLAIN.replace(",", "\t").encode()),
    "header.txt": PLAIN.replace(",", "\t"),
    "lines.jsonl": "".join(json.dumps({"y": v, "smiles": s}) + "\n" for s, v in PAIRS),
    "missing_members.ndjson": '{"a": [1, {"b": null}], "z": true}\n\n'
    + "".join(json.dumps({"smiles": s, "y": str(v), s: 1}) + "\n" for s, v in PAIRS)
    + '[1]\n{"smiles": \n',
    "packed.jsonl.gz": gzip.compress("".join(json.dumps({"y": v, "SMILES": s}) + "\n" for s, v in PAIRS).encode()),
    "a.parquet": lambda path: parquet(path, FRAME),
    "index.parquet": lambda path: parquet(path, FRAME.set_index("smiles")),
    "unnamed_index.parquet": lambda path: parquet(path, FRAME.set_axis(list("abcd"))),
    "groups.parquet": lambda path: parquet(path, FRAME, row_group_size=1),
    "types.parquet": lambda path: parquet(path, FRAME.astype({"y": "float32", "smiles": "category"})),
    "a.sdf": structures(),
    "windows.sdf": structures().replace("\n", "\r\n"),
    "property.sdf": structures(smiles="C", SMILES="CC", _Name="mine"),
    "latin.sdf": structures(Größe="µ").encode("latin-1"),
    "broken.sdf": structures() + "broken\n  x\n\n  1  0\nM  END\n\n$$$$\n\n",
    "packed.sdf.gz": gzip.compress(structures().encode()),
    "other.sd": structures(),
    "book.xlsx": lambda path: workbook(path, ["smiles", "y"], *map(list, PAIRS)),
    "gaps.xlsx": lambda path: workbook(path, ["", "smiles", "", "y"], [], *([1, s, None, v] for s, v in PAIRS)),
}
#: Tables that are damaged or ambiguous.
REFUSED = {
    "empty.csv": "",
    "blank.csv": "\n\n  \n",
    "header_only.csv": "smiles,y\n",
    "twice.csv": PLAIN.replace("smiles,y", "smiles,y,smiles").replace("\n", ",C\n"),
    "cases.csv": "Smiles,SMILES,y\nC,C,1\n",
    "no_column.csv": PLAIN.replace("smiles", "structure"),
    "comments.csv": "# mine\n" + PLAIN,
    "open_quote.csv": PLAIN + '"CC,1\nCC,2\n',
    "latin.csv": (PLAIN + "CC,1\n").replace("smiles,y", "smiles,y,Größe").encode("latin-1"),
    "latin_late.csv": (PLAIN * 300).encode() + b"\xb5M,1\n",
    "latin.csv.gz": gzip.compress(PLAIN.replace("y", "µ").encode("latin-1")),
    "half.csv": PLAIN.encode("utf-16")[:-1],
    "cut.csv.gz": gzip.compress(PLAIN.encode())[:-9],
    "not_packed.csv.gz": PLAIN,
    "bomb.csv.gz": gzip.compress(bytes(100 << 20), 9),
    "empty.sdf": "",
    "empty.sdf.gz": gzip.compress(b""),
    "text.parquet": PLAIN,
    "packed.parquet.gz": gzip.compress(b"x"),
    "text.xlsx": PLAIN,
    "old.xls": PLAIN,
    "lists.jsonl": "[1]\n[2]\n",
    "empty.jsonl": "\n",
    "plain": PLAIN,
    "photo.png": b"\x89PNG",
}


@pytest.fixture
def file(request, tmp_path):
    """Write the table of this name and return its path."""
    path, content = tmp_path / request.param, (READ | REFUSED)[request.param]
    if path.suffix == ".xlsx" and importlib.util.find_spec("openpyxl") is None:
        pytest.skip("needs the extra excel")
    if callable(content):
        content(path)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def trained(path):
    """Return the SMILES and targets that training reads and the number of unusable rows, or its error."""
    try:
        found = read_user_file(FileRequest(path, targets=("y",), on_error="skip"))
    except GraphbenchError as error:
        return str(error)
    texts = found.table.columns["smiles"].numpy().tobytes().decode()
    ends = found.table.ptr["smiles"].tolist()
    return (
        [texts[a:b] for a, b in itertools.pairwise(ends)],
        found.table.columns["y"][:, 0].tolist(),
        found.left_out,
    )


def answered(path, size):
    """Return the SMILES that a prediction reads and the number of unusable rows that are not blank, or its error."""
    data, smiles, problems = Molecules(str(path.with_name("a.csv")), "y"), [], 0
    try:
        for part in data.read_input(str(path), size=size):
            names = {name.casefold(): name for name in reversed(list(part.frame))}
            column = part.frame["smiles" if "smiles" in part.frame else names["smiles"]]
            smiles += [str(column[row]).strip() for row in part.rows]
            problems += sum(why != BLANK for why in part.problems.values())
            assert part.frame.columns.is_unique
    except GraphbenchError as error:
        return str(error)
    return smiles, problems


@pytest.mark.parametrize("file", READ, indirect=True)
@pytest.mark.parametrize("size", [3, 1024])
def test_a_training_and_a_prediction_read_the_same_rows(file, size):
    smiles, y, left_out = trained(file)
    assert smiles == SMILES
    assert y == VALUES
    assert answered(file, size) == (SMILES, left_out)


@pytest.mark.parametrize("file", REFUSED, indirect=True)
def test_what_is_refused_is_refused_with_the_same_sentence(file):
    said = trained(file)
    assert isinstance(said, str)
    assert answered(file, 1024) == said
    assert len(said.splitlines()) == 1
    assert file.name in said
