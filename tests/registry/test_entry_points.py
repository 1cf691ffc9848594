"""The registry finds plug-ins by entry point; broken and clashing ones are named and do not affect others."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from graphbench import __version__, registry
from graphbench.errors import BrokenPlugin, NameClash, UnknownName

MODULE = """
    from graphbench import Architecture, Encoding

    class Good(Architecture):
        "A good model."

    class Better(Good):
        "A better one."

    class Marks(Encoding):
        def parameters(self): return {}
        layout = {}
        def compute(self, graphs): raise NotImplementedError

    def function(): ...
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that fakes an installed distribution: metadata and a module on sys.path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, entry_points, version="1.2", folder="site", metadata=None):
        site = tmp_path / folder
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(metadata or f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(dedent(entry_points))
        if str(site) not in sys.path:
            monkeypatch.syspath_prepend(str(site))
        registry.refresh()

    (tmp_path / "fake_plugin.py").write_text(dedent(MODULE))
    (tmp_path / "fake_crash.py").write_text("import package_that_is_not_there\n")
    (tmp_path / "fake_exit.py").write_text("raise SystemExit('give up')\n")
    yield write
    monkeypatch.undo()
    sys.modules.pop("fake_plugin", None)
    registry.refresh()


def test_record_says_where_a_class_comes_from(install):
    install("fake-plugin", "[graphbench.architectures]\nGood = fake_plugin : Good [extra]\n")
    record = registry.architectures()["Good"]
    assert (record.name, record.group, record.distribution, record.version, record.target) == (
        "Good",
        "architectures",
        "fake-plugin",
        "1.2",
        "fake_plugin:Good",
    )
    assert record.class_path == "fake_plugin.Good"
    assert record.summary == "A good model."
    assert record.spec is None
    assert "fake_plugin" not in sys.modules, "listing must not import"
    assert record.load().__name__ == "Good"
    assert registry.load("architectures", "Good") is record.load()


SPECS = """
    import sys
    from graphbench.contracts.spec import BenchmarkSpec, Features

    OTHER = BenchmarkSpec("Other", "graph-regression", Features(), Features(), "MAE", False, "L1")
    RINGS = BenchmarkSpec("Rings", "graph-regression", Features((28,)), Features(), "MAE", False, "L1")
"""
RINGS = """
    from graphbench.benchmarks import GraphBenchmark
    from {specs} import RINGS

    class Rings(GraphBenchmark):
        "Rings."
        spec = RINGS
"""


@pytest.mark.parametrize("with_specs", [True, False])
def test_specification_comes_from_the_module_specs_or_the_class(install, tmp_path, with_specs):
    package = tmp_path / f"fake_rings_{with_specs}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    name = "specs" if with_specs else "described"
    (package / f"{name}.py").write_text(dedent(SPECS))
    (package / "rings.py").write_text(dedent(RINGS).format(specs=f"{package.name}.{name}"))
    install("fake-rings", f"[graphbench.benchmarks]\nRings = {package.name}.rings:Rings\n")
    record = registry.benchmarks()["Rings"]
    assert record.spec.node.vocabularies == (28,)
    assert (f"{package.name}.rings" in sys.modules) is not with_specs
    assert record.load().spec == record.spec


@pytest.mark.parametrize("content", ["raise SystemExit(3)", "import package_that_is_not_there", "RINGS = 3", "def ("])
def test_a_broken_module_of_specifications_spoils_no_list(install, tmp_path, content):
    package = tmp_path / f"fake_broken_{abs(hash(content))}"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "specs.py").write_text(content)
    install("fake-broken", f"[graphbench.benchmarks]\nRings = {package.name}.rings:Rings\n")
    assert registry.benchmarks()["Rings"].spec is None


def test_groups_are_kept_apart(install):
    install("fake-plugin", "[graphbench.encodings]\nMarks = fake_plugin:Marks\n[other.architectures]\nX = y:Z\n")
    assert "Marks" in registry.encodings()
    for group in ("architectures", "benchmarks", "callbacks"):
        assert "Marks" not in registry.records(group)
        assert "X" not in registry.records(group)
    assert registry.load("encodings", "Marks").__name__ == "Marks"


