"""Every imported package is declared in pyproject.toml, and the declarations of core and plug-ins agree."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from functools import cache
from pathlib import Path

import pytest
from packaging.version import Version

tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(path.parent for path in ROOT.glob("plugins/*/pyproject.toml"))
#: Modules that are not distributions: this project's own, and helpers of its tests and scripts.
OWN = {"graphbench", *(path.name for path in ROOT.glob("plugins/*/src/*"))}
HELPERS = {path.stem for path in ROOT.glob("tests/**/*.py")} | {path.stem for path in ROOT.glob("plugins/*/*/*.py")}


def project(folder):
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normal(name):
    """Return the normalized name of a distribution, by which PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


def declared(folder, extras):
    """Return the distributions that a project requires, with some of its extras."""
    about = project(folder)
    optional = about.get("optional-dependencies", {})
    chosen = [word for extra in extras if extra in optional for word in optional[extra]]
    return {normal(word) for word in [*about.get("dependencies", ()), *chosen]}


def imported(folder):
    """Return top-level module -> where it is first imported, without the standard library."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                found.setdefault(name.split(".")[0], f"{file.relative_to(ROOT)}:{node.lineno}")
    return {name: place for name, place in found.items() if name not in sys.stdlib_module_names}


@cache  # it reads the files of every distribution
def all_providers():
    """Return top-level module -> distributions that provide it."""
    return importlib.metadata.packages_distributions()


def undeclared(folder, known, local):
    """Return imports whose distribution is not among the known ones."""
    providers = all_providers()
    return [
        f"{place} imports {name} of {providers.get(name, ['nothing that is installed'])}"
        for name, place in imported(folder).items()
        if name not in local and not known & {normal(provider) for provider in providers.get(name, (name,))}
    ]


CORE_EXTRAS = tuple(name for name in project(ROOT)["optional-dependencies"] if name not in ("all", "dev", "docs"))


def test_the_core_declares_what_it_imports():
    against = undeclared(ROOT / "graphbench", declared(ROOT, CORE_EXTRAS), OWN)
    assert not against, "\n".join(against)


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plugin_declares_what_it_imports(plugin):
    """It may use what the core requires; the core sets those versions."""
    known = declared(plugin, project(plugin).get("optional-dependencies", {})) | declared(ROOT, ())
    against = undeclared(plugin / "src", known, {"graphbench", next((plugin / "src").iterdir()).name})
    assert not against, "\n".join(against)


@pytest.mark.parametrize("folder", [ROOT / "tests", *(plugin / "tests" for plugin in PLUGINS)], ids=str)
def test_the_tests_need_nothing_that_is_not_declared(folder):
    known = declared(ROOT, (*CORE_EXTRAS, "dev", "docs"))
    if folder.parent in PLUGINS:
        known |= declared(folder.parent, project(folder.parent).get("optional-dependencies", {}))
    against = undeclared(folder, known, OWN | HELPERS)
    assert not against, "\n".join(against)


def test_an_import_that_nobody_declares_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "module.py").write_text("import json\n\ndef f():\n    from torch.nn import Linear\n", encoding="utf-8")
    assert undeclared(tmp_path, {"torch"}, set()) == []
    assert undeclared(tmp_path, {"numpy"}, set()) == ["module.py:4 imports torch of ['torch']"]


def test_the_extra_all_brings_every_plugin_of_this_version():
    wanted = {f"{project(plugin)['name']}>={project(plugin)['version']},<0.2" for plugin in PLUGINS}
    assert set(project(ROOT)["optional-dependencies"]["all"]) == wanted


def test_all_distributions_claim_the_same_pythons_and_licence():
    about = project(ROOT)
    assert f"Python :: {about['requires-python'].removeprefix('>=')}" in " ".join(about["classifiers"])
    for plugin in PLUGINS:
        theirs = project(plugin)
        assert {theirs["requires-python"], theirs["version"]} == {about["requires-python"], about["version"]}
        assert (theirs["license"], theirs["license-files"]) == (about["license"], about["license-files"])
        assert (plugin / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_constraints_pin_every_package_once_for_each_python():
    from packaging.requirements import Requirement

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [Requirement(line) for line in lines if line and not line.startswith("#")]
    named = [word for word in project(ROOT)["classifiers"] if re.fullmatch(r".*Python :: 3\.\d+", word)]
    for python in (word.rpartition(" ")[2] for word in named):
        of_python = {"python_version": python, "python_full_version": f"{python}.0"}
        chosen = [normal(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate(of_python)]
        assert sorted(chosen) == sorted(set(chosen)), python
    assert len(named) >= 4


@pytest.mark.parametrize("name", ["jinja2", "openpyxl", "pyarrow"])
def test_what_pandas_reads_and_writes_with_is_as_new_as_it_asks(name):
    """Pandas declares these as optional and refuses older ones only when they are used: no resolver sees that."""
    from pandas.compat._optional import VERSIONS

    about = project(ROOT)
    words = [*about["dependencies"], *about["optional-dependencies"]["excel"]]
    (bound,) = [word.partition(">=")[2] for word in words if normal(word) == name]
    assert Version(bound) >= Version(VERSIONS[name])
