"""Install the oldest versions that pyproject.toml allows, and run the suite on them.

    python release/lower_bounds.py                         with PyTorch's CPU wheel
    python release/lower_bounds.py --torch-backend pypi    with the wheel of the package index (on Linux with CUDA)
    python release/lower_bounds.py --folder lowest         keeps the environment
    python release/lower_bounds.py -- tests/nn             a different part of the suite

Without a path the part below runs: everything that computes, and hostile checkpoints and folders. The omitted tests use
processes, signals and browsers, and depend on the tools of the environment rather than on its oldest libraries.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from resolve import ROOT, SYSTEM, UV, requirements, resolve

#: The part of the suite that computes.
PART = (
    "tests/benchmarks", "tests/contracts", "tests/data", "tests/diagnostics", "tests/encodings",
    "tests/nn", "tests/training/tasks", "tests/runs/test_checkpoints.py", "tests/training/test_hyperparameters.py",
    "tests/training/test_module.py", "tests/training/test_optim.py", "tests/cli/test_every_way_in.py",
    "tests/cli/test_sent_runs.py", "plugins",
)  # fmt: skip
#: Packages that the suite needs in addition to the project; their versions do not matter here.
TOOLS = ("hatchling", "hypothesis", "mpmath", "packaging", "pytest", "pytest-xdist")


def backend(name: str) -> tuple[str, ...]:
    """Return the options that choose uv's source of PyTorch.

    Args:
        name: `pypi` for the package index, else one of uv's backends, such as `cpu` or `cu128`.
    """
    return () if name == "pypi" else ("--torch-backend", name)


def install(folder: Path, python: str, torch_backend: str) -> Path:
    """Create an environment with the oldest versions, the tools of the tests and this clone; return its Python.

    Raises:
        subprocess.CalledProcessError: something cannot be resolved or downloaded.
    """
    subprocess.run([sys.executable, "-m", "uv", "venv", "--quiet", "--clear", "--python", python, folder], check=True)
    environment = folder / "bin" / "python"
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    version = subprocess.run([environment, "-c", ask], check=True, text=True, capture_output=True).stdout.strip()
    asked, oldest = folder / "asked.txt", folder / "oldest.txt"
    asked.write_text(requirements(), encoding="utf-8")
    found = resolve(asked, version, "--resolution", "lowest-direct", *backend(torch_backend))
    oldest.write_text("\n".join(found), encoding="utf-8")
    pip = [*UV, "install", "--quiet", *SYSTEM, "--python", str(environment)]
    constraints = ["--constraint", str(oldest)]
    subprocess.run([*pip, *backend(torch_backend), *constraints, "--requirement", str(oldest), *TOOLS], check=True)
    projects = [str(ROOT), *(str(path.parent) for path in sorted(ROOT.glob("plugins/*/pyproject.toml")))]
    subprocess.run([*pip, "--no-deps", *(word for project in projects for word in ("--editable", project))], check=True)
    subprocess.run([*UV, "check", "--python", str(environment)], check=True)
    return environment


def main() -> int:
    """Install and test; return pytest's exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter or version (default: this one)")
    parser.add_argument("--torch-backend", default="cpu", help="cpu (default), a CUDA version such as cu128, or pypi")
    parser.add_argument("--folder", type=Path, help="create and keep the environment here; by default temporary")
    parser.add_argument("tests", nargs="*", default=PART, help="tests for pytest to run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary) / "lowest").absolute()
        try:
            python = install(folder, options.python, options.torch_backend)
        except subprocess.CalledProcessError as error:
            print(f"release/lower_bounds.py: {error}\n{error.stderr or ''}", file=sys.stderr)
            return 1
        print((folder / "oldest.txt").read_text(encoding="utf-8"), flush=True)
        environment = {"OMP_NUM_THREADS": "1", **os.environ}
        command = [python, "-m", "pytest", "-q", "-m", "not slow", "-n", "2", "--dist", "worksteal", *options.tests]
        return subprocess.run([str(word) for word in command], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
