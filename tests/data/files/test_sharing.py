"""Processes and users that share a folder: every job gets complete files, and a group can share them."""

from __future__ import annotations

import encodings.cp437  # noqa: F401 - zip archives need it, and a second user may not read root's Python
import errno
import fcntl
import json
import logging
import os
import signal
import stat
import tempfile
import traceback
import zipfile
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import Timeout

from graphbench.data.download import fetch, fetch_members
from graphbench.data.entry import MANIFEST, digest
from graphbench.data.files import sharing
from graphbench.data.files.sharing import acquire_lock, make_folder, process_exists
from graphbench.data.store import Store
from graphbench.errors import BadInput
from graphbench.runs import RunFolder

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
FIRST, SECOND, GROUP = 12101, 12102, 12100
as_root = pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() != 0, reason="only root becomes two users")


def together(count, work):
    """Run `work(number)` in processes that start at once; return each result as text, or its traceback."""
    start, pipes = os.pipe(), []
    for number in range(count):
        pipe = os.pipe()
        if not os.fork():
            os.read(start[0], 1)
            try:
                said = str(work(number))
            except BaseException:
                said = traceback.format_exc()
            os.write(pipe[1], said.encode()[-4000:])
            os._exit(0)
        os.close(pipe[1])
        pipes.append(pipe[0])
    os.write(start[1], bytes(count))
    said = []
    for pipe in pipes:
        with os.fdopen(pipe) as file:
            said.append(file.read())
    for _ in range(count):
        os.wait()
    return said


def alone(user, umask, work):
    """Run work as a user of the group; return its result as text, or its traceback."""

    def changed(number):
        os.setgroups([GROUP])
        os.setgid(GROUP)
        os.setuid(user)
        os.umask(umask)
        return work()

    return together(1, changed)[0]


