"""Checksums that are remembered, against hashlib and files that really change."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

from graphbench.data import checksums
from graphbench.data.checksums import LARGE, remembered_sha256
from graphbench.errors import MissingData


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def hashed(monkeypatch):
    """Every file that was read for its checksum."""
    read = []
    whole = checksums.file_sha256
    monkeypatch.setattr(checksums, "file_sha256", lambda path: read.append(path) or whole(path))
    return read


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A large file that nobody has touched for longer than a moment."""
    path = tmp_path / "source.bin"
    path.write_bytes(os.urandom(LARGE))
    monkeypatch.setattr(checksums, "SETTLED", 0.05)
    time.sleep(0.1)
    return path


def test_a_large_file_is_read_once(large, tmp_path, hashed):
    expected = sha256(large)
    assert [remembered_sha256(large, tmp_path / "store") for _ in range(3)] == [expected] * 3
    assert len(hashed) == 1


@pytest.mark.parametrize("keep_times", [False, True], ids=["as programs do", "with the times of before"])
def test_a_changed_byte_is_seen(large, tmp_path, keep_times):
    before = remembered_sha256(large, tmp_path / "store")
    stat = large.stat()
    with large.open("r+b") as file:
        first = file.read(1)[0]
        file.seek(0)
        file.write(bytes([first ^ 1]))
    if keep_times:
        os.utime(large, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert remembered_sha256(large, tmp_path / "store") == sha256(large) != before


def test_another_file_of_the_same_size_and_time_is_seen(large, tmp_path):
    before = remembered_sha256(large, tmp_path / "store")
    other = tmp_path / "other"
    other.write_bytes(os.urandom(LARGE))
    stat = large.stat()
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(large)
    assert remembered_sha256(large, tmp_path / "store") == sha256(large) != before


def test_a_file_that_was_just_written_is_not_remembered(large, tmp_path, hashed, monkeypatch):
    monkeypatch.setattr(checksums, "SETTLED", 3600.0)
    for _ in range(2):
        remembered_sha256(large, tmp_path / "store")
    assert len(hashed) == 2


def test_a_file_that_changes_while_it_is_read_is_not_remembered(large, tmp_path, monkeypatch):
    whole = checksums.file_sha256

    def changing(path):
        found = whole(path)
        path.write_bytes(os.urandom(LARGE))
        time.sleep(0.1)
        return found

    monkeypatch.setattr(checksums, "file_sha256", changing)
    remembered_sha256(large, tmp_path / "store")
    monkeypatch.undo()
    assert remembered_sha256(large, tmp_path / "store") == sha256(large)


def test_small_files_are_always_read(tmp_path, hashed, monkeypatch):
    monkeypatch.setattr(checksums, "SETTLED", -1.0)
    path = tmp_path / "small"
    path.write_bytes(b"abc")
    for _ in range(2):
        assert remembered_sha256(path, tmp_path / "store") == sha256(path)
    assert len(hashed) == 2
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b"{}", b'{"stamps": null, "sha256": 3}'])
def test_a_damaged_note_is_none(large, tmp_path, note):
    expected = remembered_sha256(large, tmp_path / "store")
    (kept,) = (tmp_path / "store" / ".checksums").iterdir()
    kept.write_bytes(note)
    assert remembered_sha256(large, tmp_path / "store") == expected


def test_a_store_that_takes_no_files_forgets(large, tmp_path, hashed):
    (tmp_path / "store").write_text("no folder")
    for _ in range(2):
        assert remembered_sha256(large, tmp_path / "store") == sha256(large)
    assert len(hashed) == 2


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingData, match=r"nothing\.csv"):
        remembered_sha256(tmp_path / "nothing.csv", tmp_path / "store")
