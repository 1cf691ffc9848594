from __future__ import annotations

import ctypes
import errno
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from stored_numbers import KEY, Builder
from waits import wait_until

from graphbench.data.entry import HEADER
from graphbench.data.store import Store
from graphbench.errors import BadInput, GraphbenchError


def test_entry_is_built_once_and_read_back(store):
    build = Builder()
    first = store.open_or_build(KEY, build, "numbers")
    again = store.open_or_build(KEY, build, "numbers")
    assert build.calls == 1
    for entry in (first, again):
        np.testing.assert_array_equal(entry.arrays["values"], np.arange(1000, dtype=np.float32).reshape(-1, 2))
        assert entry.arrays["flags"].tolist() == [True, False]
        assert entry.meta == {"note": "hello"}
    assert first.checksums == again.checksums


def test_arrays_are_plain_npy_files(store):
    entry = store.open_or_build(KEY, Builder(), "numbers")
    np.testing.assert_array_equal(np.load(entry.folder / "values.npy", allow_pickle=False), entry.arrays["values"])


def test_manifest_says_what_and_with_which_versions(store):
    entry = store.open_or_build(KEY, Builder(), "numbers")
    manifest = json.loads((entry.folder / "manifest.json").read_text())
    assert manifest["key"] == KEY
    assert manifest["arrays"]["values"]["shape"] == [500, 2]
    assert {"graphbench", "torch", "numpy", "time"} <= set(manifest["made"])


@pytest.mark.parametrize("change", [{"size": 1001}, {"parameters": {"b": 2.5, "a": [1, 0]}}, {"kind": "others"}])
def test_another_key_is_another_entry(store, change):
    assert store.folder(KEY | change) != store.folder(KEY)


def test_order_of_a_key_does_not_matter(store):
    assert store.folder(dict(reversed(KEY.items()))) == store.folder(KEY)


def test_numbers_name_the_parts_of_a_key_and_of_meta_as_their_texts_do(store):
    """JSON has only texts as names, and sorts them as texts: 10 before 2."""

    def build(writer):
        writer.append("x", np.arange(3))
        writer.meta["sizes"] = {2: "a", 10: "b"}

    key = {"kind": "numbers", "sizes": {2: 1, 10: 2}}
    entry = store.open_or_build(key, build, "numbers")
    again = store.open({"kind": "numbers", "sizes": {"10": 2, "2": 1}})
    assert again is not None
    assert again.folder == entry.folder
    assert again.meta["sizes"] == {"2": "a", "10": "b"}


@pytest.mark.parametrize("key", [{"kind": "a", "x": object()}, {"kind": "a", "x": float("nan")}, {"x": 1}])
def test_keys_must_be_json_with_a_kind(store, key):
    with pytest.raises(BadInput):
        store.folder(key)


def test_crash_in_the_middle_leaves_nothing_visible(store):
    def crash(writer):
        writer.append("values", np.arange(10))
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        store.open_or_build(KEY, crash, "numbers")
    assert not store.folder(KEY).exists()
    assert [path.name for path in store.root.iterdir()] == [".locks"]
    assert store.open_or_build(KEY, Builder(), "numbers").meta == {"note": "hello"}


def test_leftovers_of_a_killed_build_are_removed(store):
    folder = store.folder(KEY)
    leftover = store.root / f".{folder.name}.deadbeef"
    leftover.mkdir(parents=True)
    (leftover / "values.npy").write_bytes(b"half")
    store.open_or_build(KEY, Builder(), "numbers")
    assert not leftover.exists()


def test_mapped_equals_in_memory(tmp_path):
    Store(tmp_path).open_or_build(KEY, Builder(), "numbers")
    mapped = Store(tmp_path, map_above=0).open_or_build(KEY, Builder(), "numbers").arrays["values"]
    loaded = Store(tmp_path).open_or_build(KEY, Builder(), "numbers").arrays["values"]
    assert isinstance(mapped, np.memmap)
    assert not isinstance(loaded, np.memmap)
    np.testing.assert_array_equal(mapped, loaded)