def test_jobs_that_start_together_unpack_an_archive_once(tmp_path):
    content = os.urandom(3_000_000)
    members = {f"{name}.bin": f"raw/{name}.bin" for name in "abc"}
    for turn in range(5):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with zipfile.ZipFile(folder / "mine.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for member in members.values():
                archive.writestr(member, content)

        def work(number, folder=folder):
            paths = fetch_members("https://example.org/mine.zip", folder, members, what="Mine")
            return all(path.read_bytes() == content for path in paths.values())

        assert together(4, work) == ["True"] * 4
        assert not list(folder.glob(".download-*"))
        assert len((folder / "SHA256SUMS").read_text().splitlines()) == 3


def test_jobs_that_start_together_download_once(tmp_path, monkeypatch):
    from graphbench.data import download

    def answer(url, path, what, remedy):
        with (tmp_path / "asked").open("a") as file:
            file.write("x")
        path.write_bytes(os.urandom(1_000_000))  # a publisher that sends something else each time

    monkeypatch.setattr(download, "_download", answer)

    def work(number):
        return digest(list(fetch("https://example.org/x", tmp_path / "new" / "raw", "x", what="X").read_bytes()))

    said = together(4, work)
    assert len(set(said)) == 1
    assert len(said[0]) == 64
    assert (tmp_path / "asked").read_text() == "x"


def test_files_that_are_there_are_used_where_nothing_can_be_written(tmp_path):
    (tmp_path / "x").write_bytes(b"put there by hand")
    assert fetch("https://example.org/x", tmp_path, "x", what="X").read_bytes() == b"put there by hand"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


# -- a group ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path_factory):
    """Return a folder shared by a group, below folders that everybody may enter."""
    folder = tmp_path_factory.mktemp("shared")
    top = Path(tempfile.gettempdir())
    for parent in takewhile(lambda parent: parent != top, folder.parents):  # workers of pytest-xdist add one
        parent.chmod(0o755)
    os.chown(folder, 0, GROUP)
    folder.chmod(0o2775)
    Store(tmp_path_factory.mktemp("own")).open_or_build({"kind": "k"}, lambda writer: None, "imports what is needed")
    return folder


def opened(folder, number, values=5):
    def work():
        entry = Store(folder).open_or_build(
            {"kind": "k", "n": number}, lambda writer: writer.append("x", np.arange(values)), "numbers"
        )
        return len(entry.arrays["x"])

    return work


@as_root
@pytest.mark.parametrize("below", ["", "data/store"])
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_a_group_shares_a_store_whatever_the_umask(shared, umask, below):
    folder = shared / below
    assert alone(FIRST, umask, opened(folder, 1)) == "5"
    assert alone(SECOND, umask, opened(folder, 1)) == "5"
    assert alone(SECOND, umask, opened(folder, 2)) == "5"
    for path in shared.rglob("*"):
        status = path.stat()
        assert status.st_gid == GROUP
        assert status.st_mode & 0o060 == 0o060, path
        assert not path.is_dir() or status.st_mode & stat.S_ISGID, path
    next(folder.glob("k-*/x.npy")).write_bytes(b"damaged")
    for number in (1, 2):
        for user in (SECOND, FIRST):
            assert alone(user, umask, opened(folder, number)) == "5"


@as_root
def test_what_a_killed_build_of_another_user_left_is_no_hindrance(shared):
    def killed():
        def build(writer):
            writer.append("x", np.arange(4))
            os._exit(9)

        Store(shared).open_or_build({"kind": "k", "n": 3}, build, "numbers")

    assert alone(FIRST, 0o022, killed) == ""
    assert list(shared.glob(".k-*"))
    assert alone(SECOND, 0o022, opened(shared, 3)) == "5"
    assert not list(shared.glob(".k-*"))


@as_root
@pytest.mark.parametrize("closed", ["", ".locks"])
def test_a_store_that_the_group_may_not_write_to_says_what_to_set(shared, closed):
    assert alone(FIRST, 0o022, opened(shared, 1)) == "5"
    for path in (shared / closed, *(shared / closed).iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.chown(path, FIRST, GROUP)
    assert alone(SECOND, 0o022, opened(shared, 1)) == "5"
    said = alone(SECOND, 0o022, opened(shared, 2)) + alone(SECOND, 0o022, opened(shared, 2))
    assert "BadInput" in said.splitlines()[-1]
    assert f"chmod -R g+rwX {shared}" in said.splitlines()[-1]


@as_root
def test_a_folder_of_downloads_is_shared(shared):
    def work(name):
        def fetch_it():
            folder = shared / "raw"
            paths = fetch_members("https://example.org/mine.zip", folder, {name: name}, archive_folder=shared, what="M")
            return paths[name].read_text()

        return fetch_it

    with zipfile.ZipFile(shared / "mine.zip", "w") as archive:
        for name in ("first", "second"):
            archive.writestr(name, name)
    (shared / "mine.zip").chmod(0o644)
    assert alone(FIRST, 0o077, work("first")) == "first"
    assert alone(SECOND, 0o077, work("second")) == "second"
    assert alone(SECOND, 0o077, work("first")) == "first"


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_other_folders_go_by_the_umask_alone(tmp_path, mode):
    tmp_path.chmod(mode)
    before = os.umask(0o027)
    try:
        make_folder(tmp_path / "a" / "b")
        opened(tmp_path / "a" / "b", 1)()
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert modes == {0o750}


# -- manifests made by hand ------------------------------------------------------------------------------------------

ARRAY = {"dtype": "<i8", "shape": [5], "bytes": 296, "sha256": "0"}
BY_HAND = {
    "no format": lambda body: body.pop("format"),
    "no key": lambda body: body.pop("key"),
    "no meta": lambda body: body.pop("meta"),
    "meta a list": lambda body: body.update(meta=[1]),
    "no arrays": lambda body: body.pop("arrays"),
    "arrays a list": lambda body: body.update(arrays=[1]),
    "an array that is a number": lambda body: body.update(arrays={"x": 1}),
    "a name that leads out": lambda body: body["arrays"].update({"../../evil": body["arrays"]["x"]}),
    "an absolute name": lambda body: body["arrays"].update({"/evil": ARRAY}),
    "dtype of objects": lambda body: body["arrays"]["x"].update(dtype="|O"),
    "dtype of nothing": lambda body: body["arrays"]["x"].update(dtype="zz"),
    "dtype a list": lambda body: body["arrays"]["x"].update(dtype=[1, [2]]),
    "a shape beyond memory": lambda body: body["arrays"]["x"].update(shape=[10**12]),
    "a negative shape": lambda body: body["arrays"]["x"].update(shape=[-5]),
    "a shape of text": lambda body: body["arrays"]["x"].update(shape=["5"]),
    "no shape": lambda body: body["arrays"]["x"].pop("shape"),
    "bytes of text": lambda body: body["arrays"]["x"].update(bytes="296"),
    "no checksum": lambda body: body["arrays"]["x"].pop("sha256"),
    "checksum a number": lambda body: body["arrays"]["x"].update(sha256=1),
}


@pytest.mark.parametrize("change", BY_HAND.values(), ids=BY_HAND)
def test_a_manifest_made_by_hand_is_rebuilt(tmp_path, change, caplog):
    opened(tmp_path, 9)()
    (manifest,) = tmp_path.glob(f"k-*/{MANIFEST}")
    body = json.loads(manifest.read_text())
    body.pop("sha256")
    change(body)
    body["sha256"] = digest(body)
    manifest.write_text(json.dumps(body))
    assert opened(tmp_path, 9)() == 5
    assert "is damaged" in caplog.text
    assert "is rebuilt" in caplog.text


@pytest.mark.parametrize("text", ["[1]", "1", "null", "[" * 100_000, '{"sha256": 1}', "{"])
def test_a_manifest_that_is_none_is_rebuilt(tmp_path, text):
    opened(tmp_path, 9)()
    (manifest,) = Path(tmp_path).glob(f"k-*/{MANIFEST}")
    manifest.write_text(text)
    assert opened(tmp_path, 9)() == 5


@pytest.fixture(params=[errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS], ids=errno.errorcode.get)
def without_locks(request, monkeypatch):
    """Let `flock` fail as on NFS without a lock daemon and on some FUSE and 9p mounts."""

    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(fcntl, "flock", refuse)


def forked(action):
    """Run an action in a fork; return 0 if it got the lock, 3 if another process holds it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            action()
            code = 0
        except (Timeout, BadInput):
            code = 3
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_one_process_at_a_time(tmp_path):
    held = acquire_lock(tmp_path / "a.lock", timeout=0)
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 3
    held.release()
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 0


def test_one_process_at_a_time_without_locks(without_locks, tmp_path):
    held = acquire_lock(tmp_path / "a.lock", timeout=0)
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 3
    held.release()
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=0)) == 0


def test_a_killed_process_leaves_no_lock(without_locks, tmp_path):
    def die():
        acquire_lock(tmp_path / "a.lock", timeout=0)
        os.kill(os.getpid(), signal.SIGKILL)

    assert forked(die) == -signal.SIGKILL
    assert forked(lambda: acquire_lock(tmp_path / "a.lock", timeout=10)) == 0


def test_a_run_is_held_and_it_is_said(without_locks, tmp_path, caplog):
    run = RunFolder(tmp_path / "run")
    with caplog.at_level(logging.WARNING), run.held():
        assert forked(lambda: run.held().__enter__()) == 3
    assert forked(lambda: run.held().__enter__()) == 0
    assert "without locks" in caplog.text
    assert ".lock.taken" in caplog.text


def test_an_entry_is_built_once(without_locks, tmp_path):
    store, key = Store(tmp_path), {"kind": "numbers"}
    calls = tmp_path / "calls.txt"

    def build(writer):
        with calls.open("a") as file:
            file.write("x")

    assert [forked(lambda: store.open_or_build(key, build, "numbers")) for _ in range(2)] == [0, 0]
    assert calls.read_text() == "x"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS])
def test_other_errors_of_a_place_pass(monkeypatch, tmp_path, code):
    original = os.open

    def refuse(path, flags, *rest, **options):
        if str(path).endswith("a.lock"):
            raise OSError(code, os.strerror(code), str(path))
        return original(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=os.strerror(code)):
        acquire_lock(tmp_path / "a.lock", timeout=0)


def test_a_process_exists_until_it_ends():
    if (child := os.fork()) == 0:
        signal.pause()
    assert process_exists(child)
    os.kill(child, signal.SIGKILL)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert process_exists(child) is not Path("/proc/self/stat").is_file()
    os.waitpid(child, 0)
    assert not process_exists(child)


def test_windows_sends_no_signal_to_ask(monkeypatch):
    sent = []
    monkeypatch.setattr(sharing, "os", SimpleNamespace(name="nt", kill=lambda *signal: sent.append(signal)))
    assert process_exists(1)
    assert not sent, "signal 0 is Ctrl-C on Windows"
