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

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "started": timestamp(),
        "folder": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": describe_kernels(),
        "gpus": gpus,
        "commit": _commit(),
        "packages": {package: _version(package) for package in _PACKAGES},
    }


def describe_kernels() -> str:
    """Which packages with kernels are installed, and what they compile with; needs no torch.

    Examples:
        >>> "GRAPHBENCH_KERNELS=torch" in describe_kernels() or "graphbench-kernels" in describe_kernels()
        True
    """
    if os.environ.get("GRAPHBENCH_KERNELS") == "torch":
        return "none, as GRAPHBENCH_KERNELS=torch says"
    packages = {f"{entry.dist.name} {entry.dist.version}" for entry in _kernel_entries() if entry.dist is not None}
    if not packages:
        return "none: everything is computed by torch (pip install graphbench-kernels)"
    compilers = (
        f"Numba {_version('numba')} for processors",
        f"Triton {_version('triton')} for graphics cards",
    )
    return f"{', '.join(sorted(packages))} ({', '.join(compilers)})"


def _kernel_entries() -> metadata.EntryPoints:
    return metadata.entry_points(group="graphbench.kernels")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


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
