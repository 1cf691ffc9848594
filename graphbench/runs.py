"""The folder of a run: what lies where, and the small JSON records in it.

config.yaml  metrics.csv  events.out.tfevents.*  checkpoints/{best,last,previous}.ckpt
diagnostics/*.csv  results.json  environment.json  data.json  training.json  report.html

Every file is written beside its place, brought to the disk and renamed, so that a kill at any moment leaves the old
file or the new one. A lock (`.lock`, `.holder`) lets one process write.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from filelock import BaseFileLock, FileLock, Timeout

from graphbench.errors import BadInput, CorruptData

log = logging.getLogger(__name__)

_PACKAGES = (
    "graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "rdkit", "ogb", "numpy",
)  # fmt: skip

_FOLDER_VARIABLE = "GRAPHBENCH_RUN"

#: Top-level keys of `results.json` that version 0.1.0 called otherwise.
_OLD_KEYS = {"rivals": "baselines"}


@contextlib.contextmanager
def writing(path: Path, keep: Path | None = None) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well; until then and after an error the old one stays.

    It is made in the same folder, so that the last step is a rename on one file system, and it is on the disk before
    that step, so that a power cut leaves a whole file as well.

    Args:
        path: what to replace.
        keep: where the old file goes when the new one is whole.

    Raises:
        OSError: the disk is full, or the folder cannot be written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        if keep is not None and path.is_file():
            _keep(path, keep)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never half of it."""
    with writing(path) as file:
        file.write(text.encode("utf-8"))


def _keep(path: Path, kept: Path) -> None:
    """Give a file a second name, so that it is never without its first."""
    beside = kept.with_name(f".{kept.name}-{os.getpid()}")
    beside.unlink(missing_ok=True)
    try:
        beside.hardlink_to(path)
    except OSError:  # a file system without hard links: for a moment the file has only its new name
        path.replace(kept)
        return
    beside.replace(kept)
    beside.unlink(missing_ok=True)  # a rename onto another name of the same file does nothing


