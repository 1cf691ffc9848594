"""Entry point of the container: give up root, add the mounted plug-ins, then become graphbench under tini.

    docker run graphbench fit --config quickstart     arguments go to graphbench
    docker run -it graphbench bash                                 or to one of PROGRAMS

GRAPHBENCH_PLUGINS names folders of plug-ins, separated by colons. They are used in place, and nothing is built or
installed: PYTHONPATH gets their code, and a folder with the metadata that an installer would write of their entry
points. What a plug-in depends on must be in the image.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import tomllib

WORKSPACE = Path("/workspace")
#: Folders of the workspace that runs write to, in most cases volumes.
WRITTEN = ("runs", "data", "store")
#: User and group if root owns the runs' folder.
DEFAULT_ID = 1000
#: Programs that may be started instead of graphbench.
PROGRAMS = ("bash", "sh", "python", "pip", "tensorboard")


class UnusablePlugin(Exception):
    """A folder of GRAPHBENCH_PLUGINS contains no plug-in that can be used in place."""


def is_real_root() -> bool:
    """Tell whether this process is the host's root. A rootless engine's root is the caller, who owns the volumes."""
    outside = Path("/proc/self/uid_map").read_text(encoding="ascii").split()[1]
    return os.geteuid() == 0 and outside == "0"


def give_up_root(workspace: Path) -> None:
    """Become the owner of the runs' folder, so that results belong to whoever mounted it.

    If root owns it, the engine created it, and `DEFAULT_ID` becomes the owner.

    Args:
        workspace: folder that contains those of `WRITTEN`.

    Raises:
        PermissionError: the engine withholds the capabilities CHOWN, SETGID and SETUID.
    """
    runs = (workspace / "runs").stat()
    uid, gid = (runs.st_uid, runs.st_gid) if runs.st_uid else (DEFAULT_ID, DEFAULT_ID)
    for folder in (workspace / name for name in WRITTEN):
        status = folder.stat()
        writable = os.access(folder, os.W_OK)  # not even for root when mounted read-only
        if status.st_uid == 0 and not status.st_mode & 0o002 and writable:
            os.chown(folder, uid, gid)
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def register(plugin: Path, notes: Path) -> Path:
    """Write a plug-in's name, version and entry points as metadata, as installing it would.

    Args:
        plugin: folder of its `pyproject.toml`.
        notes: folder to create `NAME-VERSION.dist-info` in.

    Returns:
        The folder its code is imported from: `src` if it exists, else the plug-in's folder.

    Raises:
        UnusablePlugin: no `[project]` table registers anything for graphbench, or the plug-in is already registered.
    """
    file = plugin / "pyproject.toml"
    if not file.is_file():
        raise UnusablePlugin(f"{plugin}: expected the folder of a plug-in, with a pyproject.toml. Is it mounted there?")
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UnusablePlugin(f"{file}: {error}") from error
    groups = project.get("entry-points", {})
    if "name" not in project or not any(group.startswith("graphbench.") for group in groups):
        raise UnusablePlugin(
            f"{file}: expected a [project] table with a name and entry points such as "
            '[project.entry-points."graphbench.architectures"]. A plug-in that computes them during its build must be '
            "installed: FROM graphbench, RUN pip install ..."
        )
    name, version = re.sub(r"[-_.]+", "_", project["name"]), project.get("version", "0")
    folder = notes / f"{name}-{version}.dist-info"
    if folder.exists():
        raise UnusablePlugin(f"{plugin}: {project['name']} {version} is named twice. Name every plug-in once.")
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {version}\n"
    (folder / "METADATA").write_text(metadata, encoding="utf-8")
    lines = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in groups[group].items()) for group in groups]
    (folder / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    source = plugin / "src"
    return source if source.is_dir() else plugin


def python_path(plugins: str, notes: Path) -> str:
    """Return PYTHONPATH with some plug-ins added.

    Args:
        plugins: their folders, separated by colons.
        notes: an empty folder that exists as long as the container.

    Raises:
        UnusablePlugin: one of them cannot be used.
    """
    sources = [register(Path(plugin).resolve(), notes) for plugin in plugins.split(os.pathsep) if plugin]
    return os.pathsep.join(filter(None, [str(notes), *map(str, sources), os.environ.get("PYTHONPATH")]))


def main(arguments: Sequence[str]) -> None:
    """Become graphbench or the named program; return only with an error."""
    if is_real_root():
        try:
            give_up_root(WORKSPACE)
        except PermissionError as error:
            sys.exit(f"Cannot give up root ({error}). Pass --user UID:GID, preferably of the owner of the runs.")
    plugins = os.environ.get("GRAPHBENCH_PLUGINS")
    if plugins:
        try:
            os.environ["PYTHONPATH"] = python_path(plugins, Path(tempfile.mkdtemp(prefix="graphbench-plugins-")))
        except UnusablePlugin as error:
            sys.exit(f"GRAPHBENCH_PLUGINS: {error}")
    program = arguments if arguments and arguments[0] in PROGRAMS else ["graphbench", *arguments]
    # -s: with `docker run --init`, tini is not the first process and still has to reap orphaned processes
    os.execvp("tini", ["tini", "-s", "--", *program])


if __name__ == "__main__":
    main(sys.argv[1:])
