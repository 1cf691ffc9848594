"""Print the third-party requirements of pyproject.toml files, one per line."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomllib

#: Optional dependencies that do not belong in the image: tools for working on the project, libraries that it is timed
#: against, what no command uses, and data packages other than those that its offline benchmarks need.
LEFT_OUT = ("crepes", "dev", "docs", "peptides", "qm9", "satellite", "speed", "trackers")


def third_party(projects: Iterable[dict[str, Any]]) -> list[str]:
    """Return the sorted requirements of some projects, without those that one of them fulfils.

    Args:
        projects: the `[project]` tables.
    """
    projects = list(projects)
    ours = {_normal(project["name"]) for project in projects}
    found: set[str] = set()
    for project in projects:
        found.update(project.get("dependencies", ()))
        for extra, requirements in project.get("optional-dependencies", {}).items():
            if extra not in LEFT_OUT:
                found.update(requirements)
    return sorted(requirement for requirement in found if _normal(requirement) not in ours)


def _normal(requirement: str) -> str:
    """Return the name that a requirement begins with, normalised according to PEP 503."""
    name = re.match(r"[A-Za-z0-9._-]*", requirement)
    assert name is not None  # every part of the pattern may be empty
    return re.sub(r"[-_.]+", "-", name.group()).lower()


if __name__ == "__main__":
    tables = [tomllib.loads(Path(file).read_text(encoding="utf-8"))["project"] for file in sys.argv[1:]]
    sys.stdout.writelines(f"{requirement}\n" for requirement in third_party(tables))
