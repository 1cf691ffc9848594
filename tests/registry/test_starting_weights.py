"""Weights by name: found in wheels and in clones without an import; errors explain wrong names."""

from importlib import metadata

import pytest

from graphbench import registry
from graphbench.errors import BrokenPlugin, NameClash, UnknownName
from graphbench.registry.starting_weights import find_weights, starting_weights


def distribution(root, name, entries):
    info = root / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(["[graphbench.weights]", *entries]))


@pytest.fixture
def zoo(tmp_path, monkeypatch):
    """Install a wheel and a clone with weights, and a second wheel with a clashing name; importing any fails."""
    wheel, clone = tmp_path / "site" / "zoo_wheel", tmp_path / "clone" / "src" / "zoo_clone"
    for package, folder in ((wheel, wheel / "weights"), (clone, tmp_path / "clone" / "weights")):
        folder.mkdir(parents=True)
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "clone" / "pyproject.toml").write_text("")
    (wheel / "weights" / "small.safetensors").write_bytes(b"small")
    (tmp_path / "clone" / "weights" / "large.safetensors").write_bytes(b"large")
    site = tmp_path / "site"
    distribution(site, "zoo-wheel", ["atoms-small = zoo_wheel:small.safetensors", "lost = zoo_wheel:gone.safetensors"])
    distribution(
        site, "zoo-clone", ["atoms-large = zoo_clone:large.safetensors", "twice = zoo_clone:large.safetensors"]
    )
    distribution(site, "zoo-other", ["twice = zoo_wheel:small.safetensors"])
    for folder in (site, clone.parent):
        monkeypatch.syspath_prepend(str(folder))
    installed = [one for one in metadata.distributions() if (one.metadata["Name"] or "").startswith("zoo-")]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: installed)
    registry.refresh()
    yield tmp_path
    registry.refresh()


def test_a_wheel_and_a_clone_keep_their_weights_where_a_name_finds_them(zoo):
    assert find_weights("atoms-small").read_bytes() == b"small"
    assert find_weights("atoms-large").read_bytes() == b"large"
    assert list(starting_weights()) == ["atoms-large", "atoms-small", "lost", "twice"]


def test_a_name_that_nobody_has_is_answered_with_those_that_are_installed(zoo):
    with pytest.raises(UnknownName) as error:
        find_weights("atoms-smal")
    assert error.value.known == ["atoms-large", "atoms-small", "lost", "twice"]
    assert "Did you mean atoms-small" in str(error.value)


def test_weights_of_this_project_that_are_not_installed_name_their_package(zoo, monkeypatch):
    monkeypatch.setattr("graphbench.registry.listings._is_installed", lambda distribution: False)
    with pytest.raises(UnknownName, match="pip install graphbench-weights"):
        find_weights("molecules-base")


def test_a_name_of_two_distributions_and_a_lost_file_are_errors(zoo):
    with pytest.raises(NameClash, match=r"zoo-clone 1\.0 and zoo-other 1\.0"):
        find_weights("twice")
    with pytest.raises(BrokenPlugin, match="zoo-wheel"):
        find_weights("lost")
