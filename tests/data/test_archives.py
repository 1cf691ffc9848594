"""Malicious archives: bombs, links, devices, and paths that lead out of the folder."""

import contextlib
import gzip
import io
import shutil
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphbench.data import archives
from graphbench.data.archives import open_gzip, open_zip, read_tar, unpack_member
from graphbench.data.download import extract
from graphbench.errors import CorruptData, MissingData

ZEROS = bytes(1 << 20)


@pytest.fixture
def strict(monkeypatch):
    """Lower the limit so that a bomb of a megabyte is refused."""
    monkeypatch.setattr(archives, "RATIO_ABOVE", 100_000)


def zipped(path, *members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def tarred(path, *members):
    """Write a gzipped tar archive of (name, content) pairs and `TarInfo` members."""
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            archive.addfile(info, io.BytesIO(member[1]))
    return path


def special(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_a_zip_bomb_is_refused_before_anything_is_unpacked(tmp_path, strict):
    bomb = zipped(tmp_path / "bomb.zip", ("a.pt", ZEROS), ("b.pt", b"x"))
    with pytest.raises(CorruptData, match=r"bomb\.zip, a\.pt, makes 1 MB out of 0 MB: nothing was unpacked"):
        extract(bomb, tmp_path / "out", ["b.pt"])
    assert not list((tmp_path / "out").iterdir())


def test_a_true_bomb_of_a_hundred_megabytes_is_refused_by_the_true_limits(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a", "w") as file:
        for _ in range(100):
            file.write(ZEROS)
    with pytest.raises(CorruptData, match="makes 100 MB out of 0 MB"):
        open_zip(tmp_path / "bomb.zip")


def test_many_small_members_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_MEMBERS", 3)
    zipped(tmp_path / "few.zip", *((str(number), b"") for number in range(3)))
    open_zip(tmp_path / "few.zip").close()
    zipped(tmp_path / "many.zip", *((str(number), b"") for number in range(4)))
    with pytest.raises(CorruptData, match="more than 3 files"):
        open_zip(tmp_path / "many.zip")
    tarred(tmp_path / "many.tar.gz", *((str(number), b"") for number in range(4)))
    with pytest.raises(CorruptData, match="more than 3 files"):
        list(read_tar(tmp_path / "many.tar.gz", lambda name: True, "x"))


def test_members_that_share_their_bytes_are_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 3000)
    zipped(tmp_path / "set.zip", *((str(number), bytes(range(100)) * 10) for number in range(4)))
    with pytest.raises(CorruptData, match=r"set\.zip makes"):
        open_zip(tmp_path / "set.zip")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR])
def test_links_in_a_zip_archive_are_refused(tmp_path, kind):
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as archive:
        info = zipfile.ZipInfo("a.pt")
        info.external_attr = (kind | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(CorruptData, match=r"'a\.pt', which is a link or a device"):
        extract(tmp_path / "set.zip", tmp_path / "out", ["a.pt"])
    assert not (tmp_path / "out" / "a.pt").exists()


def test_a_member_that_states_a_wrong_size_is_refused(tmp_path):
    content = bytearray(zipped(tmp_path / "set.zip", ("a.pt", ZEROS)).read_bytes())
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = (10).to_bytes(4, "little")  # the directory says 10 bytes
    (tmp_path / "set.zip").write_bytes(content)
    with pytest.raises(CorruptData, match="not a whole zip file"):
        extract(tmp_path / "set.zip", tmp_path / "out", ["a.pt"])
    assert not list((tmp_path / "out").iterdir())


def test_a_full_disk_is_said_before_anything_is_written(tmp_path, monkeypatch):
    zipped(tmp_path / "set.zip", ("a.pt", b"x" * 100))
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 99, 1))
    with open_zip(tmp_path / "set.zip") as opened, pytest.raises(MissingData, match="its disk has 0 MB left"):
        unpack_member(opened, "a.pt", tmp_path / "a.pt")


@pytest.mark.parametrize(
    "member",
    [
        special("set/a", tarfile.SYMTYPE, "/etc/passwd"),
        special("set/a", tarfile.LNKTYPE, "set/b"),
        special("set/a", tarfile.CHRTYPE),
        special("set/a", tarfile.FIFOTYPE),
    ],
    ids=["symbolic", "hard", "device", "pipe"],
)
def test_links_in_a_tar_archive_are_refused(tmp_path, member):
    tarred(tmp_path / "set.tar.gz", member, ("set/b", b"content"))
    with pytest.raises(CorruptData, match="'set/a', which is a link or a device"):
        list(read_tar(tmp_path / "set.tar.gz", lambda name: True, "x"))


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/../../evil"])
def test_paths_in_a_tar_archive_do_not_climb(tmp_path, name):
    tarred(tmp_path / "set.tar.gz", (name, b"x"))
    with pytest.raises(CorruptData, match="leads out of its folder"):
        list(read_tar(tmp_path / "set.tar.gz", lambda name: False, "x"))


def test_a_tar_bomb_is_refused(tmp_path, strict):
    tarred(tmp_path / "bomb.tar.gz", ("a", b"small"), ("b", ZEROS))
    with pytest.raises(CorruptData, match=r"bomb\.tar\.gz makes 1 MB"):
        list(read_tar(tmp_path / "bomb.tar.gz", "a".__eq__, "x"))


def test_files_of_a_tar_archive_come_in_its_order(tmp_path):
    tarred(tmp_path / "set.tar.gz", ("s/b", b"1"), special("s/d", tarfile.DIRTYPE), ("s/a", b"22"), ("s/c", b"3"))
    found = list(read_tar(tmp_path / "set.tar.gz", lambda name: not name.endswith("c"), "x"))
    assert found == [("s/b", b"1"), ("s/a", b"22")]


def test_a_torn_tar_archive_names_its_publisher(tmp_path):
    whole = tarred(tmp_path / "set.tar.gz", ("a", bytes(range(256)) * 40)).read_bytes()
    (tmp_path / "set.tar.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match=r"is not the whole archive .* Fetch it again from somewhere\."):
        list(read_tar(tmp_path / "set.tar.gz", lambda name: True, "somewhere"))


def test_a_gzip_stream_is_what_was_packed_or_a_bomb(tmp_path, strict, monkeypatch):
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"content"))
    with open_gzip(tmp_path / "x.gz") as file:
        assert file.read() == b"content"
    (tmp_path / "x.gz").write_bytes(gzip.compress(ZEROS))
    with open_gzip(tmp_path / "x.gz") as file, pytest.raises(CorruptData, match=r"x\.gz makes"):
        file.read()
    monkeypatch.setattr(archives, "RATIO_ABOVE", 1 << 30)
    monkeypatch.setattr(archives, "MOST_IN_MEMORY", 1000)
    with open_gzip(tmp_path / "x.gz") as file, pytest.raises(CorruptData, match="unpacks to more than 0 GB"):
        file.read()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_zip_archive_is_refused_or_gives_what_was_packed(tmp_path, data):
    """Damage is one to three flipped bits, and in some cases a cut anywhere."""
    packed = {"a.pt": bytes(range(256)) * 8, "set/b.pt": b"b" * 300}
    whole = zipped(tmp_path / "set.zip", *packed.items()).read_bytes()
    content = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    (tmp_path / "set.zip").write_bytes(content)
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    with contextlib.suppress(CorruptData, MissingData):
        extract(tmp_path / "set.zip", tmp_path / "out", list(packed))
    for name, expected in packed.items():
        path = tmp_path / "out" / Path(name).name
        assert not path.exists() or path.read_bytes() == expected
    assert not list((tmp_path / "out").glob(".*")), "half-written files are left"
