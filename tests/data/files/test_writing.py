"""Files that are written together: after a kill at any write, after errors, and next to other processes."""

from __future__ import annotations

import errno
import os
import signal
import socket

import pytest
from forked import killed_at_write

from graphbench.data.files.writing import finish_writing, place_of, write_text, writing_together
from graphbench.errors import BadInput

NAMES = ("results.json", "diagnostics/gap.csv", "a/b/c.txt")


def write(folder, text):
    with writing_together(folder) as staged:
        for name in NAMES:
            write_text(staged / name, text)


def content(folder):
    return {path.read_text() for name in NAMES for path in [folder / name] if path.is_file()}


def killed(folder, number):
    """Return whether writing was killed at its n-th change of a file."""
    child = os.fork()
    if not child:
        try:
            killed_at_write(folder, number)()
            write(folder, "new")
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_after_a_kill_at_any_write_all_files_are_old_or_all_are_new(tmp_path):
    seen, number = [], 1
    while True:
        folder = tmp_path / str(number)
        write(folder, "old")
        if not killed(folder, number):
            break
        finish_writing(folder)
        assert len(content(folder)) == 1, number
        assert sorted(path.name for path in folder.iterdir()) == ["a", "diagnostics", "results.json"], number
        seen += content(folder)
        number += 1
    assert seen == sorted(seen, reverse=True), "old before the deciding rename, new after it"
    assert set(seen) == {"old", "new"}


def test_after_an_error_nothing_appears_and_no_folder_is_left(tmp_path):
    def fail():
        with writing_together(tmp_path / "new") as staged:
            write_text(staged / "a.txt", "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not (tmp_path / "new").exists()


def test_what_a_running_process_writes_stays_and_what_a_dead_one_left_goes(tmp_path):
    running = tmp_path / f".staged-{socket.gethostname()}-{os.getpid()}-x"
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    for folder in (running, tmp_path / f".staged-{socket.gethostname()}-{child}-x", tmp_path / ".staged-else-1-x"):
        folder.mkdir()
    os.utime(tmp_path / ".staged-else-1-x", (0, 0))
    finish_writing(tmp_path)
    assert list(tmp_path.iterdir()) == [running]


def test_paths_of_staged_files_are_told_as_those_they_will_have(tmp_path):
    with writing_together(tmp_path) as staged:
        assert place_of(staged / "a" / "b.csv") == tmp_path / "a" / "b.csv"


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


def test_a_file_that_cannot_be_begun_is_told_by_its_name(tmp_path, monkeypatch):
    def refuse(**options):
        raise OSError(errno.ENOSPC, "disk full", f"{options['dir']}/{options['prefix']}x")

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    with pytest.raises(OSError, match="disk full") as stopped:
        write_text(tmp_path / "results.json", "new")
    assert stopped.value.filename == str(tmp_path / "results.json")


@pytest.mark.parametrize("link", ["elsewhere", ".commit-1"])
def test_nothing_is_moved_into_or_out_of_a_folder_by_a_link(tmp_path, link):
    home, sent = tmp_path / "home", tmp_path / "sent"
    (sent / ".commit-0" / "elsewhere").mkdir(parents=True)
    home.mkdir()
    (home / ".bashrc").write_text("mine")
    (sent / ".commit-0" / "elsewhere" / ".bashrc").write_text("theirs")
    (sent / link).symlink_to(home)
    with pytest.raises(BadInput, match="leads out of"):
        finish_writing(sent)
    assert (home / ".bashrc").read_text() == "mine"