def test_unknown_name_suggests_near_matches(install):
    install("fake-plugin", "[graphbench.architectures]\nGoodModel = fake_plugin:Good\n")
    with pytest.raises(UnknownName) as caught:
        registry.load("architectures", "goodmodle")
    message = str(caught.value)
    assert "No architecture is called 'goodmodle'. Did you mean GoodModel" in message
    assert f"{sys.executable} -m pip install" in message


def test_name_of_another_group_is_pointed_out(install):
    install("fake-plugin", "[graphbench.encodings]\nMarks = fake_plugin:Marks\n")
    with pytest.raises(UnknownName, match="Marks is an encoding, not an architecture"):
        registry.load("architectures", "Marks")


def test_unknown_group_suggests_near_matches():
    with pytest.raises(UnknownName, match="Did you mean architectures"):
        registry.load("architecture", "GPS")


@pytest.mark.parametrize(
    ("name", "target", "reason"),
    [
        ("Good", "fake_crash:Good", "ModuleNotFoundError: No module named 'package_that_is_not_there'"),
        ("Good", "fake_exit:Good", "SystemExit: give up"),
        ("Good", "fake_plugin:Gone", "AttributeError: module 'fake_plugin' has no attribute 'Gone'"),
        ("Good", "fake-plugin:Good", "an entry point must be MODULE:CLASS"),
        ("Good", "fake_plugin", "not a subclass of graphbench.contracts.Architecture"),
        ("Good", "fake_plugin:Better", "registered as 'Good' but the class is called 'Better'"),
        ("function", "fake_plugin:function", "not a subclass of graphbench.contracts.Architecture"),
        ("Marks", "fake_plugin:Marks", "not a subclass of graphbench.contracts.Architecture"),
    ],
)
def test_broken_plugin_is_named_with_its_reason(install, name, target, reason):
    install("fake-plugin", f"[graphbench.architectures]\n{name} = {target}\n")
    install("sound-plugin", "[graphbench.architectures]\nBetter = fake_plugin:Better\n")
    with pytest.raises(BrokenPlugin) as caught:
        registry.load("architectures", name)
    assert reason in str(caught.value)
    assert "fake-plugin 1.2" in str(caught.value)
    assert registry.load("architectures", "Better").__name__ == "Better"


def test_original_error_is_chained(install):
    install("fake-plugin", "[graphbench.architectures]\nGood = fake_crash:Good\n")
    with pytest.raises(BrokenPlugin) as caught:
        registry.load("architectures", "Good")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_clash_names_both_owners_and_spares_the_rest(install):
    install("first-owner", "[graphbench.architectures]\nGood = fake_plugin:Good\nBetter = fake_plugin:Better\n")
    install("second-owner", "[graphbench.architectures]\nGood = elsewhere:Good\n", version="3.0")
    assert "Good" not in registry.architectures()
    assert {record.distribution for record in registry.clashes("architectures")["Good"]} == {
        "first-owner",
        "second-owner",
    }
    with pytest.raises(NameClash, match=r"first-owner 1\.2") as caught:
        registry.load("architectures", "Good")
    assert "second-owner 3.0" in str(caught.value)
    assert registry.load("architectures", "Better").__name__ == "Better"


def test_same_distribution_seen_twice_is_no_clash(install):
    install("fake-plugin", "[graphbench.architectures]\nGood = old:Good\n", version="1.0", folder="behind")
    install("Fake_Plugin", "[graphbench.architectures]\nGood = fake_plugin:Good\n", version="1.1", folder="front")
    assert registry.architectures()["Good"].version == "1.1", "the first on sys.path counts"
    assert registry.clashes("architectures") == {}


def test_one_name_twice_in_a_distribution_is_a_clash(install):
    install("fake-plugin", "[graphbench.architectures]\nGood = fake_plugin:Good\nGood = fake_plugin:Better\n")
    with pytest.raises(NameClash, match=r"fake_plugin:Better.* and .*fake_plugin:Good"):
        registry.load("architectures", "Good")


