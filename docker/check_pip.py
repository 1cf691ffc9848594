"""Write this machine's pip settings into one file for a build, and print the package folders that they name.

    check_pip.py PIP_CONF

The build mounts the file as /etc/pip.conf and the folders at their paths, so nothing of them stays in the image.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path


def settings() -> dict[str, str]:
    """Return the options and values that `pip install` sees; variables take precedence over files."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = {}
    for line in sorted(listed, reverse=True):  # ":env:" sorts before the sections of files
        key, _, value = line.partition("=")
        found[key.rpartition(".")[2]] = ast.literal_eval(value)
    return found


def folders(values: dict[str, str]) -> set[Path]:
    """Return local folders that contain packages; an index's pages may link to files next to the index."""
    links = [Path(word) for word in values.get("find-links", "").split() if word.startswith("/")]
    urls = f"{values.get('index-url', '')} {values.get('extra-index-url', '')}".split()
    indexes = [Path(url.removeprefix("file://")).parent for url in urls if url.startswith("file:///")]
    return {folder for folder in (*links, *indexes) if folder.is_dir()}


def main(file: str) -> None:
    """Write the file, print the folders."""
    values = settings()
    lines = [f"{key} = {value}\n".replace("\n", "\n    ").rstrip(" ") for key, value in values.items()]
    Path(file).write_text("[global]\n" + "".join(lines), encoding="utf-8")
    sys.stdout.writelines(f"{folder}\n" for folder in sorted(folders(values)))


if __name__ == "__main__":
    main(sys.argv[1])
