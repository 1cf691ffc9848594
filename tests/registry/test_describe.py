"""Summaries and specifications are read from source, and nothing is ever imported."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

from graphbench.contracts.spec import BenchmarkSpec, Features
from graphbench.registry import describe

HEAD = 'task="graph-regression", metric="MAE", higher_is_better=False, loss="L1"'


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes modules of a package that must never run."""
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


def spec_of(package, text, module="bench"):
    return describe.describe(f"{package(**{module: text})}.{module}:Bench").spec


def test_summary_is_the_first_docstring_line(package):
    name = package(bench='class Bench:\n    """  First line.\n\n    More.\n    """\n')
    assert describe.describe(f"{name}.bench:Bench").summary == "First line."


def test_literal_specification_is_evaluated(package):
    text = f"""
        SIZES = (28, 4)
        GRAPHS: int = 220_011
        UNITS = ["eV"]

        class Bench:
            spec = BenchmarkSpec(
                "Bench", node=Features(SIZES + (2,), names=("a",) * 3), edge=Features(dense=1), {HEAD},
                split_sizes=(GRAPHS, 1000, 1000), mean_nodes=-23.5, target_units=UNITS, extra={{"a": "b"}},
            )
    """
    assert spec_of(package, text) == BenchmarkSpec(
        "Bench",
        task="graph-regression",
        node=Features((28, 4, 2), names=("a", "a", "a")),
        edge=Features(dense=1),
        metric="MAE",
        higher_is_better=False,
        loss="L1",
        split_sizes=(220_011, 1000, 1000),
        mean_nodes=-23.5,
        target_units=["eV"],
        extra={"a": "b"},
    )


def test_names_are_followed_through_imports_and_lazy_packages(package):
    bench = f"""
        from ._shared import ATOMS as NODE
        from .deep.inner import EDGE

        class Base:
            spec: ClassVar[BenchmarkSpec] = BenchmarkSpec(name="Bench", node=NODE, edge=EDGE, {HEAD})

        class Bench(Base):
            "Inherits its specification."
    """
    init = """
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from .bench import Bench as Benchmark
    """
    inner = """
        from never_imported._shared import ATOMS
        from ..deep import EDGE
    """
    name = package(
        __init__=init,
        bench=bench,
        _shared="ATOMS = Features((5,))",
        deep__in____init__="EDGE = Features(dense=2)",
        deep__in__inner=inner,
    )
    found = describe.describe(f"{name}:Benchmark")
    assert found.summary == "Inherits its specification."
    assert found.spec is not None
    assert (found.spec.node, found.spec.edge) == (Features((5,)), Features(dense=2))


@pytest.mark.parametrize(
    "value",
    [
        "len([1])",
        "open('x')",
        "UNKNOWN",
        "THIS",
        "Features(**{})",
        "Features(no_such_option=1)",
        "Features(-'text')",
        "Features((2 ** 9,))",
        "{**{}}",
        "OTHER.value",
        "LOOP",
    ],
)
def test_anything_else_is_not_evaluated(package, value):
    text = f"""
        from never_imported.bench import LOOP
        THIS = THIS

        class Bench:
            "Summary."
            spec = BenchmarkSpec(name="Bench", node={value}, edge=Features(), {HEAD})
    """
    name = package(bench=text)
    assert describe.describe(f"{name}.bench:Bench") == describe.Description("Summary.", None)


@pytest.mark.parametrize(
    "body",
    ["spec = 3", "pass", "@property\n    def spec(self): return BenchmarkSpec()", "spec: BenchmarkSpec"],
)
def test_class_without_literal_specification_has_none(package, body):
    assert spec_of(package, f"class Bench:\n    {body}\n") is None


def test_property_hides_an_inherited_specification(package):
    text = f"""
        class Base:
            spec = BenchmarkSpec(name="Bench", node=Features(), edge=Features(), {HEAD})

        class Bench(Base):
            @property
            def spec(self):
                return None
    """
    assert spec_of(package, text) is None


@pytest.mark.parametrize("target", ["no_such_package:X", "never_imported.gone:X", "never_imported.bad:X", "json:gone"])
def test_unreadable_source_gives_an_empty_description(package, target):
    package(bad="def broken(:")
    assert describe.describe(target) == describe.Description()


def test_extension_modules_have_no_source():
    assert describe.find_source("math") is None
    assert describe.find_source("json.decoder").name == "decoder.py"


def test_namespace_packages_are_searched(tmp_path, monkeypatch):
    folder = tmp_path / "space_without_init" / "inner"
    folder.mkdir(parents=True)
    (folder / "module.py").write_text("class Here:\n    'Found.'\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert describe.find_source("space_without_init.inner") is None
    assert describe.describe("space_without_init.inner.module:Here").summary == "Found."


def test_static_reading_agrees_with_python():
    """Our own package, whose names are lazy: the class found by reading is the one Python finds."""
    from graphbench.contracts import Architecture

    expected = (Architecture.__doc__ or "").splitlines()[0]
    assert describe.describe("graphbench:Architecture").summary == expected
