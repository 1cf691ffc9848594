"""Look up known vulnerabilities of the newest and of the oldest versions that pyproject.toml allows.

    python release/audit.py

`pip-audit` asks the advisory database of the Python Package Index; nothing is installed. A finding in an oldest version
says which floor of pyproject.toml to raise, one in a newest version which package to replace; a package that the
database does not know counts as one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from resolve import PROJECTS, WAYS, pythons, requirements, resolve

#: pip-audit in an environment of its own, on versions that are pinned already.
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
    """Resolve one way, and print what is known of these versions; pip-audit's exit code.

    Args:
        folder: for files of requirements.
        way: "newest" or "oldest", see `resolve.WAYS`.
        python: version of Python to resolve for.

    Raises:
        subprocess.CalledProcessError: nothing fits; its stderr says why.
    """
    asked, pinned = folder / "asked.txt", folder / f"{way}.txt"
    asked.write_text(requirements(), encoding="utf-8")
    pinned.write_text("\n".join(resolve(asked, python, *WAYS[way])), encoding="utf-8")
    print(f"{way} versions for Python {python}:", flush=True)
    return subprocess.run([*AUDIT, str(pinned)]).returncode


def main() -> int:
    """Audit the newest versions for the newest Python, the oldest for the oldest; 1 where something is known."""
    claimed = pythons(PROJECTS[0].read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        codes = [audit(Path(folder), way, python) for way, python in (("newest", claimed[-1]), ("oldest", claimed[0]))]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