def test_changing_a_mapped_array_never_reaches_the_disk(tmp_path):
    store = Store(tmp_path, map_above=0)
    store.open_or_build(KEY, Builder(), "numbers").arrays["values"][:] = -1
    assert store.open_or_build(KEY, Builder(), "numbers").arrays["values"][1, 1] == 3


@pytest.mark.parametrize("rows", [np.array([object()]), np.array(["text"]), np.float32(1)])
def test_only_rows_of_numbers_are_stored(store, rows):
    with pytest.raises(BadInput, match="rows of numbers"):
        store.open_or_build(KEY, lambda writer: writer.append("values", rows), "numbers")


def test_later_rows_must_be_like_the_first(store):
    def build(writer):
        writer.append("values", np.zeros((3, 2)))
        writer.append("values", np.zeros((3, 3)))

    with pytest.raises(BadInput, match="same dtype and width"):
        store.open_or_build(KEY, build, "numbers")


def test_empty_arrays_survive(store):
    entry = store.open_or_build(KEY, lambda writer: writer.append("none", np.zeros((0, 3), np.int16)), "numbers")
    assert entry.arrays["none"].shape == (0, 3)
    assert entry.arrays["none"].dtype == np.int16


def test_full_disk_is_one_clear_error(store):
    def build(writer):
        raise OSError(28, "No space left on device")

    with pytest.raises(GraphbenchError, match=r"lacks numbers, and its disk is full"):
        store.open_or_build(KEY, build, "numbers")


def test_root_comes_from_option_then_environment_then_data_root(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHBENCH_STORE", raising=False)
    assert Store.default(tmp_path).root == tmp_path / "store"
    monkeypatch.setenv("GRAPHBENCH_STORE", str(tmp_path / "env"))
    assert Store.default(tmp_path).root == tmp_path / "env"
    assert Store.default(tmp_path, tmp_path / "chosen").root == tmp_path / "chosen"


def test_a_waiting_thread_says_so_and_opens_what_the_first_built(store, caplog):
    inside, go_on = threading.Event(), threading.Event()

    def slow(writer):
        inside.set()
        assert go_on.wait(10)
        Builder()(writer)

    first = threading.Thread(target=store.open_or_build, args=(KEY, slow, "numbers"))
    second = threading.Thread(target=store.open_or_build, args=(KEY, lambda writer: pytest.fail("twice"), "numbers"))
    first.start()
    assert inside.wait(10)
    second.start()
    wait_until(lambda: "Waiting for another process" in caplog.text)
    go_on.set()
    first.join()
    second.join()
    assert store.folder(KEY).exists()


RACE = """
import sys, time, pathlib, numpy
from graphbench.data.store import Store
root, start, log = sys.argv[1:]
def build(writer):
    with open(log, "a") as file:
        file.write("built\\n")
    for _ in range(20):
        writer.append("values", numpy.arange(1000))
        time.sleep(0.01)
print("ready", flush=True)
while not pathlib.Path(start).exists():
    time.sleep(0.001)
entry = Store(root).open_or_build({"kind": "race"}, build, "race")
print(int(entry.arrays["values"].sum()))
"""


@pytest.mark.slow
def test_two_processes_starting_together_build_once(tmp_path):
    start, log = tmp_path / "start", tmp_path / "log"
    command = [sys.executable, "-c", RACE, str(tmp_path / "store"), str(start), str(log)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 2
    start.touch()
    answers = [process.communicate(timeout=120)[0].strip() for process in processes]
    assert answers == [str(20 * 499500)] * 2
    assert log.read_text() == "built\n"


KILLED = """
import sys, time, numpy
from graphbench.data.store import Store
def build(writer):
    writer.append("values", numpy.arange(1000))
    print("building", flush=True)
    time.sleep(600)
Store(sys.argv[1]).open_or_build({"kind": "race"}, build, "race")
"""


def test_a_killed_build_is_invisible_and_blocks_nobody(tmp_path):
    store = Store(tmp_path / "store")
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(store.root)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.kill()
    assert not store.folder({"kind": "race"}).exists()
    store.open_or_build({"kind": "race"}, Builder(), "race")
    assert not list(store.root.glob(".race*"))


# -- file systems that refuse an entry -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "its disk is full"),
        (errno.EDQUOT, "would exceed your quota"),
        (errno.EFBIG, "takes no file of that size"),
        (errno.EROFS, "is mounted read-only"),
    ],
)
def test_a_store_without_room_says_so_and_keeps_nothing_half_written(store, monkeypatch, number, words):
    class Full(io.RawIOBase):
        """A file that accepts its header and then fails at any write and at `close`."""

        def write(self, data):
            if len(data) != HEADER:
                raise OSError(number, os.strerror(number))
            return len(data)

        def close(self):
            raise OSError(number, os.strerror(number))

    opened = Path.open

    def opening(path, mode="r", *args, **kwargs):
        return Full() if path.suffix == ".npy" and "x" in mode else opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(BadInput, match=rf"lacks the numbers, and .*{words}.*option `store`"):
        store.open_or_build(KEY, Builder(), "the numbers")
    monkeypatch.undo()
    assert [path.name for path in store.root.iterdir()] == [".locks"]
    assert store.open_or_build(KEY, Builder(), "the numbers").arrays["values"].shape


