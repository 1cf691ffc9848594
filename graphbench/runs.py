"""The folder of a run: what lies where, and the small JSON records in it.

config.yaml  metrics.csv  events.out.tfevents.*  checkpoints/{best,last}.ckpt
diagnostics/*.csv  results.json  environment.json  report.html
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from graphbench.errors import BadInput

_PACKAGES = (
    "graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "rdkit", "ogb", "numpy",
)  # fmt: skip

_FOLDER_VARIABLE = "GRAPHBENCH_RUN"


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old text or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


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
        """A new folder under `runs/`, named after what is run and when.

        The name is the same on every rank: processes that Lightning starts for further devices inherit it through the
        environment.
        """
        if "LOCAL_RANK" not in os.environ or _FOLDER_VARIABLE not in os.environ:
            stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
            os.environ[_FOLDER_VARIABLE] = f"runs/{benchmark}-{architecture}-{stamp}".lower()
        return cls(Path(os.environ[_FOLDER_VARIABLE]))

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """Everything logged, one row a step or epoch."""
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

    def read_results(self) -> dict[str, Any]:
        """Scores recorded so far; empty before the first."""
        if not self.results.is_file():
            return {}
        loaded: dict[str, Any] = json.loads(self.results.read_text(encoding="utf-8"))
        return loaded

    def write_results(self, values: Mapping[str, Any]) -> None:
        """Replace `results.json`."""
        write_text(self.results, json.dumps(dict(values), indent=2) + "\n")

    def update_results(self, values: Mapping[str, Any]) -> None:
        """Add or replace top-level entries of `results.json`."""
        self.write_results(self.read_results() | dict(values))


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
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "gpus": gpus,
        "packages": versions,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
