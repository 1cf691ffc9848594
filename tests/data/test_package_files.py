"""Package files are found and loaded without importing the package."""

from __future__ import annotations

import hashlib
import os
import sys
import time

import pytest

from graphbench.data import package_files
from graphbench.data.package_files import LARGE, file_sha256, load_module, package_file, remembered_sha256
from graphbench.errors import MissingData, MissingExtra


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Create a package that has a data file and whose import fails."""
    folder = tmp_path / "explosive_package"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')")
    (folder / "data.txt").write_text("inside")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_file_is_found_without_import(package):
    assert package_file("explosive_package", "data.txt").read_text() == "inside"
    assert "explosive_package" not in sys.modules


def test_absent_file_is_named(package):
    with pytest.raises(MissingData, match=r"no file other\.txt"):
        package_file("explosive_package", "other.txt")


def test_absent_package_names_the_extra():
    with pytest.raises(MissingExtra, match=r"Reading X needs .* pip install 'graphbench-lightning\[some\]'"):
        package_file("no_such_package_anywhere", "x", extra="some", purpose="Reading X")


def test_module_is_loaded_by_path_and_not_registered(tmp_path):
    (tmp_path / "loose.py").write_text("value = 7")
    assert load_module(tmp_path / "loose.py", "loose_module").value == 7
    assert "loose_module" not in sys.modules
    with pytest.raises(MissingData, match=r"absent\.py is missing"):
        load_module(tmp_path / "absent.py", "absent")


def test_checksum_is_that_of_the_content(tmp_path):
    (tmp_path / "a").write_bytes(b"abc" * 10_000_000)
    assert file_sha256(tmp_path / "a") == hashlib.sha256(b"abc" * 10_000_000).hexdigest()
    with pytest.raises(MissingData, match="no such file"):
        file_sha256(tmp_path / "b")


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def hashed(monkeypatch):
    """Collect every file that is read for its checksum."""
    read = []
    whole = package_files.file_sha256
    monkeypatch.setattr(package_files, "file_sha256", lambda path: read.append(path) or whole(path))
    return read


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Write a large file and wait until its last change counts as settled."""
    path = tmp_path / "source.bin"
    path.write_bytes(os.urandom(LARGE))
    monkeypatch.setattr(package_files, "SETTLED", 0.05)
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
    monkeypatch.setattr(package_files, "SETTLED", 3600.0)
    for _ in range(2):
        remembered_sha256(large, tmp_path / "store")
    assert len(hashed) == 2


def test_a_file_that_changes_while_it_is_read_is_not_remembered(large, tmp_path, monkeypatch):
    whole = package_files.file_sha256

    def changing(path):
        found = whole(path)
        path.write_bytes(os.urandom(LARGE))
        time.sleep(0.1)
        return found

    monkeypatch.setattr(package_files, "file_sha256", changing)
    remembered_sha256(large, tmp_path / "store")
    monkeypatch.undo()
    assert remembered_sha256(large, tmp_path / "store") == sha256(large)


def test_small_files_are_always_read(tmp_path, hashed, monkeypatch):
    monkeypatch.setattr(package_files, "SETTLED", -1.0)
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
