"""Files are replaced as a whole."""

import errno

import pytest

from graphbench.data.files.writing import write_text


def test_a_failed_write_leaves_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "results.json"
    write_text(path, "old")

    def crash(self, target):
        raise OSError(errno.ENOSPC, "disk full")

    monkeypatch.setattr("pathlib.Path.replace", crash)
    with pytest.raises(OSError, match="disk full") as stopped:
        write_text(path, "new")
    assert stopped.value.filename == str(path)
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]
