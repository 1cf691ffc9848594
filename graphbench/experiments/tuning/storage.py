"""Open the storage of a study: Optuna's journal in the study's folder, or a database.

Optuna's FAQ advises against SQLite on NFS. The journal is a file to which every process appends whole lines under a
separate lock file, so that processes on several machines need only the folder.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphbench.data.files.foreign import load_json
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, CorruptData

log = logging.getLogger(__name__)

JOURNAL, RECORD, SQLITE = "study.journal", "storage.json", "study.db"
#: Name of the study in a journal, and in databases of earlier versions.
_NAME = "graphbench"


class FolderLock:
    """A lock for processes on several machines: the file `PATH.lock`, which only one can create.

    The next process removes a lock that is not released for 30 seconds, as after a kill. Optuna's lock by symbolic link
    would be looked up under the path of the machine that created it.
    """

    def __init__(self, path: Path) -> None:
        from optuna.storages.journal import JournalFileOpenLock

        self.file = JournalFileOpenLock(str(path.absolute()))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock; do not nest."""
        self.file.acquire()
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # removed by another process while this one was suspended
                self.file.release()


def open_storage(folder: Path, url: str | None) -> tuple[Any, str]:
    """Open Optuna's storage of the study in a folder, and return it with the study's name there.

    `url` is a database URL for SQLAlchemy; None for the journal in the folder. The caller must hold the folder's lock.
    """
    if url is None and (folder / SQLITE).is_file() and not (folder / RECORD).is_file():
        raise BadInput(
            f"--run {folder}: {SQLITE} is a study of an earlier version. Continue with --storage "
            f"sqlite:///{(folder / SQLITE).absolute()}, on one machine, or name another folder."
        )
    place = JOURNAL if url is None else _without_password(url)
    name = _recorded_name(folder / RECORD, place)
    storage = _journal(folder / JOURNAL) if url is None else _database(url)
    if name is None:  # a database may contain several studies
        is_alone = url is None or (folder / SQLITE).is_file()
        name = _NAME if is_alone else f"{_NAME}-{uuid.uuid4().hex[:12]}"
        write_text(folder / RECORD, json.dumps({"storage": place, "study": name}))
    return storage, name


def _recorded_name(path: Path, place: str) -> str | None:
    """Return the name of the folder's study; None before it is recorded."""
    if not path.is_file():
        return None
    try:
        record = load_json(path)
        before, name = str(record["storage"]), str(record["study"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptData(f"{path} does not say where the study is ({error}).") from error
    if before != place:
        shown = "without --storage" if before == JOURNAL else f"with --storage {before}"
        raise BadInput(f"The study in {path.parent} was started {shown}: continue that way, or name another --run.")
    return name


def _journal(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    lock = FolderLock(path)
    with lock.held():
        _remove_torn_line(path)
    try:
        return JournalStorage(JournalFileBackend(str(path), lock_obj=lock.file))
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        raise CorruptData(f"{path} cannot be read as a study: {type(error).__name__}: {error}") from error


def _remove_torn_line(path: Path) -> None:
    """Remove an incomplete last line, as left by a full disk or a power cut: it would corrupt the next one."""
    content = path.read_bytes() if path.is_file() else b""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        log.warning("%s: removing its incomplete last entry.", path)
        with path.open("rb+") as file:
            file.truncate(whole)


def _database(url: str) -> Any:
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import SQLAlchemyError

    # SQLite gives up on another process's lock after 5 seconds; servers close connections that are idle between two
    # trials.
    options = {"connect_args": {"timeout": 60}} if url.startswith("sqlite") else {"pool_pre_ping": True}
    try:
        return RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, ImportError, RuntimeError, ValueError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"--storage {_without_password(url)}: {first}") from error


def _without_password(url: str) -> str:
    """Return a URL that may be shown and written."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError) as error:
        raise BadInput(  # without the value, which may hold a password
            "--storage must be the URL of a database, such as postgresql://user:password@host/name."
        ) from error
