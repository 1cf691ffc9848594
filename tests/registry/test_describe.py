"""Summaries and options are read from source, and nothing is ever imported."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from graphbench.registry import describe


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that writes modules of a package that must never run."""
    name = "never_imported"
    monkeypatch.syspath_prepend(str(tmp_path))
    describe.forget()

    def write(**files):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for module, text in {"__init__": "", **files}.items():
            path = folder.joinpath(*module.split("__in__")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text("raise RuntimeError('imported')\n" + dedent(text))
        describe.forget()
        return name

    yield write
    describe.forget()
    assert name not in sys.modules


def test_summary_is_the_first_docstring_line(package):
    name = package(bench='class Bench:\n    """  First line.\n\n    More.\n    """\n')
    assert describe.summary_of(f"{name}.bench:Bench") == "First line."


def test_names_are_followed_through_imports_and_lazy_packages(package):
    init = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .deep.inner import Middle as Benchmark
    """
    inner = """
        from ..deep import Last as Middle
    """
    deep = """
        from never_imported.bench import Bench as Last
    """
    name = package(__init__=init, bench='class Bench:\n    "Found."\n', deep__in____init__=deep, deep__in__inner=inner)
    assert describe.summary_of(f"{name}:Benchmark") == "Found."


@pytest.mark.parametrize(
    ("target", "absence"),
    [
        ("bench:Bench", ""),
        ("bench:Absent", "never_imported.bench has no Absent"),
        ("nowhere:Bench", "there is no module never_imported.nowhere"),
        ("again:Bench", ""),
        ("again:Gone", "never_imported.bench has no Gone"),
        ("again:Lost", "there is no module never_imported.lost"),
        ("star:Bench", ""),
        ("guarded:Bench", ""),
        ("lazy:Bench", ""),
        ("torn:Bench", ""),
    ],
)
def test_what_the_source_lacks_is_told_and_what_it_may_have_is_not(package, target, absence):
    """`*`, `try` and `__getattr__` bind names that are only known once the module has run."""
    package(
        bench='class Bench:\n    "Found."\n',
        again="from .bench import Bench, Gone\nfrom .lost import Lost\n",
        star="from .bench import *\n",
        guarded="try:\n    from .bench import Bench\nexcept ImportError:\n    Bench = None\n",
        lazy="def __getattr__(name): ...\n",
        torn="class Other(\n",
    )
    assert describe.absence_of(f"never_imported.{target}") == absence


def test_options_that_a_class_gives_its_base_are_not_offered(package):
    """Except those that it pops from `**options`, and its own parameters that it passes on."""
    name = package(
        classes="""
        class Base:
            def __init__(self, file, size=1, root="data", seed=0): ...

        class Fixed(Base):
            def __init__(self, root="here", **options):
                super().__init__(file="mine.csv", root=root, size=options.pop("size", 8), **options)
        """
    )
    assert set(describe.options_of(f"{name}.classes:Fixed")) == {"root", "size", "seed"}


def test_modules_that_import_a_name_from_each_other_do_not_loop(package):
    name = package(a="from never_imported.b import Loop", b="from never_imported.a import Loop")
    assert describe.summary_of(f"{name}.a:Loop") == ""


@pytest.mark.parametrize("target", ["no_such_package:X", "never_imported.gone:X", "never_imported.bad:X", "json:gone"])
def test_unreadable_source_gives_an_empty_summary(package, target):
    package(bad="def broken(:")
    assert describe.summary_of(target) == ""


def test_extension_modules_have_no_source():
    assert describe.find_source("math") is None
    assert describe.find_source("json.decoder").name == "decoder.py"


def test_namespace_packages_are_searched(tmp_path, monkeypatch):
    folder = tmp_path / "space_without_init" / "inner"
    folder.mkdir(parents=True)
    (folder / "module.py").write_text("class Here:\n    'Found.'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert describe.find_source("space_without_init.inner") is None
    assert describe.summary_of("space_without_init.inner.module:Here") == "Found."


def test_static_reading_agrees_with_python():
    """In this package, whose names are lazy, the class found in the source is the one that Python imports."""
    from graphbench.contracts import Architecture

    expected = (Architecture.__doc__ or "").splitlines()[0]
    assert describe.summary_of("graphbench:Architecture") == expected
