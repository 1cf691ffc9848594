"""Package files are found and loaded without importing the package."""

import hashlib
import sys

import pytest

from graphbench.data.package_files import file_sha256, load_module, package_file
from graphbench.errors import MissingData, MissingExtra


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose import fails, with a data file."""
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
