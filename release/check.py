"""Build the files to upload, install them in an environment without the clone, and train with them.

    python release/check.py           other packages are those of this environment, and nothing is downloaded
    python release/check.py --fresh   they come from the package index (on Linux with PyTorch's CUDA libraries)

Exits with code 1 and the reason if a step fails.
"""

from __future__ import annotations

import argparse
import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Files of a package other than Python sources: types, templates and notices.
KINDS = (".py", ".pyi", ".typed", ".html", ".css", ".js", ".md", ".txt", ".json", ".yaml", ".toml", ".tmpl")
#: Links that a page on the index has in addition to its text.
LINKS = {"Documentation", "Repository", "Changelog", "Issues"}
#: A short form of the quickstart: a few steps of one epoch.
QUICKSTART = ("fit", "--config", "quickstart", "--run", "run", "--trainer.max_epochs", "1")
LIMITS = ("--trainer.limit_train_batches", "5", "--trainer.accelerator", "cpu")


class Failed(Exception):
    """A step of the check failed; the message says which and why."""


def projects() -> list[Path]:
    """Return the folders that become distributions: the core and every plug-in."""
    return [ROOT, *sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))]


def package_of(project: Path) -> Path:
    """Return the package that a project installs."""
    return ROOT / "graphbench" if project == ROOT else next((project / "src").glob("graphbench_*"))


def expected_files(project: Path) -> set[str]:
    """Return the names that a wheel must contain: sources, accompanying files, and every configuration."""
    package = package_of(project)
    sources = {path for path in package.rglob("*") if path.suffix in KINDS and "__pycache__" not in path.parts}
    configurations = (project / "configs").rglob("*.yaml")
    return {path.relative_to(package.parent).as_posix() for path in sources} | {
        f"{package.name}/configs/{path.relative_to(project / 'configs').as_posix()}" for path in configurations
    }


def wheel_faults(wheel: Path, project: Path) -> list[str]:
    """List what a wheel lacks or should not contain; empty for a good one.

    Args:
        wheel: the file.
        project: the folder it was built from.
    """
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        found = [f"lacks {name}" for name in sorted(expected_files(project) - names)]
        package = package_of(project).name
        stray = [name for name in names if not name.startswith((f"{package}/", f"{wheel.name.split('-')[0]}-"))]
        found += [f"holds {name}" for name in sorted({*stray, *(name for name in names if "__pycache__" in name)})]
        licences = [name for name in names if name.endswith(".dist-info/licenses/LICENSE")]
        if [archive.read(name) for name in licences] != [(ROOT / "LICENSE").read_bytes()]:
            found.append("lacks the text of the licence")
        about = [archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_string(about[0])
    wanted = {"License-Expression": "Apache-2.0", "Requires-Python": ">=3.10"}
    found += [f"says {key}: {metadata[key]}" for key, value in wanted.items() if metadata[key] != value]
    links = {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])}
    found += [f"has no link to its {name}" for name in sorted(LINKS - links)]
    found += [] if metadata["Author"] else ["names no author"]
    page = str(metadata.get_payload())
    found += [f"links to {link}, which is not on the index" for link in re.findall(r"\]\((?!https?:|#)([^)\s]+)", page)]
    return found if page.strip() else [*found, "has no description for its page on the index"]


def sdist_faults(sdist: Path, project: Path) -> list[str]:
    """List licence, sources and configurations missing from a source distribution, and files of other projects."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = package_of(project)
    wanted = {"LICENSE", "README.md", "pyproject.toml"}
    wanted |= {path.relative_to(project).as_posix() for path in package.rglob("*.py")}
    wanted |= {path.relative_to(project).as_posix() for path in (project / "configs").rglob("*.yaml")}
    others = {name.partition("/")[0] for name in names} & {"plugins", "tests", "docs", "speed", "experiments"}
    strange = sorted(others) if project == ROOT else []
    return [f"lacks {name}" for name in sorted(wanted - names)] + [f"holds {name}/" for name in strange]


def run(command: Sequence[str | Path], **options: object) -> str:
    """Return the output of a command; raise `Failed` with its last lines if it fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        words = " ".join(str(word) for word in command)
        raise Failed(f"exit code {done.returncode}: {words}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return str(done.stdout)


def build(project: Path, folder: Path) -> tuple[Path, Path]:
    """Build the source distribution of a project, and the wheel from it rather than from the clone."""
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, project])
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def build_all(folder: Path) -> list[Path]:
    """Build every project, check the files, and return them."""
    files = []
    for number, project in enumerate(projects()):
        sdist, wheel = build(project, folder / str(number))
        faults = [f"{wheel.name} {fault}" for fault in wheel_faults(wheel, project)]
        faults += [f"{sdist.name} {fault}" for fault in sdist_faults(sdist, project)]
        if faults:
            raise Failed("\n".join(faults))
        files += [sdist, wheel]
    return files


def lend(source: Path, target: Path) -> None:
    """Link the packages of one environment into another, except those of this project.

    An environment with the first one as an additional folder would find the clone, which is installed in it.
    """
    for entry in source.iterdir():
        if "graphbench" not in entry.name and entry.name != "__pycache__":
            (target / entry.name).symlink_to(entry)


def make_environment(folder: Path, wheels: Iterable[Path], fresh: bool) -> Path:
    """Create an environment with the core and, by its extra `all`, the plug-ins; return its folder of programs."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    source = ("--constraint", ROOT / "constraints.txt") if fresh else ("--no-index",)
    if not fresh:
        lend(Path(sysconfig.get_path("purelib")), site)
    links = [word for wheel in wheels for word in ("--find-links", wheel.parent)]
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python]
    run([*pip, "install", "--quiet", *source, *links, "graphbench-lightning[all]"])
    return python.parent


def use(programs: Path, folder: Path) -> str:
    """Train and test in an empty folder; return the output of `graphbench test`."""
    kept = ("PATH", "LANG", "TMPDIR", "SSL_CERT_FILE")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"HOME": str(folder), "OMP_NUM_THREADS": "1"}

    def graphbench(*words: str) -> str:
        return run([programs / "graphbench", *words], cwd=folder, env=environment)

    place = "import graphbench; print(graphbench.__file__)"
    imported = Path(run([programs / "python", "-c", place], cwd=folder, env=environment).strip())
    if programs.parent not in imported.parents:
        raise Failed(f"graphbench was imported from {imported}, not from the new environment")
    graphbench("list", "--check")
    names = graphbench("list", "configs", "--json")
    for project in projects():
        entry = "quickstart" if project == ROOT else package_of(project).name
        if entry not in names:
            raise Failed(f"graphbench list configs --json shows nothing of {entry}")
    graphbench(*QUICKSTART, *LIMITS)
    return graphbench("test", "--run", "run")


def main() -> int:
    """Build, check the files, install, train; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--fresh", action="store_true", help="download the requirements of the wheels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "empty").mkdir()
        try:
            print("building", flush=True)
            files = build_all(folder / "dist")
            print(run([sys.executable, "-m", "twine", "check", "--strict", *files]).strip(), flush=True)
            wheels = [file for file in files if file.suffix == ".whl"]
            print("installing graphbench-lightning[all] into an empty environment", flush=True)
            programs = make_environment(folder / "environment", wheels, options.fresh)
            print("training", flush=True)
            print(use(programs, folder / "empty"))
        except Failed as fault:
            print(f"release/check.py: {fault}", file=sys.stderr)
            return 1
    print(f"{len(files)} files are fit for release")
    return 0


if __name__ == "__main__":
    sys.exit(main())
