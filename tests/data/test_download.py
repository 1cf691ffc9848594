"""Downloads: whole or not at all, checked, nothing outside the folder, and one message when they fail."""

import hashlib
import io
import os
import struct
import zipfile
from urllib.error import URLError

import pytest

from graphbench.data import download
from graphbench.data.download import extract, fetch, fetch_members
from graphbench.errors import CorruptData, MissingData

URL = "https://example.org/files/set.zip?dl=1"
CONTENT = os.urandom(5000)


def packed(*members):
    """A zip archive of (name, content) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = packed(("set/a.pt", CONTENT), ("set/b.pt", b"second"))
MEMBERS = {"a.pt": "set/a.pt", "second.pt": "set/b.pt"}


def altered():
    """The archive with one byte of its packed content changed."""
    start = 30 + struct.unpack("<H", ARCHIVE[26:28])[0]
    return ARCHIVE[: start + 900] + bytes([ARCHIVE[start + 900] ^ 255]) + ARCHIVE[start + 901 :]


class Answer(io.BytesIO):
    """What a server sends, with the length that it announces."""

    def __init__(self, content, length=None):
        super().__init__(content)
        self.headers = {} if length is None else {"Content-Length": str(length)}


@pytest.fixture
def network(monkeypatch):
    """Answers every address with what is put into the first list; the second collects the addresses."""
    answers, asked = [], []

    def answer(url, timeout):
        assert timeout
        asked.append(url)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return Answer(*answers[0])

    monkeypatch.setattr(download.urllib.request, "urlopen", answer)
    return answers, asked


def everything(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("length", [None, len(CONTENT)])
def test_file_is_fetched_once(network, tmp_path, length):
    answers, asked = network
    answers.append((CONTENT, length))
    sums = {"sha256": hashlib.sha256(CONTENT).hexdigest(), "md5": hashlib.md5(CONTENT).hexdigest()}
    path = fetch(URL, tmp_path / "new" / "raw", "x.bin", what="Set", **sums)
    assert path.read_bytes() == CONTENT
    assert fetch(URL, tmp_path / "new" / "raw", "x.bin", what="Set", **sums) == path
    assert asked == [URL]
    assert everything(tmp_path) == ["new/raw/x.bin"]


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_other_content_is_told_and_not_kept(network, tmp_path, algorithm):
    network[0].append((CONTENT,))
    expected = getattr(hashlib, algorithm)(b"what was published").hexdigest()
    with pytest.raises(CorruptData, match=rf"x\.bin is not the published file.* instead of {expected}"):
        fetch(URL, tmp_path, "x.bin", what="Set", **{algorithm: expected})
    assert everything(tmp_path) == []


def test_altered_file_that_is_there_is_told(network, tmp_path):
    (tmp_path / "x.bin").write_bytes(b"altered")
    with pytest.raises(CorruptData, match="Delete it and fetch it again"):
        fetch(URL, tmp_path, "x.bin", what="Set", sha256=hashlib.sha256(CONTENT).hexdigest())
    assert not network[1]


@pytest.mark.parametrize("trouble", [URLError("no route to host"), TimeoutError("timed out")])
def test_no_network_is_one_message(network, tmp_path, trouble):
    network[0].append(trouble)
    others = {"y.bin": "https://example.org/y"}
    for call in (
        lambda: fetch(URL, tmp_path, "x.bin", what="Set", others=others, advice="Or do without."),
        lambda: fetch_members(URL, tmp_path / "raw", MEMBERS, what="Set", others=others, advice="Or do without."),
        lambda: fetch_members(URL, tmp_path, MEMBERS, what="Set", others=others, advice="Or do without."),
    ):
        with pytest.raises(MissingData, match=r"^Set could not be downloaded") as told:
            call()
        for part in (URL, str(tmp_path), "Or do without.", str(trouble), "y.bin from https://example.org/y"):
            assert part in str(told.value)
    assert "set.zip from" in str(told.value)
    assert f"from {URL} (or a.pt, second.pt, which it holds)" in str(told.value)
    assert everything(tmp_path) == []


def test_connection_that_ends_early_is_told(network, tmp_path):
    network[0].append((ARCHIVE[:3000], len(ARCHIVE)))
    with pytest.raises(MissingData, match="ended after 3,000 of"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert everything(tmp_path) == []


def test_members_come_under_their_names(network, tmp_path):
    network[0].append((ARCHIVE,))
    paths = fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert {name: path.read_bytes() for name, path in paths.items()} == {"a.pt": CONTENT, "second.pt": b"second"}
    assert everything(tmp_path) == ["a.pt", "second.pt"]
    assert fetch_members(URL, tmp_path, MEMBERS, what="Set") == paths
    assert len(network[1]) == 1


def test_only_absent_members_are_unpacked(network, tmp_path):
    network[0].append((ARCHIVE,))
    (tmp_path / "a.pt").write_bytes(b"my own")
    fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert (tmp_path / "a.pt").read_bytes() == b"my own"
    assert (tmp_path / "second.pt").read_bytes() == b"second"


@pytest.mark.parametrize("place", [None, "archives"])
def test_archive_put_there_by_hand_needs_no_network(network, tmp_path, place):
    folder = tmp_path / "raw"
    lies = folder if place is None else tmp_path / place
    lies.mkdir()
    (lies / "set.zip").write_bytes(ARCHIVE)
    paths = fetch_members(URL, folder, MEMBERS, what="Set", archive_folder=None if place is None else lies)
    assert paths["a.pt"].read_bytes() == CONTENT
    assert not network[1]
    assert (lies / "set.zip").is_file()


def test_archive_of_other_content_is_told(network, tmp_path):
    (tmp_path / "set.zip").write_bytes(ARCHIVE)
    with pytest.raises(CorruptData, match=r"set\.zip is not the published file"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set", sha256="0" * 64)
    assert everything(tmp_path) == ["set.zip"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>not found</html>", r"no whole zip archive \(BadZipFile"),
        (b"", "no whole zip archive"),
        (ARCHIVE[:-100], "no whole zip archive"),
        (altered(), "no whole zip archive"),
        (packed(("other.pt", b"x")), r"holds no set/a\.pt, but other\.pt"),
        (packed(), "but nothing"),
    ],
)
def test_damaged_archives_are_told(network, tmp_path, content, message):
    network[0].append((content,))
    with pytest.raises(CorruptData, match=message) as told:
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert f"set.zip from {URL}" in str(told.value)
    assert everything(tmp_path) == []


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "..\\evil", "C:\\evil", "\\\\server\\evil"])
def test_paths_that_climb_out_are_refused(tmp_path, name):
    archive = tmp_path / "set.zip"
    archive.write_bytes(packed(("set/a.pt", CONTENT), (name, b"x")))
    with pytest.raises(CorruptData, match="leads out of its folder: nothing was unpacked"):
        extract(archive, tmp_path / "out", ["set/a.pt"])
    assert everything(tmp_path) == ["set.zip"]


def test_extract_names_files_by_their_last_part(tmp_path):
    (tmp_path / "set.zip").write_bytes(ARCHIVE)
    extract(tmp_path / "set.zip", tmp_path / "out", ["set/a.pt", "set/b.pt"])
    assert everything(tmp_path / "out") == ["a.pt", "b.pt"]
