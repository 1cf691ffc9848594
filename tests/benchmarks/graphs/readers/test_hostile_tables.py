"""Tables of graphs as users write them: training and prediction read the same rows or give the same error."""

from __future__ import annotations

import gzip
import importlib.util
import io
import json

import pandas as pd
import pytest

from graphbench.benchmarks.graphs.readers.table_parts import parts_of_tables
from graphbench.benchmarks.graphs.readers.tables import read_tables
from graphbench.errors import GraphbenchError

NODES = "graph,node,x,kind\na,1,0.5,C\na,2,-1.0,N\nb,1,2.25,C\n"
EDGES = "graph,source,target,w,kind\na,1,2,1.5,s\na,2,1,0.25,d\nb,1,1,-3.0,s\n"
TABLES = {"nodes": NODES, "edges": EDGES}


def frame(text):
    return pd.read_csv(io.StringIO(text))


def parquet(change=lambda table: table, **options):
    return lambda text: lambda path: change(frame(text)).to_parquet(path, **options)


def workbook(change=lambda row: row):
    def write(text, path):
        import openpyxl

        book = openpyxl.Workbook()
        rows = [line.split(",") for line in text.splitlines()]
        for row in [rows[0], *frame(text).to_numpy(dtype=object).tolist()]:
            book.active.append(change(row))
        book.save(path)

    return lambda text: lambda path: write(text, path)


def header(text, change):
    first, rest = text.split("\n", 1)
    return f"{change(first)}\n{rest}"


def wider(text, names, cells):
    first, *rest = text.splitlines()
    return f"{first}{names}\n" + "".join(f"{line}{cells}\n" for line in rest)


def objects(text):
    return "".join(json.dumps(row) + "\n" for row in frame(text).to_dict("records"))


#: Name with suffix -> the same table, written in another way (text, bytes, or a function that writes it).
READ = {
    "plain.csv": lambda text: text,
    "trailing.csv": lambda text: text.replace("\n", ",,\n"),
    "longer_rows.csv": lambda text: wider(text, "", ",,"),
    "blank_rows.csv": lambda text: header(text, lambda first: f"{first}\n\n,,,\n  ") + ",\n\n",
    "duplicates.csv": lambda text: wider(text, ",note,note", ",u,v"),
    "index.csv": lambda text: "".join(f"{i - 1 if i else ''},{line}\n" for i, line in enumerate(text.splitlines())),
    "spaces.csv": lambda text: text.replace(",", " , "),
    "case.csv": lambda text: header(text, str.title).replace("X,Kind", "x,kind").replace("W,Kind", "w,kind"),
    "quoted.csv": lambda text: wider(text, ",note", ',"two\nlines, and ""quotes"""'),
    "semicolons.csv": lambda text: text.replace(",", ";"),
    "decimal_commas.csv": lambda text: text.replace(",", ";").replace(".", ","),
    "mark.csv": lambda text: "\ufeff" + text,
    "carriage_returns.csv": lambda text: text.replace("\n", "\r"),
    "windows.csv": lambda text: text.replace("\n", "\r\n"),
    "utf16.csv": lambda text: text.encode("utf-16"),
    "utf16_unmarked.csv": lambda text: text.encode("utf-16-le"),
    "utf16_big.tsv": lambda text: text.replace(",", "\t").encode("utf-16-be"),
    "packed.csv.gz": lambda text: gzip.compress(text.encode()),
    "packed.tsv.gz": lambda text: gzip.compress(text.replace(",", "\t").encode("utf-16")),
    "tabs.tab": lambda text: text.replace(",", "\t"),
    "tabs.csv": lambda text: text.replace(",", "\t"),
    "lines.jsonl": objects,
    "blank_lines.ndjson": lambda text: "\n" + objects(text).replace("\n", "\n\n"),
    "packed.jsonl.gz": lambda text: gzip.compress(objects(text).encode()),
    "a.parquet": parquet(index=False),
    "index.parquet": parquet(lambda table: table.set_index("graph")),
    "unnamed_index.parquet": parquet(lambda table: table.set_axis(list("pqr"))),
    "groups.parquet": parquet(row_group_size=1),
    "types.parquet": parquet(lambda table: table.astype({"graph": "category", "kind": "category"})),
    "nullable.parquet": parquet(lambda table: table.convert_dtypes()),
    "book.xlsx": workbook(),
    "gaps.xlsx": workbook(lambda row: [*row, None, None]),
}
#: Name with suffix -> content that is damaged or ambiguous.
REFUSED = {
    "empty.csv": lambda text: "",
    "blank.csv": lambda text: "\n\n  \n",
    "twice.csv": lambda text: wider(text, ",graph", ",a"),
    "cases.csv": lambda text: wider(text.replace("graph", "Graph"), ",GRAPH", ",a"),
    "no_column.csv": lambda text: text.replace("graph", "of"),
    "comments.csv": lambda text: f"# mine\n{text}",
    "torn.csv": lambda text: f"{text}a,1,1,1,1,1\n",
    "short.csv": lambda text: f"{text}a,1\n",
    "open_quote.csv": lambda text: f'{text}"a,1\na,2\n',
    "latin.csv": lambda text: text.replace("kind", "größe").encode("latin-1"),
    "latin_late.csv": lambda text: text.encode() + b"\xb5,1,1,1,1\n",
    "latin.csv.gz": lambda text: gzip.compress(text.replace("kind", "größe").encode("latin-1")),
    "half.csv": lambda text: text.encode("utf-16")[:-1],
    "cut.csv.gz": lambda text: gzip.compress(text.encode())[:-9],
    "not_packed.csv.gz": lambda text: text,
    "bomb.csv.gz": lambda text: gzip.compress(bytes(100 << 20), 9),
    "text.parquet": lambda text: text,
    "text.xlsx": lambda text: text,
    "lists.jsonl": lambda text: "[1]\n[2]\n",
    "broken.jsonl": lambda text: objects(text) + "{\n",
    "empty.jsonl": lambda text: "\n",
}


