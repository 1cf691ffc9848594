"""PCQM4Mv2 and PCQM4M from small files in OGB's layout, against OGB's conversion of SMILES."""

import gzip
import hashlib
import zipfile

import numpy as np
import pytest
import torch
from ogb.utils import smiles2graph

from graphbench.benchmarks.molecules.pcqm import PCQM4M, PCQM4Mv2
from graphbench.errors import BadInput, CorruptData, MissingData

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "CN", "C#N", "OCC=C", "CCN", "CCCC"]
SPLIT = {"train": [0, 2, 3, 5, 7], "valid": [1, 4], "test-dev": [6]}


def write_raw(folder, split=SPLIT, smiles=SMILES, gaps=None):
    """Write `data.csv.gz` and `split_dict.pt` as OGB does; the molecule of `test-dev` has no label."""
    folder.mkdir(parents=True, exist_ok=True)
    gaps = [float(n) / 2 for n in range(len(smiles))] if gaps is None else gaps
    rows = [f"{n},{text},{'' if n == 6 else gap}" for n, (text, gap) in enumerate(zip(smiles, gaps, strict=True))]
    with gzip.open(folder / "data.csv.gz", "wt") as file:
        file.write("idx,smiles,homolumogap\n" + "\n".join(rows) + "\n")
    torch.save({name: np.array(part, dtype=np.int64) for name, part in split.items()}, folder / "split_dict.pt")


@pytest.fixture
def small(monkeypatch):
    """Replace the published sizes by those of the small files."""
    from dataclasses import replace

    for benchmark in (PCQM4Mv2, PCQM4M):
        monkeypatch.setattr(benchmark, "spec", replace(benchmark.spec, split_sizes=(3, 2, 2)))


@pytest.mark.parametrize("benchmark", [PCQM4Mv2, PCQM4M])
def test_graphs_are_those_of_ogb(tmp_path, small, benchmark):
    write_raw(tmp_path / benchmark.__name__)
    data = benchmark(root=str(tmp_path), held_out=2)
    data.setup()
    assert {split: len(table) for split, table in data.tables.items()} == {"train": 3, "val": 2, "test": 2}
    assert data.ids("test") == ["1", "4"]
    assert {*data.ids("train"), *data.ids("val")} == {"0", "2", "3", "5", "7"}
    for split in ("train", "val", "test"):
        batch = data.tables[split].batch(range(len(data.tables[split])))
        for row, (name, smiles) in enumerate(zip(data.ids(split), data.smiles(split), strict=True)):
            expected = smiles2graph(SMILES[int(name)])
            assert smiles == SMILES[int(name)]
            assert float(batch.y[row]) == int(name) / 2
            first, last = int(batch.ptr[row]), int(batch.ptr[row + 1])
            np.testing.assert_array_equal(batch.x[first:last], expected["node_feat"])
            own = (batch.edge_index[0] >= first) & (batch.edge_index[0] < last)
            edges = {
                (*map(int, e), *map(int, f))
                for e, f in zip(batch.edge_index[:, own].t() - first, batch.edge_attr[own], strict=True)
            }
            pairs = zip(expected["edge_index"].T, expected["edge_feat"], strict=True)
            assert edges == {(*map(int, e), *map(int, f)) for e, f in pairs}


def test_without_molecules_held_out_the_test_split_validates(tmp_path, small):
    write_raw(tmp_path / "PCQM4Mv2")
    data = PCQM4Mv2(root=str(tmp_path), held_out=0)
    data.setup()
    assert data.ids("val") == data.ids("test")
    assert len(data.tables["train"]) == 5
    assert data.spec.num_graphs == 7
    with pytest.raises(BadInput, match="held_out must be an integer of at least 0 and at most 4, but got 5"):
        PCQM4Mv2(held_out=5)
    with pytest.raises(BadInput, match="split_seed=3 chooses held-out molecules"):
        PCQM4Mv2(held_out=0, split_seed=3)


def test_published_sizes_add_up():
    assert sum(PCQM4Mv2.spec.split_sizes) == 3_378_606 + 73_545
    assert sum(PCQM4M.spec.split_sizes) == 3_045_360 + 380_670


