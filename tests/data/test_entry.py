"""Entries that are damaged, large, or not on the disk yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stored_numbers import KEY, Builder

from graphbench.data.store import Store


def _flip(path: Path, position: int):
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


DAMAGE = {
    "flipped data byte": lambda folder: _flip(folder / "values.npy", -7),
    "flipped header byte": lambda folder: _flip(folder / "values.npy", 30),
    "truncated": lambda folder: os.truncate(folder / "values.npy", 900),
    "file missing": lambda folder: (folder / "flags.npy").unlink(),
    "manifest missing": lambda folder: (folder / "manifest.json").unlink(),
    "manifest cut": lambda folder: os.truncate(folder / "manifest.json", 50),
    "manifest altered": lambda folder: (folder / "manifest.json").write_text(
        (folder / "manifest.json").read_text().replace("hello", "jello")
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("mapped", [False, True])
def test_damage_is_noticed_and_rebuilt_with_a_warning(tmp_path, caplog, damage, mapped):
    store = Store(tmp_path, map_above=0 if mapped else 1 << 20)
    build = Builder()
    folder = store.open_or_build(KEY, build, "numbers").folder
    DAMAGE[damage](folder)
    entry = store.open_or_build(KEY, build, "the numbers")
    assert build.calls == 2
    assert entry.arrays["values"][-1].tolist() == [998.0, 999.0]
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the numbers" in record.message
    assert folder.name in record.message
    assert "rebuilt" in record.message


def test_large_entry_is_verified_once_until_its_files_change(tmp_path, monkeypatch):
    store = Store(tmp_path, full_below=0)
    build = Builder()
    folder = store.open_or_build(KEY, build, "numbers").folder
    read = []
    monkeypatch.setattr("graphbench.data.entry.progress", lambda *args: read.append(args) or pytest.fail("verified"))
    store.open_or_build(KEY, build, "numbers")
    assert not read
    monkeypatch.undo()
    stat = (folder / "values.npy").stat()
    _flip(folder / "values.npy", -7)
    os.utime(folder / "values.npy", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    store.open_or_build(KEY, build, "numbers")
    assert build.calls == 2


@pytest.mark.parametrize("start", ["another", ""], ids=["restarted", "unknown"])
def test_large_entry_that_may_not_have_reached_the_disk_is_verified_after_a_restart(tmp_path, monkeypatch, start):
    store, build = Store(tmp_path, full_below=0), Builder()
    folder = store.open_or_build(KEY, build, "numbers").folder
    noted = (folder / "verified.json").read_text()
    stat = (folder / "values.npy").stat()
    _flip(folder / "values.npy", -7)  # a power cut may leave wrong content with the right size and times
    os.utime(folder / "values.npy", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    monkeypatch.setattr("graphbench.data.entry.boot_id", lambda: start)
    store.open_or_build(KEY, build, "numbers")
    assert build.calls == 2
    (folder / "verified.json").write_text(noted)
    store.open_or_build(KEY, build, "numbers")
    assert build.calls == 2
    assert "start" not in json.loads((folder / "verified.json").read_text())  # verified by reading from the disk


@pytest.mark.skipif(sys.platform != "linux", reason="counts the calls of Linux")
def test_an_entry_reaches_the_disk_before_python_ends(tmp_path):
    code = (
        "import os, sys; import numpy as np; from graphbench.data.store import Store; sync = os.fsync\n"
        "os.fsync = lambda handle: (sync(handle), print(os.readlink(f'/proc/self/fd/{handle}')))\n"
        "build = lambda writer: writer.append('x', np.arange(9))\n"
        "Store(sys.argv[1]).open_or_build({'kind': 'numbers'}, build, 'numbers')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    (folder,) = (path for path in tmp_path.iterdir() if not path.name.startswith("."))
    expected = {tmp_path, folder, *(folder / name for name in ("x.npy", "manifest.json", "verified.json"))}
    assert {Path(line) for line in done.stdout.splitlines()} == {path.resolve() for path in expected}