@pytest.fixture(params=TABLES)
def table(request):
    """Return the name of the table that is written in another way."""
    return request.param


@pytest.fixture
def folder(request, table, tmp_path):
    """Write tables of nodes and edges, one of them in the format of the parameter."""
    suffix = request.param[request.param.index(".") :]
    if suffix == ".xlsx" and importlib.util.find_spec("openpyxl") is None:
        pytest.skip("needs the extra excel")
    for name, text in TABLES.items():
        path = tmp_path / f"{name}{suffix if name == table else '.csv'}"
        content = (READ | REFUSED)[request.param](text) if name == table else text
        if callable(content):
            content(path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def content(raw):
    nodes, edges = raw.columns["node"], raw.columns["edge"]
    return (
        raw.names,
        raw.num_nodes.tolist(),
        raw.edges.tolist(),
        [nodes["x"].tolist(), nodes["kind"].tolist(), edges["w"].tolist(), edges["kind"].tolist()],
    )


def trained(folder):
    """Return what training reads from both tables, or its error."""
    try:
        return content(read_tables(folder, directed=True))
    except GraphbenchError as error:
        return str(error)


def answered(folder, rows):
    """Return the same for a prediction, which reads a few rows at a time."""
    try:
        (part,) = parts_of_tables(folder, directed=True, size=10, rows=rows)
        return content(part.join(range(part.size)))
    except GraphbenchError as error:
        return str(error)


@pytest.mark.parametrize("folder", READ, indirect=True)
@pytest.mark.parametrize("rows", [2, 1000])
def test_a_training_and_a_prediction_read_the_same_rows(folder, rows):
    expected = (
        ["a", "b"],
        [2, 1],
        [[0, 1], [1, 0], [0, 0]],
        [[0.5, -1.0, 2.25], ["C", "N", "C"], [1.5, 0.25, -3.0], ["s", "d", "s"]],
    )
    assert trained(folder) == expected
    assert answered(folder, rows) == expected


@pytest.mark.parametrize("folder", REFUSED, indirect=True)
@pytest.mark.parametrize("rows", [2, 1000])
def test_what_is_refused_is_refused_with_the_same_sentence(folder, table, rows):
    message = trained(folder)
    assert isinstance(message, str)
    assert answered(folder, rows) == message
    assert len(message.splitlines()) == 1
    assert f"{table}." in message
