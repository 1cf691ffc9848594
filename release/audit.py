"""Look up known vulnerabilities of the newest and the oldest versions that pyproject.toml allows.

    python release/audit.py

`pip-audit` queries the advisory database of the Python Package Index; nothing is installed. A finding in an oldest
version shows which lower bound of pyproject.toml to raise, one in a newest version which package to replace; a package
unknown to the database counts as a finding.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from resolve import PROJECTS, WAYS, pythons, requirements, resolve

#: pip-audit in a separate environment, on versions that are already pinned.
AUDIT = (
    sys.executable,
    "-m",
    "uv",
    "tool",
    "run",
    "pip-audit",
    "--strict",
    "--no-deps",
    "--disable-pip",
    "--requirement",
)


def audit(folder: Path, way: str, python: str) -> int:
    """Resolve one way, print known vulnerabilities of these versions, and return pip-audit's exit code.

    Args:
        folder: folder for requirements files.
        way: "newest" or "oldest", see `resolve.WAYS`.
        python: version of Python to resolve for.

    Raises:
        subprocess.CalledProcessError: there is no solution; its stderr says why.
    """
    asked, pinned = folder / "asked.txt", folder / f"{way}.txt"
    asked.write_text(requirements(), encoding="utf-8")
    pinned.write_text("\n".join(resolve(asked, python, *WAYS[way])), encoding="utf-8")
    print(f"{way} versions for Python {python}:", flush=True)
    return subprocess.run([*AUDIT, str(pinned)]).returncode


def main() -> int:
    """Audit the newest versions for the newest Python, the oldest for the oldest; return 1 for any finding."""
    claimed = pythons(PROJECTS[0].read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        codes = [audit(Path(folder), way, python) for way, python in (("newest", claimed[-1]), ("oldest", claimed[0]))]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
