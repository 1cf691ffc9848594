"""Describe versions and hardware of a run, so that results state how they were obtained."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import url2pathname

_PACKAGES = (
    "graphbench-lightning", "torch", "pytorch-lightning", "torch-geometric", "torchmetrics", "rdkit", "ogb", "numpy",
    "numba",
)  # fmt: skip
#: Where graphbench is if it is installed with -e.
_CHECKOUT = Path(__file__).parents[2]


def timestamp() -> str:
    """Return the current time, with the time zone, as ISO 8601."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def describe_environment() -> dict[str, Any]:
    """Describe versions and hardware, as in `environment.json` of a run."""
    import torch

    return {
        "started": timestamp(),
        "folder": str(Path.cwd()),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "kernels": describe_kernels(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        + ["Apple GPU"] * torch.backends.mps.is_available(),
        "commit": _commit(_CHECKOUT),
        "packages": {package: _version(package) for package in _PACKAGES} | _plugins(),
    }


def describe_kernels() -> str:
    """Name the installed packages of kernels and their compilers; needs no torch.

    Examples:
        >>> "GRAPHBENCH_KERNELS=torch" in describe_kernels() or "graphbench-kernels" in describe_kernels()
        True
    """
    if os.environ.get("GRAPHBENCH_KERNELS") == "torch":
        return "none, as GRAPHBENCH_KERNELS=torch says"
    entries = metadata.entry_points(group="graphbench.kernels")
    packages = {f"{entry.dist.name} {entry.dist.version}" for entry in entries if entry.dist is not None}
    if not packages:
        return "none: everything is computed by torch (pip install graphbench-kernels)"
    compilers = f"Numba {_version('numba')} for processors, Triton {_version('triton')} for graphics cards"
    return f"{', '.join(sorted(packages))} ({compilers})"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _plugins() -> dict[str, str]:
    """Return the versions of installed plug-ins, with the commit of those in a separate checkout."""
    versions: dict[str, str] = {}
    for distribution in metadata.distributions():
        # Few packages have entry points; reading a name parses all of a package's metadata, including its description.
        if not any(entry.group.startswith("graphbench.") for entry in distribution.entry_points):
            continue
        if (name := distribution.name) not in {*_PACKAGES, *versions}:
            versions[name] = _described(distribution)
    return dict(sorted(versions.items()))


def _described(distribution: metadata.Distribution) -> str:
    # pip records where a package installed with -e is (PEP 610).
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not origin.get("dir_info", {}).get("editable"):
        return distribution.version
    folder = Path(url2pathname(urlparse(origin["url"]).path))
    root = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), None)
    commit = "" if root is None or root == _CHECKOUT else _commit(root)
    return f"{distribution.version} ({commit})" if commit else distribution.version


def _commit(root: Path) -> str:
    """Return the commit of a checkout, with `-dirty` if files differ from it; "" if it is not a checkout."""
    if not (root / ".git").exists():  # installed, perhaps inside another project's repository
        return ""
    described = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
    command = ["git", "--no-optional-locks", "-C", str(root), *described]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or another user's checkout
        return ""


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")  # Linux, where `platform.processor` is only x86_64
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else ()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
