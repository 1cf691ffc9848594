"""Pictures that diagnostics left in a run folder, embedded in the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup, escape

from graphbench.report.loading import Run
from graphbench.report.sections import Panel, Section

#: Larger pictures are named instead: base64 adds a third, and a page must open on a phone.
_LARGEST_BYTES = 2_000_000
_KINDS = {".png": ("image/png", b"\x89PNG\r\n\x1a\n"), ".svg": ("image/svg+xml", b"<svg")}


def picture_section(runs: Sequence[Run], name: str) -> Section | None:
    """The pictures of all runs, those of one name side by side; None where there are none."""
    intro = "Pictures that the runs' diagnostics drew, under their file names."
    section = Section(name, "Pictures", intro, wide=True)
    found = [(path.relative_to(run.folder.path).as_posix(), run) for run in runs for path in run.pictures]
    for place, run in sorted(found, key=lambda pair: pair[0]):
        path = run.folder.path / place
        fault = _fault(path)
        if fault:
            section.notes.append(f"{run.name}: {place} is not shown: {fault}.")
        else:
            section.panels.append(Panel(_embedded(path, run), f"{run.name}, seed {run.seed}: {path.name}"))
    return section if section.panels or section.notes else None


def _fault(path: Path) -> str:
    """Why a picture cannot be embedded; "" if it can."""
    mark = _KINDS[path.suffix][1]
    size = path.stat().st_size
    if size > _LARGEST_BYTES:
        return f"it has {size / 1e6:.1f} MB, more than the {_LARGEST_BYTES / 1e6:.0f} MB that are embedded"
    with path.open("rb") as file:
        start = file.read(4096)
    whole = start.startswith(mark) if path.suffix == ".png" else mark in start
    return "" if whole else f"it is no {path.suffix[1:].upper()} file"


def _embedded(path: Path, run: Run) -> Markup:
    """An IMG element; a browser runs no script and loads nothing of a picture in one."""
    kind = _KINDS[path.suffix][0]
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    words = path.stem.replace("_", " ").replace("-", " ")
    return Markup('<img src="data:{};base64,{}" alt="{}">').format(
        Markup(kind), Markup(data), escape(f"{words} of {run.name}")
    )
