"""The GNN benchmark's archives, fetched to where PyG keeps them and read without running their code."""

import io
import os
import zipfile
from pathlib import Path
from urllib.error import URLError

import pytest
import torch

from graphbench.benchmarks.gnn_benchmark_files import address, fetch, read_splits
from graphbench.data import download
from graphbench.errors import CorruptData, MissingData


def packed(*members):
    """Return a zip archive of (name, content) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


CONTENT = os.urandom(5000)
ARCHIVE = packed(("MNIST_v2.pt", CONTENT))


class _Answer(io.BytesIO):
    def __init__(self, content, length=None):
        super().__init__(content)
        self.headers = {} if length is None else {"Content-Length": str(length)}


@pytest.fixture
def network(monkeypatch):
    """Answer every request with the first item of the list; also return the requested addresses."""
    answers, asked = [], []

    def answer(url, timeout):
        assert timeout
        asked.append(url)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    monkeypatch.setattr(download, "open_url", answer)
    return answers, asked


def everything(folder):
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".fetch.lock")
    return sorted(path.relative_to(folder).as_posix() for path in files)


@pytest.mark.parametrize("length", [None, len(ARCHIVE)])
def test_download_leaves_the_file_alone(network, tmp_path, length):
    answers, asked = network
    answers.append(_Answer(ARCHIVE, length))
    path = fetch("MNIST", tmp_path, "")
    assert path.read_bytes() == CONTENT
    assert everything(tmp_path) == ["raw/MNIST_v2.pt", "raw/SHA256SUMS"]
    assert fetch("MNIST", tmp_path, "") == path
    assert asked == [address("MNIST")]


def test_archive_put_there_by_hand_needs_no_network(network, tmp_path):
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / "MNIST_v2.zip").write_bytes(ARCHIVE)
    assert fetch("MNIST", tmp_path, "").read_bytes() == CONTENT
    assert not network[1]


@pytest.mark.parametrize("trouble", [URLError("no route to host"), TimeoutError("timed out")])
def test_trouble_on_the_way_says_what_to_do(network, tmp_path, trouble):
    network[0].append(trouble)
    with pytest.raises(MissingData) as told:
        fetch("MNIST", tmp_path, "Or do without.")
    for part in ("MNIST_v2.zip from " + address("MNIST"), str(tmp_path / "raw"), "Or do without.", str(trouble)):
        assert part in str(told.value)
    assert everything(tmp_path) == []


class _Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize(
    ("content", "message"),
    [([[], []], "expected train, validation and test"), (torch.zeros(3), "expected train, validation and test")],
)
def test_files_of_another_build_are_told(tmp_path, content, message):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CorruptData, match=message):
        read_splits(tmp_path / "x.pt", dict)


def test_code_in_a_file_is_not_run(tmp_path):
    torch.save([[], [], [_Evil(str(tmp_path / "made"))]], tmp_path / "x.pt")
    with pytest.raises(CorruptData, match="cannot be read"):
        read_splits(tmp_path / "x.pt", dict)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("keep", [0, 40, 900])
def test_truncated_files_are_told(tmp_path, keep):
    torch.save([[{"x": torch.zeros(100, 3)}], [], []], tmp_path / "x.pt")
    (tmp_path / "x.pt").write_bytes((tmp_path / "x.pt").read_bytes()[:keep])
    with pytest.raises(CorruptData, match=r"x\.pt cannot be read"):
        read_splits(tmp_path / "x.pt", dict)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps are listed on Linux only")
def test_graphs_are_mapped_and_not_all_in_memory(tmp_path):
    """PATTERN's file has 1.4 GB, TSP's over 2 GB."""
    path, maps = tmp_path / "PATTERN_v2.pt", []
    graph = {"x": torch.ones(2, 1, dtype=torch.int64), "edge_index": torch.tensor([[0], [1]]), "y": torch.ones(2)}
    torch.save([[graph], [graph], [graph]], path)

    def convert(graphs):
        maps.append(str(path) in Path("/proc/self/maps").read_text())
        return {"x": (torch.cat([one["x"] for one in graphs]), "node"), "y": (graphs[0]["y"][:, None], "node")}

    assert [len(table) for parts in read_splits(path, convert).values() for table in parts] == [1, 1, 1]
    assert maps == [True] * 3