def _sync_folder(folder: Path) -> None:
    """Bring a rename to the disk, where the system allows it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@dataclass(frozen=True)
class RunFolder:
    """Paths of a run.

    Args:
        path: the folder.
    """

    path: Path

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of an earlier run.

        Raises:
            BadInput: there is no run in it.
        """
        run = cls(Path(path))
        if not run.config.is_file():
            raise BadInput(
                f"{path} is not the folder of a run: it has no config.yaml. Give the folder that `graphbench fit` "
                "named in its first lines."
            )
        return run

    @classmethod
    def fresh(cls, benchmark: str, architecture: str) -> RunFolder:
        """A new folder under `runs/`, named after what is run and when; it is made, so that nobody else gets it.

        The name is the same on every rank: processes that Lightning starts for further devices inherit it through the
        environment.

        Raises:
            BadInput: another program started the processes, which could not agree on a name.
        """
        if "LOCAL_RANK" in os.environ and _FOLDER_VARIABLE in os.environ:
            return cls(Path(os.environ[_FOLDER_VARIABLE]))
        if int(os.environ.get("WORLD_SIZE", 1)) > 1 and "LOCAL_RANK" in os.environ:
            raise BadInput("Name the folder with --run: several processes could not agree on one made up by the clock.")
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        first = path = Path(f"runs/{benchmark}-{architecture}-{stamp}".lower())
        number = 1
        while True:
            try:
                path.mkdir(parents=True)
                break
            except FileExistsError:  # started in the same second
                number += 1
                path = first.with_name(f"{first.name}-{number}")
        os.environ[_FOLDER_VARIABLE] = str(path)
        return cls(path)

    @classmethod
    def temporary(cls) -> RunFolder:
        """A folder for a run that leaves nothing; its first process removes it. The same on every rank."""
        if "LOCAL_RANK" not in os.environ or _FOLDER_VARIABLE not in os.environ:
            os.environ[_FOLDER_VARIABLE] = tempfile.mkdtemp(prefix="graphbench-")
        return cls(Path(os.environ[_FOLDER_VARIABLE]))

    @contextlib.contextmanager
    def held(self, new: bool = False) -> Iterator[None]:
        """Let nobody else write here until the block ends; the lock ends with the process, however that ends.

        The folder is made where it is missing.

        Args:
            new: the folder was made for this run; like one made here it is removed where the block left nothing in it
                to continue or to read.

        Raises:
            BadInput: another process writes here, which is named; or nobody can.
        """
        new = new or not self.path.exists()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = self._lock()
        except OSError as error:
            raise BadInput(f"The run folder {self.path} cannot be written to: {error.strerror}.") from error
        try:
            self._sweep()
            own = {"host": socket.gethostname(), "process": os.getpid(), "since": _now()}
            write_text(self._holder, json.dumps(own) + "\n")
            yield
        finally:
            self._holder.unlink(missing_ok=True)
            if new and not self.is_begun and not self.metrics.is_file():
                shutil.rmtree(self.path, ignore_errors=True)
            lock.release()

    @property
    def _holder(self) -> Path:
        return self.path / ".holder"

    def _lock(self) -> BaseFileLock:
        lock = FileLock(self.path / ".lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            name, alive = _described(self._holder)
            try:  # the workers of a killed process hold its lock until they notice, which takes seconds
                lock.acquire(timeout=0 if alive else 15)
            except Timeout:
                raise BadInput(f"{self.path} is in use: {name} writes to it. Wait for it or end it.") from None
        except NotImplementedError:
            log.warning("%s lies on a file system without locks: see that nobody else writes to it.", self.path)
        return lock

    def _sweep(self) -> None:
        """Remove what a killed process left half written."""
        for folder in (self.path, self.checkpoints):
            for name in ("config.yaml", "metrics.csv", "*.json", "report.html", "*.ckpt"):
                for torn in folder.glob(f".{name}-*"):
                    torn.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove what a run left that stopped before its first checkpoint; other files stay."""
        written = ("metrics.csv", "environment.json", "data.json", "training.json", "results.json", "report.html")
        for pattern in (*written, "events.out.tfevents.*"):
            for path in self.path.glob(pattern):
                path.unlink()
        shutil.rmtree(self.diagnostics, ignore_errors=True)

    @property
    def is_begun(self) -> bool:
        """Whether there is something to continue or to read: a checkpoint or scores."""
        return any(path.is_file() for path in (self.last, self.previous, self.best, self.results))

    @property
    def resumable(self) -> Path | None:
        """The checkpoint to go on from: the last one, or the one before where the last is gone; None without any."""
        return next((path for path in (self.last, self.previous) if path.is_file()), None)

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """Everything logged, one row per step or epoch."""
        return self.path / "metrics.csv"

    @property
    def checkpoints(self) -> Path:
        """Folder of `best.ckpt` and `last.ckpt`."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """Weights with the best validation metric."""
        return self.checkpoints / "best.ckpt"

    @property
    def last(self) -> Path:
        """Everything needed to go on."""
        return self.checkpoints / "last.ckpt"

    @property
    def previous(self) -> Path:
        """The checkpoint before the last, for the case that the last is damaged."""
        return self.checkpoints / "previous.ckpt"

    @property
    def diagnostics(self) -> Path:
        """Folder of the diagnostics' tables."""
        return self.path / "diagnostics"

    @property
    def report(self) -> Path:
        """The page that shows this run."""
        return self.path / "report.html"

    @property
    def results(self) -> Path:
        """Scores: `results.json`."""
        return self.path / "results.json"

    @property
    def environment(self) -> Path:
        """Hardware and software of the run: `environment.json`."""
        return self.path / "environment.json"

    @property
    def data(self) -> Path:
        """What the run was trained on: `data.json`."""
        return self.path / "data.json"

    @property
    def training(self) -> Path:
        """Sizes and feature values of the training graphs: `training.json`."""
        return self.path / "training.json"

    def read_results(self) -> dict[str, Any]:
        """Scores recorded so far; empty before the first.

        Raises:
            CorruptData: the file is not what `write_results` wrote.
        """
        if not self.results.is_file():
            return {}
        try:
            loaded = json.loads(self.results.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CorruptData(f"{self.results} cannot be read: {error}. Remove it to have it written anew.") from error
        if not isinstance(loaded, dict):
            raise CorruptData(f"{self.results} holds no JSON object. Remove it to have it written anew.")
        return with_present_keys(loaded)

    def write_results(self, values: Mapping[str, Any]) -> None:
        """Replace `results.json`; JSON has no word for a score that is not finite, so it becomes null."""
        write_text(self.results, json.dumps(_finite(dict(values)), indent=2, allow_nan=False) + "\n")

    def update_results(self, values: Mapping[str, Any]) -> None:
        """Add or replace top-level entries of `results.json`."""
        self.write_results(self.read_results() | dict(values))


def with_present_keys(results: Mapping[str, Any]) -> dict[str, Any]:
    """Content of a `results.json` by the names that its keys have today, whichever version wrote it."""
    return {_OLD_KEYS.get(key, key): value for key, value in results.items()}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _described(holder: Path) -> tuple[str, bool]:
    """Who holds a lock, in words, and whether that process may be alive."""
    try:
        said = json.loads(holder.read_text(encoding="utf-8"))
        words = f"process {said['process']} on {said['host']} (since {said['since']})"
        if said["host"] == socket.gethostname():
            os.kill(int(said["process"]), 0)
    except ProcessLookupError:
        return words, False
    except (OSError, ValueError, KeyError, TypeError):  # no holder is named, or it belongs to somebody else
        return "another process", True
    return words, True


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def describe_environment() -> dict[str, Any]:
    """Versions and hardware, for results that say how they were obtained."""
    import torch

    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "started": _now(),
        "folder": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": gpus,
        "commit": _commit(),
        "packages": versions,
    }


def _commit() -> str:
    """Commit of the checkout that graphbench runs from, with `-dirty` where files differ from it; empty without one."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():  # installed, perhaps inside of a repository of somebody else
        return ""
    described = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    command = ["git", "--no-optional-locks", "-C", str(root), *described]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or a checkout of another user
        return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
