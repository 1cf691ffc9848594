"""Resolve the project's requirements for every supported Python, newest and oldest, without installing anything.

    python release/resolve.py

Prints three results for each version of Python: what pip would install, what `constraints.txt` pins with the tools of
`make env` and `make speed`, and the oldest versions that pyproject.toml allows. Only wheels count: no user should need
a compiler.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECTS = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
UV = (sys.executable, "-m", "uv", "pip")
#: Certificates of the system, which a company's proxy may require.
SYSTEM = ("--native-tls",)
#: The extras of `make env` and of `make speed`.
EXTRAS = ("cluster", "dev", "docs", "explain", "hub", "images", "mnist", "onnx", "speed", "tune", "zinc")
WAYS: dict[str, tuple[str, ...]] = {
    "newest": (),
    "constraints": ("--constraint", "constraints.txt"),
    "oldest": ("--resolution", "lowest-direct"),
}


def pythons(project: str) -> list[str]:
    """Return the versions of Python in the classifiers of a pyproject.toml, oldest first.

    Args:
        project: its text.
    """
    found = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', project)
    return sorted(found, key=lambda version: int(version.partition(".")[2]))


def requirements() -> str:
    """Return third-party requirements of core and plug-ins, and data packages of the image, one per line."""
    return _output([sys.executable, "docker/requirements.py", *PROJECTS])


def resolve(source: Path, python: str, *options: str) -> list[str]:
    """Return pinned requirements, one per line.

    Args:
        source: a file of requirements or a pyproject.toml.
        python: version of Python to resolve for.
        options: further options for `uv pip compile`.

    Raises:
        subprocess.CalledProcessError: there is no solution; its stderr says why.
    """
    quiet = ("--quiet", "--no-header", "--no-annotate", "--only-binary", ":all:")
    return _output([*UV, "compile", *SYSTEM, *quiet, "--python-version", python, *options, source]).splitlines()


def _output(command: list[str | Path]) -> str:
    return subprocess.run([str(word) for word in command], cwd=ROOT, check=True, text=True, capture_output=True).stdout


def main() -> int:
    """Print the results; return 1 if there is no solution."""
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "requirements.txt"
        source.write_text(requirements(), encoding="utf-8")
        for python in pythons(PROJECTS[0].read_text(encoding="utf-8")):
            for way, options in WAYS.items():
                pinned = way == "constraints"
                extras = [word for extra in EXTRAS for word in ("--extra", extra)] if pinned else []
                try:
                    found = resolve(PROJECTS[0] if pinned else source, python, *options, *extras)
                except subprocess.CalledProcessError as error:
                    failures += 1
                    print(f"Python {python}, {way}: nothing fits\n{error.stderr}", flush=True)
                else:
                    named = [line for line in found if line.startswith(("torch==", "numpy==", "rdkit=="))]
                    print(f"Python {python}, {way}: {len(found)} packages, {', '.join(named)}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
