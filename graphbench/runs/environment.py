"""With what a run was made: versions and hardware, for results that say how they were obtained."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "rdkit", "ogb", "numpy",
    "numba",
)  # fmt: skip


def timestamp() -> str:
    """Now, with the time zone, as ISO 8601."""
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
        "started": timestamp(),
        "folder": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": os.environ.get("GRAPHBENCH_KERNELS", "numba"),
        "gpus": gpus,
        "commit": _commit(),
        "packages": versions,
    }


def _commit() -> str:
    """Commit of the checkout that graphbench runs from, with `-dirty` where files differ from it; empty without one."""
    root = Path(__file__).parents[2]
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