@pytest.mark.parametrize("root", [".", "store", "../{here}/store"])
@pytest.mark.parametrize(
    ("file", "of_store"), [("part.npy", True), ("../store.csv", False), ("../store-2/a.csv", False)]
)
def test_a_file_that_may_not_be_read_is_not_one_of_the_store(tmp_path, monkeypatch, root, file, of_store):
    """Its name may begin like that of the store, which may be relative."""
    monkeypatch.chdir(tmp_path)
    store = Store(root.format(here=tmp_path.name))
    path = Path(os.path.normpath(store.root / file)) if not of_store else store.root / file

    def build(writer):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with pytest.raises(BadInput if of_store else PermissionError, match="may not write" if of_store else "denied"):
        store.open_or_build(KEY, build, "the numbers")


def test_a_file_that_grows_too_large_for_its_file_system(tmp_path):
    """Runs a process with a real limit on file size: the kernel refuses the write."""
    resource = pytest.importorskip("resource")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            try:
                Store(tmp_path).open_or_build(
                    KEY, lambda writer: writer.append("values", np.zeros(100_000)), "the numbers"
                )
            except BadInput as error:
                code = 0 if "takes no file of that size" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [".locks"]


@pytest.fixture
def read_only(tmp_path):
    """Return a function that runs work in a fork with the folder mounted read-only; it returns the error, or "fine"."""

    def run(folder, work):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            said = "unsupported"
            try:
                libc, place = ctypes.CDLL(None, use_errno=True), str(folder).encode()
                own_mounts, private, bind, again_read_only = 0x20000, 0x44000, 0x1000, 0x1021
                done = libc.unshare(own_mounts) == 0 and libc.mount(None, b"/", None, private, None) == 0
                done = done and libc.mount(place, place, None, bind, None) == 0
                if done and libc.mount(place, place, None, again_read_only, None) == 0:
                    try:
                        work()
                        said = "fine"
                    except Exception as error:
                        said = f"{type(error).__name__}: {error}"
            finally:
                os.write(writer, said.encode()[:4000])
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        if said == "unsupported":
            pytest.skip("this kernel lets nobody mount here")
        return said

    return run


@pytest.mark.skipif(not hasattr(os, "fork") or sys.platform != "linux", reason="mounts of Linux")
def test_a_read_only_mount_is_read_and_not_filled(tmp_path, read_only):
    folder = Store(tmp_path).open_or_build(KEY, Builder(), "the numbers").folder
    for name in ("values.npy", "flags.npy"):  # a copy has other times
        os.utime(folder / name, ns=(0, 0))
    large = Store(tmp_path, map_above=0, full_below=0)
    never = lambda writer: pytest.fail("built again")  # noqa: E731
    assert read_only(tmp_path, lambda: large.open_or_build(KEY, never, "the numbers")) == "fine"
    said = read_only(tmp_path, lambda: large.open_or_build({**KEY, "seed": 99}, Builder(), "other numbers"))
    assert said.startswith("BadInput: The store")
    assert "lacks other numbers, and it is mounted read-only" in said