@pytest.mark.parametrize(
    ("group", "name"), [("benchmarks", "ZINC"), ("encodings", "LapPE"), ("callbacks", "ExactResume")]
)
def test_a_name_of_graphbench_cannot_be_taken(install, group, name):
    install("taker", f"[graphbench.{group}]\n{name} = fake_plugin:Good\n")
    with pytest.raises(NameClash, match=f"{name!r} is registered as") as caught:
        registry.load(group, name)
    assert "taker 1.2 (fake_plugin:Good)" in str(caught.value)
    assert "graphbench-lightning " in str(caught.value)
    assert "\n" not in str(caught.value)
    assert name not in registry.records(group)


def test_entry_points_of_an_older_installation_of_graphbench_do_not_count(install):
    """The current listings count; entries of both versions would clash with each other."""
    install("Graphbench_Lightning", "[graphbench.benchmarks]\nZINC = graphbench.old:ZINC\nGone = graphbench.old:Gone\n")
    assert registry.benchmarks()["ZINC"].target == "graphbench.benchmarks.molecules.zinc:ZINC"
    assert "Gone" not in registry.benchmarks()
    assert registry.clashes("benchmarks") == {}


def test_distribution_without_name_is_reported(install):
    install("nameless", "[graphbench.architectures]\nGood = fake_plugin:Good\n", metadata="Version: 1\n")
    install("sound-plugin", "[graphbench.architectures]\nBetter = fake_plugin:Better\n")
    (folder, reason) = next(iter(registry.unreadable().items()))
    assert folder.endswith("nameless-1.2.dist-info")
    assert "no name" in reason
    assert "Better" in registry.architectures()


def test_malformed_entry_points_are_reported(install):
    install("malformed", "[graphbench.architectures]\nno equals sign\n")
    install("sound-plugin", "[graphbench.architectures]\nBetter = fake_plugin:Better\n")
    assert any(folder.endswith("malformed-1.2.dist-info") for folder in registry.unreadable())
    assert "Better" in registry.architectures()


def test_refresh_sees_what_was_installed_meanwhile(install):
    assert "Good" not in registry.architectures()
    install("fake-plugin", "[graphbench.architectures]\nGood = fake_plugin:Good\n")
    assert "Good" in registry.architectures()


@pytest.mark.parametrize(
    ("asks", "warned"),
    [
        ("graphbench-lightning>=9", ">=9"),
        ("Graphbench_Lightning (<0.0.1)", "<0.0.1"),
        ("graphbench-lightning[hub]<0.0.1,>0", "<0.0.1,>0"),
        ("graphbench-lightning>=0", ""),
        ("graphbench-lightning", ""),
        ("graphbench-lightning>=9; extra == 'more'", ""),
        ("graphbench-lightning>=9; python_version < '3'", ""),
        ("graphbench-sft>=9", ""),
        ("no requirement at all", ""),
    ],
)
def test_a_plug_in_for_another_graphbench_is_told_once(install, caplog, asks, warned):
    """As after `pip install --no-deps`; `pip check` reads the same requirement."""
    about = f"Metadata-Version: 2.1\nName: other-times\nVersion: 1.2\nRequires-Dist: {asks}\n"
    entries = "[graphbench.architectures]\nGood = fake_plugin:Good\nBetter = fake_plugin:Better\n"
    install("other-times", entries, metadata=about)
    assert not registry.records("architectures")["Good"].fault, "listing does not warn"
    assert not caplog.messages
    for name in ("Good", "Better", "Good"):
        assert registry.load("architectures", name).__name__ == name
    said = f"other-times 1.2 requires graphbench-lightning{warned}, but this is graphbench-lightning {__version__}"
    assert [message.partition(": ")[0] for message in caplog.messages] == ([said] if warned else [])


def test_reading_the_registry_imports_no_torch():
    code = """
        import sys
        from graphbench import registry
        for group in registry.GROUPS:
            for record in registry.records(group).values():
                record.summary, record.spec
        print("torch" in sys.modules, "numpy" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
