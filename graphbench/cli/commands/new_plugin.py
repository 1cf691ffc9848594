"""`graphbench new-plugin NAME`: write a small installable distribution with a custom architecture."""

from __future__ import annotations

import keyword
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

import graphbench
from graphbench import registry
from graphbench.cli.console import show_line
from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.errors import BadInput

#: Template -> file of the new distribution.
_FILES = {
    "pyproject.toml.tmpl": "pyproject.toml",
    "README.md.tmpl": "README.md",
    "init.py.tmpl": "src/${package}/__init__.py",
    "net.py.tmpl": "src/${package}/net.py",
    "config.yaml.tmpl": "configs/nci.yaml",
    "overlay.yaml.tmpl": "configs/overlays/deep.yaml",
    "test_net.py.tmpl": "tests/test_net.py",
}
#: Imports of the model's file other than the names of `graphbench`; the new class must not shadow them.
_IMPORTED = ("DenseLayout", "EdgeEncoder", "FeedForward", "MultiHeadAttention", "NodeEncoder", "Tensor", "nn")


@dataclass(frozen=True)
class Names:
    """The spellings of a plug-in's name.

    Args:
        name: words joined by dashes, `my-model`.
        class_name: the registered name, `MyModel`.
    """

    name: str
    class_name: str

    @classmethod
    def parse(cls, text: str) -> Names:
        """Parse `my-model`, `my_model`, `graphbench-my-model` or `MyModel`, which keeps its capitalization."""
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", text)
        name = split.replace("_", "-").lower().removeprefix("graphbench-")
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or name == "graphbench":
            raise BadInput(
                f"{text!r} cannot name a plug-in. Use words of the letters a to z and digits, the first beginning with "
                "a letter, joined by single dashes or underscores, such as my-model; graphbench- is prepended."
            )
        camel = re.fullmatch(r"[A-Z][A-Za-z0-9]*", text) is not None
        class_name = text if camel else "".join(word[0].upper() + word[1:] for word in name.split("-"))
        if keyword.iskeyword(class_name) or class_name in {*graphbench.__all__, *_IMPORTED}:
            raise BadInput(
                f"{text!r} would make a class {class_name}, a name that Python or graphbench uses; choose another."
            )
        return cls(name, class_name)

    @property
    def distribution(self) -> str:
        """Name for pip, `graphbench-my-model`."""
        return f"graphbench-{self.name}"

    @property
    def package(self) -> str:
        """Name to import, `graphbench_my_model`."""
        return self.distribution.replace("-", "_")


def _check_free(names: Names) -> None:
    """Refuse the name of an architecture that another distribution registers."""
    record = registry.architectures().get(names.class_name)
    owners = [record] if record is not None else registry.clashes("architectures").get(names.class_name, ())
    if owners and any(owner.distribution != names.distribution for owner in owners):
        text = " and ".join(f"{owner.distribution} {owner.version}" for owner in owners)
        raise BadInput(f"An architecture {names.class_name} is already registered by {text}; choose another name.")


def write_plugin(name: str, directory: Path) -> Path:
    """Write the distribution into a new folder `graphbench-NAME` of `directory`, and return that folder."""
    names = Names.parse(name)
    _check_free(names)
    folder = folder_to_write("--directory", directory) / names.distribution
    with suppress(FileNotFoundError):
        folder.lstat()  # raises for a name that the file system refuses; from Python 3.14 on, `exists` returns False
        raise BadInput(f"{folder} exists already, and nothing is overwritten. Choose another name or --directory.")
    major, minor = (int(part) for part in graphbench.__version__.split(".")[:2])
    values = {
        "name": names.name,
        "distribution": names.distribution,
        "package": names.package,
        "class_name": names.class_name,
        "version": graphbench.__version__,
        "next_version": f"{major}.{minor + 1}",
    }
    directory.mkdir(parents=True, exist_ok=True)
    # Written next to its place and renamed when complete: a kill leaves no partial plug-in to install.
    unfinished = Path(tempfile.mkdtemp(dir=directory, prefix=f".{names.distribution}-"))
    try:
        for template, destination in _FILES.items():
            text = (files("graphbench.cli") / "templates" / template).read_text(encoding="utf-8")
            path = unfinished / Template(destination).substitute(values)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(Template(text).substitute(values), encoding="utf-8")
        unfinished.chmod(0o755)  # mkdtemp keeps others out
        unfinished.rename(folder)
    except BaseException as error:
        shutil.rmtree(unfinished)
        if isinstance(error, OSError):
            error.filename = str(folder)  # the user knows this name, not the temporary one
        raise
    return folder


def run(arguments: Sequence[str]) -> int:
    """Write a plug-in and print the next steps."""
    parser = CommandParser(
        "new-plugin",
        description="Write a small installable package: one graph transformer, a configuration, a test and a README.",
    )
    parser.add_argument("name", help="such as my-model, which makes graphbench-my-model with a class MyModel")
    parser.add_argument("--directory", default=".", help="where to create its folder (default: here)")
    options = parser.parse_args(arguments)
    folder = write_plugin(options.name, Path(options.directory))
    names = Names.parse(options.name)
    show_line(f"Wrote {folder}. Next:")
    show_line(f"  pip install -e {folder}")
    show_line(f"  graphbench fit --config {names.name}/nci --run runs/{names.name}")
    show_line(f"  graphbench test --run runs/{names.name}")
    show_line(f"The model is in {folder / 'src' / names.package / 'net.py'}.")
    return 0