def test_archive_put_there_by_hand_is_used(tmp_path, small, monkeypatch):
    write_raw(tmp_path / "raw")
    folder = tmp_path / "PCQM4Mv2"
    folder.mkdir()
    with zipfile.ZipFile(folder / "pcqm4m-v2.zip", "w") as archive:
        archive.write(tmp_path / "raw" / "data.csv.gz", "pcqm4m-v2/raw/data.csv.gz")
        archive.write(tmp_path / "raw" / "split_dict.pt", "pcqm4m-v2/split_dict.pt")
    with pytest.raises(CorruptData, match=r"pcqm4m-v2\.zip is not the published file: its MD5"):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()
    content = (folder / "pcqm4m-v2.zip").read_bytes()
    monkeypatch.setattr(PCQM4Mv2, "checksum", hashlib.md5(content, usedforsecurity=False).hexdigest())
    data = PCQM4Mv2(root=str(tmp_path), held_out=2)
    data.setup()
    assert data.ids("test") == ["1", "4"]


def test_no_network_says_what_to_fetch(tmp_path, monkeypatch):
    def unreachable(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("graphbench.data.download.open_url", unreachable)
    with pytest.raises(MissingData, match=r"pcqm4m-v2\.zip from https://dgl-data"):
        PCQM4Mv2(root=str(tmp_path)).setup()
    assert {path.name for path in (tmp_path / "PCQM4Mv2").iterdir()} <= {".fetch.lock"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,CCO,abc", r"data\.csv\.gz cannot be read .*abc"),
        ('0,CCO,"0,5"', r"data\.csv\.gz cannot be read .*0,5"),
        ("0,,0.0", r"data\.csv\.gz: 1 of 8 rows"),
        ("CCO,0.0", "lacks the target of molecule 0"),
    ],
)
def test_a_row_that_cannot_be_is_told(tmp_path, small, row, message):
    write_raw(tmp_path / "PCQM4Mv2")
    file = tmp_path / "PCQM4Mv2" / "data.csv.gz"
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b"0,CCO,0.0", row.encode(), 1)))
    with pytest.raises((BadInput, CorruptData), match=message):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()


def test_columns_are_found_by_name_where_rows_are_longer_than_the_header(tmp_path, small):
    write_raw(tmp_path / "PCQM4Mv2")
    file = tmp_path / "PCQM4Mv2" / "data.csv.gz"
    header, *rows = gzip.decompress(file.read_bytes()).splitlines()
    file.write_bytes(gzip.compress(b"\n".join([header, *(row + b",9" for row in rows)])))
    data = PCQM4Mv2(root=str(tmp_path), held_out=2)
    data.setup()
    assert data.smiles("test") == [SMILES[1], SMILES[4]]
    assert data.tables["test"].columns["y"].flatten().tolist() == [0.5, 2.0]


class Runs:
    def __reduce__(self):
        return (print, ("this was run",))


def test_damaged_files_are_refused_and_nothing_is_run(tmp_path, small, capsys):
    folder = tmp_path / "PCQM4Mv2"
    write_raw(folder)
    torch.save({"train": Runs(), "valid": Runs()}, folder / "split_dict.pt")
    with pytest.raises(CorruptData, match="holds no splits"):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()
    assert "this was run" not in capsys.readouterr().out
    write_raw(folder, split={"train": [0, 1, 2], "valid": [2, 9]})
    with pytest.raises(CorruptData, match="distinct rows from 0 to 7"):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()
    write_raw(folder)
    whole = (folder / "data.csv.gz").read_bytes()
    (folder / "data.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match=r"data\.csv\.gz cannot be read"):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()
    write_raw(folder, split=SPLIT | {"valid": [1, 6]})
    with pytest.raises(CorruptData, match="lacks the target of molecule 6"):
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()


def test_molecules_that_rdkit_cannot_read_are_named(tmp_path, small):
    write_raw(tmp_path / "PCQM4Mv2", smiles=[*SMILES[:4], "C(C", *SMILES[5:]])
    with pytest.raises(BadInput, match="6"):  # the line of the file, after a header
        PCQM4Mv2(root=str(tmp_path), held_out=2).setup()
