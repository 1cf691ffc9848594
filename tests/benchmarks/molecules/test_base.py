"""New molecules get the graphs that the benchmark would build from them."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from rdkit import Chem

from graphbench.benchmarks import QM9, ZINC, Molecules, PeptidesFunc
from graphbench.benchmarks.molecules import base
from graphbench.benchmarks.molecules.chemistry import files
from graphbench.benchmarks.molecules.chemistry.files import MoleculeFrame
from graphbench.benchmarks.molecules.qm9_structures import PackRecord, read_structures
from graphbench.errors import BadInput

COLUMNS = ("x", "edge_index", "edge_attr")


def joined(parts, name):
    return torch.cat([part.table.columns[name].long() for part in parts])


def assert_same_graphs(benchmark, split):
    parts = list(benchmark.read_objects(benchmark.smiles(split), size=3))
    assert not any(part.problems for part in parts)
    table = benchmark.tables[split]
    for name in COLUMNS:
        assert torch.equal(joined(parts, name), table.columns[name].long()), name
    assert torch.equal(torch.cat([part.table.num_nodes for part in parts]), table.num_nodes)


def test_graphs_are_those_of_the_store(tmp_path):
    smiles = [
        "C[C@H](N)O",
        "c1ccc2[nH]ccc2c1",
        "[Na+].[Cl-]",
        "F/C=C/F",
        "[O-][N+](=O)c1ccccc1",
        "CS(=O)(=O)N",
        "[2H]C",
        "*C",
    ]
    (tmp_path / "own.csv").write_text("smiles,y\n" + "".join(f"{s},{n}\n" for n, s in enumerate(3 * smiles)))
    benchmark = Molecules(str(tmp_path / "own.csv"), "y", fractions=(0.2, 0.1, 0.7), store=str(tmp_path / "store"))
    benchmark.setup()
    assert_same_graphs(benchmark, "test")


def test_zinc_of_smiles(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / f"{split}.smi").write_text("C[C@H](N)O\nCC(=O)[O-]\nc1ccccc1\n")
    benchmark = ZINC(subset=False, source="files", split_dir=str(tmp_path), store=str(tmp_path / "store"))
    benchmark.setup()
    assert_same_graphs(benchmark, "test")
    part = next(benchmark.read_objects(["C[Si]C"]))
    assert part.rows == []
    assert "none of ZINC's 28 types" in part.problems[0]


@pytest.mark.parametrize(
    ("options", "shape"),
    [({}, (21, 9)), ({"hydrogens": False}, (8, 9)), ({"hydrogens": False, "features": "types"}, (8, 1))],
)
def test_qm9_of_smiles(options, shape):
    smiles = ["CCO", "C#N", "C1CC1"]
    benchmark = QM9(source="qm9pack", **options)
    expected = read_structures(benchmark.recipe, (0, [PackRecord(text) for text in smiles])).arrays
    part = next(benchmark.read_objects(smiles))
    for name in COLUMNS:
        assert torch.equal(part.table.columns[name].long(), torch.from_numpy(getattr(expected, name)).long())
    assert part.table.columns["x"].shape == shape


def test_what_needs_more_than_smiles_is_refused_by_name(tmp_path):
    with pytest.raises(BadInput, match="QM9 cannot read new inputs with positions=true"):
        QM9(source="qm9pack", positions=True).read_input("new.csv")
    with pytest.raises(BadInput, match="QM9 cannot read new inputs with source=pyg"):
        QM9().read_objects(["C"])


def test_molecules_count_as_their_smiles():
    benchmark = PeptidesFunc()
    hydrogens = Chem.AddHs(Chem.MolFromSmiles("OCC"))
    part = next(benchmark.read_objects([hydrogens, "CCO"]))
    assert part.frame["smiles"].tolist()[1] == "CCO"
    assert part.table.num_nodes.tolist() == [3, 3]
    sums = [part.table.slice(k, k + 1).columns["x"].long().sum(0) for k in range(2)]
    assert torch.equal(*sums)


def test_several_processes_keep_the_order(monkeypatch):
    from graphbench.benchmarks.molecules import base

    monkeypatch.setattr(base, "available_cores", lambda: 2)
    smiles = ["C" * (1 + n % 7) if n % 5 else "bad" for n in range(40)]
    parts = list(Molecules("none.csv", "y").read_objects(smiles, size=6))
    assert [text for part in parts for text in part.frame["smiles"]] == smiles
    rows = [6 * number + row for number, part in enumerate(parts) for row in part.rows]
    assert rows == [n for n in range(40) if n % 5]
    sizes = [size for part in parts for size in part.table.num_nodes.tolist()]
    assert sizes == [1 + n % 7 for n in rows]
    assert sum(len(part.problems) for part in parts) == 8


@pytest.mark.parametrize("cores", [1, 2])
def test_a_file_without_end_is_read_a_few_parts_ahead(monkeypatch, cores):
    taken = []

    def endless(source, column, size, wanted):
        while True:
            taken.append(source)
            yield MoleculeFrame(pd.DataFrame({"smiles": ["CCO"]}), ["CCO"])

    monkeypatch.setattr(base, "stream_molecules", endless)
    monkeypatch.setattr(base, "available_cores", lambda: cores)
    parts = Molecules("unused.csv", "y").read_input("unused.csv", size=1)
    found = [next(parts) for _ in range(10)]
    parts.close()
    assert all(len(part.table) == 1 for part in found)
    assert len(taken) <= 10 + 2 * cores + 2


def test_records_of_parts_that_nobody_wants_are_not_read(tmp_path, monkeypatch):
    blocks = [Chem.MolToMolBlock(Chem.MolFromSmiles("C" * length)) for length in range(1, 6)]
    (tmp_path / "new.sdf").write_text("".join(f"{block}$$$$\n" for block in blocks))
    read, plain = [], files._record_smiles
    monkeypatch.setattr(files, "_record_smiles", lambda record: read.append(plain(record)) or read[-1])
    parts = ZINC()._read_file(str(tmp_path / "new.sdf"), None, 2, lambda row: row == 2)
    assert [(len(part.frame), part.rows) for part in parts] == [(2, []), (2, [0, 1]), (1, [])]
    assert read == ["CCC", "CCCC"]


def test_molecules_of_parts_that_nobody_wants_are_not_read(tmp_path, monkeypatch):
    (tmp_path / "new.smi").write_text("CCO\nCC\nC1CC\nC\nCCCC\n")
    data, read = ZINC(), []
    chunk, stream = base.read_chunk, base.stream_molecules
    monkeypatch.setattr(base, "available_cores", lambda: 1)
    monkeypatch.setattr(base, "read_chunk", lambda recipe, job: read.extend(job[1]) or chunk(recipe, job))
    monkeypatch.setattr(
        base, "stream_molecules", lambda source, column, size, wanted: stream(source, column, 2, wanted)
    )
    asked = []
    parts = list(data.read_chosen(str(tmp_path / "new.smi"), None, lambda row: asked.append(row) or row != 2))
    assert asked == [0, 2, 4]
    assert [len(part.frame) for part in parts] == [2, 2, 1]
    assert read == ["CCO", "CC", "CCCC"]
    assert [(part.rows, part.problems) for part in parts] == [([0, 1], {}), ([], {}), ([0], {})]


def test_training_molecules_are_read_once_for_all_inputs(tmp_path, monkeypatch):
    def opened():
        benchmark = Molecules(str(tmp_path / "own.csv"), "y", store=str(tmp_path / "store"))
        benchmark.setup()
        return benchmark

    (tmp_path / "own.csv").write_text("smiles,y\n" + "".join(f"{'C' * n}O,{n}\n" for n in range(1, 21)))
    benchmark = opened()
    trained, other = benchmark.smiles("train")[:2], benchmark.smiles("test")[:1]
    read = []
    plain = base.read_molecules
    monkeypatch.setattr(
        base, "read_molecules", lambda smiles, *a, **k: read.append(len(smiles)) or plain(smiles, *a, **k)
    )
    for texts in ([trained[0], other[0]], [other[0], trained[1]]):
        assert benchmark.seen_in_training(texts).tolist() == [text in trained for text in texts]
    assert read == [len(benchmark.smiles("train")), 2, 2]
    assert opened().seen_in_training([other[0], trained[1]]).tolist() == [False, True]  # for the next file
    assert read == [len(benchmark.smiles("train")), 2, 2, 2]
