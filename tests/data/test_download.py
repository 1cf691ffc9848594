"""Downloads are complete or absent, checked, kept inside their folder, and fail with one message."""

import contextlib
import hashlib
import io
import os
import struct
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import URLError

import pytest

from graphbench.data import download
from graphbench.data.download import extract, fetch, fetch_members
from graphbench.errors import CorruptData, MissingData

URL = "https://example.org/files/set.zip?dl=1"
CONTENT = os.urandom(5000)


def packed(*members):
    """Return a zip archive of (name, content) pairs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


ARCHIVE = packed(("set/a.pt", CONTENT), ("set/b.pt", b"second"))
MEMBERS = {"a.pt": "set/a.pt", "second.pt": "set/b.pt"}


def altered():
    """Return the archive with one byte of its packed content changed."""
    start = 30 + struct.unpack("<H", ARCHIVE[26:28])[0]
    return ARCHIVE[: start + 900] + bytes([ARCHIVE[start + 900] ^ 255]) + ARCHIVE[start + 901 :]


class Answer(io.BytesIO):
    """The response of a server and the length that it announces."""

    def __init__(self, content, length=None):
        super().__init__(content)
        self.headers = {} if length is None else {"Content-Length": str(length)}


@pytest.fixture
def network(monkeypatch):
    """Answer every request with the first item of one list; the other list collects the addresses."""
    answers, asked = [], []

    def answer(url, timeout):
        assert timeout
        asked.append(url)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return Answer(*answers[0])

    monkeypatch.setattr(download, "open_url", answer)
    return answers, asked


def everything(folder):
    """Return the paths of all files except the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".fetch.lock")
    return sorted(path.relative_to(folder).as_posix() for path in files)


@pytest.mark.parametrize("stage", ["download", "unpacking"])
def test_a_full_disk_is_no_fault_of_the_network_or_the_archive(network, tmp_path, stage):
    resource = pytest.importorskip("resource")
    sent = packed(("set/a.pt", bytes(20_000)))
    network[0].append((sent, len(sent)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0 if stage == "download" else len(sent), hard))
    try:
        with pytest.raises(MissingData, match=f"Set cannot be put into {tmp_path}: File too large"):
            fetch_members(URL, tmp_path, {"a.pt": "set/a.pt"}, what="Set")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert everything(tmp_path) == []
    fetch_members(URL, tmp_path, {"a.pt": "set/a.pt"}, what="Set")
    assert (tmp_path / "a.pt").read_bytes() == bytes(20_000)


@pytest.mark.parametrize("length", [None, len(CONTENT)])
def test_file_is_fetched_once(network, tmp_path, length):
    answers, asked = network
    answers.append((CONTENT, length))
    sums = {"sha256": hashlib.sha256(CONTENT).hexdigest(), "md5": hashlib.md5(CONTENT).hexdigest()}
    path = fetch(URL, tmp_path / "new" / "raw", "x.bin", what="Set", **sums)
    assert path.read_bytes() == CONTENT
    assert fetch(URL, tmp_path / "new" / "raw", "x.bin", what="Set", **sums) == path
    assert asked == [URL]
    assert everything(tmp_path) == ["new/raw/SHA256SUMS", "new/raw/x.bin"]
    assert (tmp_path / "new" / "raw" / "SHA256SUMS").read_text() == f"{sums['sha256']}  x.bin\n"


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
    assert everything(tmp_path) == ["SHA256SUMS", "a.pt", "second.pt"]
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
        (b"<html>not found</html>", r"not a whole zip file \(BadZipFile"),
        (b"", "not a whole zip file"),
        (ARCHIVE[:-100], "not a whole zip file"),
        (altered(), "not a whole zip file"),
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


def test_what_changed_since_the_first_download_is_refused(network, tmp_path):
    answers, _ = network
    answers.append((CONTENT,))
    path = fetch(URL, tmp_path, "x.bin", what="Set")
    path.write_bytes(b"altered on the disk")
    told = rf"^x\.bin is not what was first downloaded into .* instead of {hashlib.sha256(CONTENT).hexdigest()}\..*line"
    with pytest.raises(CorruptData, match=told):
        fetch(URL, tmp_path, "x.bin", what="Set")
    path.unlink()
    answers[0] = (b"altered at the publisher",)
    with pytest.raises(CorruptData, match=told):
        fetch(URL, tmp_path, "x.bin", what="Set")
    assert not path.exists()
    (tmp_path / "SHA256SUMS").write_text("")
    assert fetch(URL, tmp_path, "x.bin", what="Set").read_bytes() == b"altered at the publisher"


