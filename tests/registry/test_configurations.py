"""Configurations by name: shipped ones are found in wheels and in clones, without an import."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from graphbench import registry
from graphbench.errors import BadInput, NameClash
from graphbench.registry import configurations
from graphbench.registry.configurations import base_of, facts, find, folder_of, resolve

ROOT = Path(__file__).parents[2]
PLUGINS = sorted((ROOT / "plugins").iterdir())
README = ROOT / "README.md"
CONFIG = "data: {class_path: ZINC}\nmodel: {architecture: {class_path: zoo.Net}}\nexpected: {value: 0.1}\n"


def write(path, text=CONFIG):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text))


def distribution(root, name, entries):
    info = root / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[graphbench.configs]", *entries]))


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """Install a wheel, a clone with a `src` layout and one without; importing any of them fails."""
    site, clone, flat = tmp_path / "site", tmp_path / "clone", tmp_path / "flat"
    for package in (site / "zoo_wheel", clone / "src" / "zoo_clone", flat / "zoo_flat"):
        write(package / "__init__.py", "raise RuntimeError('imported')\n")
    write(site / "zoo_wheel" / "configs" / "small" / "zinc.yaml")
    write(site / "zoo_wheel" / "configs" / "small" / "overlays" / "zinc-deep.yaml", "# Deeper.\nmodel: {}\n")
    write(site / "zoo_wheel" / "configs" / "other" / "left-out.yaml")
    write(site / "configs" / "somebody-elses.yaml")
    write(site / "zoo_bare.py", "")
    write(clone / "pyproject.toml", "")
    write(clone / "configs" / "zinc.yaml")
    write(flat / "pyproject.toml", "")
    write(flat / "configs" / "first.yaml")
    distribution(site, "zoo-wheel", ["wheel = zoo_wheel:small"])
    distribution(site, "zoo-clone", ["clone = zoo_clone"])
    distribution(site, "zoo-flat", ["first = zoo_flat:first.yaml", "lost = zoo_flat:gone", "bare = zoo_bare"])
    for folder in (site, clone / "src", flat):
        monkeypatch.syspath_prepend(str(folder))
    known = [one for one in metadata.distributions() if (one.metadata["Name"] or "").startswith("zoo-")]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: known)
    registry.refresh()
    yield tmp_path
    monkeypatch.undo()
    registry.refresh()
    assert not [name for name in sys.modules if name.startswith("zoo_")]


def test_names_are_prefix_and_path(zoo):
    assert list(configurations.configurations()) == [
        "clone/zinc", "first", "wheel/overlays/zinc-deep", "wheel/zinc",
    ]  # fmt: skip
    assert find("wheel/zinc").path == zoo / "site" / "zoo_wheel" / "configs" / "small" / "zinc.yaml"
    assert find("clone/zinc").path == zoo / "clone" / "configs" / "zinc.yaml"
    assert find("first").distribution == "zoo-flat"


def test_what_lies_beside_an_installed_package_belongs_to_others(zoo):
    (zoo / "site" / "zoo_wheel" / "configs").rename(zoo / "site" / "zoo_wheel" / "gone")
    assert folder_of("zoo_wheel") is None
    assert "wheel of zoo-wheel 1.0 (zoo_wheel:small)" in configurations.missing()


def test_entry_points_that_lead_nowhere_are_named(zoo):
    assert configurations.missing() == [
        "bare of zoo-flat 1.0 (zoo_bare)", "lost of zoo-flat 1.0 (zoo_flat:gone)",
    ]  # fmt: skip
    assert folder_of("zoo_never_installed") is None


@pytest.mark.parametrize(
    ("name", "near"), [("wheel/zink", "wheel/zinc"), ("zinc", "clone/zinc or wheel/zinc"), ("zinc.yaml", "clone/zinc")]
)
def test_an_unknown_name_gets_one_error_with_near_ones(zoo, name, near):
    with pytest.raises(BadInput, match=f"there is no such file.*Did you mean .*{near}.*graphbench list configs"):
        resolve(name)


def test_a_name_leads_where_the_list_of_all_says(zoo):
    for name, (configuration,) in configurations.configurations().items():
        assert find(name) == configuration


@pytest.mark.parametrize("name", ["first/", "wheel", "wheel/", "wheel//zinc", "wheel/../wheel/zinc", "wheel/./zinc"])
def test_a_path_is_no_name(zoo, name):
    (zoo / "site" / "zoo_wheel" / "configs" / "small" / ".yaml").touch()
    with pytest.raises(BadInput, match="no installed configuration has that name"):
        find(name)


def test_a_file_and_an_installed_configuration_of_one_name_are_told_apart(zoo, monkeypatch):
    """The working directory may belong to someone else."""
    monkeypatch.chdir(zoo)
    write(zoo / "first")
    write(zoo / "second")
    with pytest.raises(BadInput, match=r"use \./first"):
        resolve("first")
    assert resolve("./first") == Path("first")
    assert resolve("second") == Path("second")
    assert resolve("clone/zinc") == zoo / "clone" / "configs" / "zinc.yaml"


def test_one_name_of_two_distributions_is_refused(zoo, monkeypatch):
    write(zoo / "site" / "zoo_twin" / "__init__.py", "")
    write(zoo / "site" / "zoo_twin" / "configs" / "zinc.yaml")
    distribution(zoo / "site", "zoo-twin", ["clone = zoo_twin"])
    names = ("zoo-clone", "zoo-twin")
    infos = [next((zoo / "site").glob(f"{name}-*.dist-info")) for name in names]
    found = [metadata.PathDistribution(info) for info in infos]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    registry.refresh()
    with pytest.raises(NameClash, match=r"'clone/zinc' is shipped by zoo-clone 1\.0 .* and zoo-twin 1\.0"):
        find("clone/zinc")


def test_facts_are_read_without_classes(zoo):
    said = facts(find("wheel/zinc"))
    assert (said.kind, said.benchmark, said.model, said.expected.value) == ("recipe", "ZINC", "Net", 0.1)
    overlay = find("wheel/overlays/zinc-deep")
    assert overlay.summary == "Deeper."
    deeper = facts(overlay, configurations.configurations())
    assert (deeper.kind, deeper.over) == ("overlay", "wheel/zinc")


def test_a_folder_is_no_file(zoo, monkeypatch):
    monkeypatch.chdir(zoo)
    with pytest.raises(BadInput, match=r"--config clone/configs: this is a folder and not a file\. Did you mean clone"):
        resolve("clone/configs")
    with pytest.raises(BadInput, match=r"--config site: this is a folder and not a file\.$"):
        resolve("site")
    (zoo / "first").mkdir()
    assert resolve("first").name == "first.yaml", "the installed configuration counts"


def test_a_damaged_file_is_named(zoo):
    write(zoo / "clone" / "configs" / "zinc.yaml", "a: [")
    with pytest.raises(BadInput, match=r"zinc\.yaml is not valid YAML"):
        facts(find("clone/zinc"))
    write(zoo / "clone" / "configs" / "zinc.yaml", "- a\n")
    with pytest.raises(BadInput, match=r"zinc\.yaml .*mapping.*not list"):
        facts(find("clone/zinc"))


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("a/overlays/zinc-x2-long", "a/zinc-x2"),
        ("a/overlays/zinc-wide", "a/zinc"),
        ("a/overlays/zinc", ""),
        ("b/overlays/zinc-wide", ""),
    ],
)
def test_an_overlay_belongs_to_the_recipe_with_the_longest_name(name, base):
    assert base_of(name, ["a/zinc", "a/zinc-x2", "a/overlays/zinc-x2"]) == base


# -- what this repository ships -------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [ROOT, *PLUGINS], ids=lambda folder: folder.name)
def test_every_file_of_a_distribution_has_a_name(folder):
    """On failure an entry point is missing, or the environment is outdated: run `pip install -e` again."""
    files = set((folder / "configs").rglob("*.yaml"))
    assert files or folder.name in ("kernels", "weights")
    named = {one.path.resolve() for found in configurations.configurations().values() for one in found}
    assert {path.resolve() for path in files} <= named


def test_no_shipped_name_is_taken_twice_and_none_is_lost():
    assert not configurations.missing()
    assert not [name for name, found in configurations.configurations().items() if len(found) > 1]


SHIPPED = {name: found[0] for name, found in configurations.configurations().items()}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_file_says_what_it_is(name):
    one, text = SHIPPED[name], SHIPPED[name].text
    said = facts(one, SHIPPED)
    expected = said.expected
    assert not re.search(r"^# Expected|class_path: graphbench[._]", text, re.MULTILINE), "expected:, and short names"
    if said.kind == "recipe":
        trainer = one.content()["trainer"]
        assert one.summary or expected.source, "a recipe names its source"
        for unit in ("epochs", "steps"):
            assert getattr(expected, unit) in (None, trainer.get(f"max_{unit}"))
        if expected.value is not None:
            assert expected.epochs or expected.steps
            assert expected.data or "source" in one.content()["data"]["init_args"], "the data of the score are missing"
            assert expected.source
            assert expected.metric
        assert (expected.metric is None) == (expected.value is None)
    if said.kind == "overlay":
        assert text.startswith("# "), "an overlay's first line says what it changes"
        assert "metric:" not in text, "the recipe's metric stays"
        assert expected.variant in (None, name.rpartition("/")[2])


@pytest.mark.parametrize("name", [name for name, one in SHIPPED.items() if facts(one).expected.variants])
def test_variants_are_overlays_of_the_same_folder(name):
    folder = name.partition("/overlays/")[0] if "/overlays/" in name else name.rpartition("/")[0]
    for variant in facts(SHIPPED[name]).expected.variants:
        assert facts(SHIPPED[f"{folder}/overlays/{variant}"]).expected.variant == variant


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda folder: folder.name)
def test_rows_on_the_page_of_a_plug_in_have_the_expected_counts_and_scores(plugin):
    """Check rows that begin with a recipe, or a recipe and an overlay; scores are fractions or percentages."""
    for row in re.findall(r"^\| `[^`|]+` \|.*", (plugin / "README.md").read_text(encoding="utf-8"), re.MULTILINE):
        name, _, overlay = row.split("`")[1].partition(" + overlays/")
        one = SHIPPED.get(f"{plugin.name}/{name}") or SHIPPED.get(name)
        if one is None or facts(one).kind != "recipe":
            continue
        expected = facts(one).expected.variants[overlay] if overlay else facts(one).expected
        assert expected.parameters is None or f"{expected.parameters:,}" in row
        for number in (number for number in (expected.value, expected.sd) if number is not None):
            digits = len(f"{float(number)}".partition(".")[2])
            shown = [f"{number:.{more}f}" for more in range(digits, 6)]
            shown += [f"{100 * number:.{more}f}" for more in range(max(1, digits - 2), 6)]
            assert any(text in row for text in shown), row


def test_a_published_score_asks_for_the_published_data():
    """PATTERN, CLUSTER and TSP are generated unless a recipe says otherwise."""
    scored = {name: facts(one) for name, one in SHIPPED.items() if facts(one).expected.value is not None}
    published = [name for name, said in scored.items() if said.expected.data == "published"
                 and said.benchmark in ("PATTERN", "CLUSTER", "TSP")]  # fmt: skip
    assert len(published) > 10
    for name in published:
        assert SHIPPED[name].content()["data"]["init_args"]["source"] == "pyg", name
        generated = SHIPPED[f"{name.partition('/')[0]}/overlays/generated"]
        assert generated.content() == {"data": {"init_args": {"source": "generated"}}}, name


def test_the_quickstart_in_the_readme_is_what_its_configuration_expects():
    expected = facts(SHIPPED["quickstart"]).expected
    columns = [cell.strip() for cell in re.search(r"┃ model .*", README.read_text())[0].split("┃")]
    row = [cell.strip() for cell in re.search(r"│ GPS .*", README.read_text())[0].split("│")]
    shown = dict(zip(columns, row, strict=True))
    split, _, metric = expected.metric.partition("/")
    assert abs(float(shown[f"{split} {metric}"]) - expected.value) <= 2 * expected.sd
    assert shown[f"{split} {metric}"] in SHIPPED["quickstart"].text, "not among the runs that its comment lists"


def test_files_are_plain_yaml():
    """The pure Python loader reads the same content as libyaml."""
    for one in list(SHIPPED.values())[::10]:
        assert one.content() == yaml.safe_load(one.text)