def test_members_and_their_archive_are_held_against_the_first_download(network, tmp_path):
    answers, _ = network
    answers.append((ARCHIVE,))
    paths = fetch_members(URL, tmp_path, MEMBERS, what="Set")
    paths["a.pt"].write_bytes(b"altered on the disk")
    with pytest.raises(CorruptData, match=r"^a\.pt is not what was first downloaded"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    paths["a.pt"].unlink()
    answers[0] = (packed(("set/a.pt", b"altered at the publisher"), ("set/b.pt", b"second")),)
    with pytest.raises(CorruptData, match=r"^set\.zip is not what was first downloaded") as told:
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert "\n" not in str(told.value)
    (tmp_path / "set.zip").write_bytes(answers[0][0])
    with pytest.raises(CorruptData, match=r"^set\.zip is not what was first downloaded"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    sums = [line for line in (tmp_path / "SHA256SUMS").read_text().splitlines() if "set.zip" not in line]
    (tmp_path / "SHA256SUMS").write_text("\n".join(sums) + "\n")
    with pytest.raises(CorruptData, match=r"^a\.pt is not what was first downloaded"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set")
    assert everything(tmp_path) == ["SHA256SUMS", "second.pt", "set.zip"]


def test_an_archive_has_the_checksum_that_its_publisher_states(network, tmp_path):
    network[0].append((ARCHIVE,))
    with pytest.raises(CorruptData, match=r"set\.zip is not the published file: its MD5"):
        fetch_members(URL, tmp_path, MEMBERS, what="Set", md5="0" * 32)
    fetch_members(URL, tmp_path, MEMBERS, what="Set", md5=hashlib.md5(ARCHIVE).hexdigest())


@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b"no checksum here", b"zz  x.bin\n"])
def test_a_damaged_record_is_no_traceback(network, tmp_path, damage):
    network[0].append((CONTENT,))
    (tmp_path / "SHA256SUMS").write_bytes(damage)
    refused = damage in (b"\xff\xfe", b"zz  x.bin\n")
    with pytest.raises(CorruptData, match="SHA256SUMS") if refused else contextlib.nullcontext():
        assert fetch(URL, tmp_path, "x.bin", what="Set").read_bytes() == CONTENT


# -- a real server ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch):
    """Start a local server; yield its address and what it sends: path -> content, or an address to redirect to."""
    contents = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = contents[self.path]
            if isinstance(content, str):
                self.send_response(302)
                self.send_header("Location", content)
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", contents
        running.shutdown()


def test_a_changed_download_of_a_real_server_is_refused(server, tmp_path, monkeypatch):
    address, contents = server
    monkeypatch.setattr(download, "_SCHEMES", ("http",))
    contents["/set.zip"] = ARCHIVE
    paths = fetch_members(f"{address}/set.zip", tmp_path, MEMBERS, what="Set")
    assert paths["a.pt"].read_bytes() == CONTENT
    contents["/set.zip"] = packed(("set/a.pt", b"other"), ("set/b.pt", b"second"))
    paths["a.pt"].unlink()
    with pytest.raises(CorruptData, match="is not what was first downloaded"):
        fetch_members(f"{address}/set.zip", tmp_path, MEMBERS, what="Set")
    assert not paths["a.pt"].exists()


def test_nothing_is_fetched_without_encryption(server, tmp_path, monkeypatch):
    address, contents = server
    contents["/x"] = CONTENT
    with pytest.raises(MissingData, match=r"SSL|ssl"):  # requested by https, which this server does not support
        fetch(f"{address}/x", tmp_path, "x.bin", what="Set")
    for url in ("ftp://127.0.0.1/x", (tmp_path / "y").as_uri(), "x"):
        with pytest.raises(MissingData, match="only https is safe"):
            fetch(url, tmp_path, "x.bin", what="Set")
    monkeypatch.setattr(download, "_SCHEMES", ("http",))
    contents["/away"] = "ftp://127.0.0.1/x"
    with pytest.raises(MissingData, match="only http is safe"):
        fetch(f"{address}/away", tmp_path, "x.bin", what="Set")
    contents["/here"] = f"{address}/x"
    assert fetch(f"{address}/here", tmp_path, "x.bin", what="Set").read_bytes() == CONTENT


def test_a_download_without_end_is_ended(server, tmp_path, monkeypatch):
    address, contents = server
    monkeypatch.setattr(download, "_SCHEMES", ("http",))
    monkeypatch.setattr(download, "MOST_BYTES", 1000)
    contents["/x"] = CONTENT
    with pytest.raises(MissingData, match="no end after"):
        fetch(f"{address}/x", tmp_path, "x.bin", what="Set")
    assert everything(tmp_path) == []


def test_every_published_address_is_fetched_with_https():
    from graphbench.benchmarks.lrgb import files
    from graphbench.benchmarks.molecules import ogb, pcqm, qm9_sources, zinc_files
    from graphbench.benchmarks.points import modelnet, shapenet
    from graphbench.benchmarks.sequences import long_text
    from graphbench.benchmarks.superpixels import readers

    urls = [ogb.MolHIV._about(ogb.MolHIV, "url"), ogb.MolPCBA._about(ogb.MolPCBA, "url")]
    urls += [pcqm.PCQM4M.address, pcqm.PCQM4Mv2.address, *qm9_sources.addresses()]
    zinc, index = zinc_files.addresses()
    urls += [zinc, *index, files.address("peptides-func"), files.address("coco-sp")]
    assert all(download._secure(url).startswith("https://") for url in urls)
    told = [module.ADDRESS for module in (modelnet, shapenet, readers)]
    told += [long_text.REVIEWS_ADDRESS, long_text.PAIRS_ADDRESS]
    assert all(url.startswith("https://") for url in told)
