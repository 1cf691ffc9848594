"""The listing of what this project's packages have, and the messages that name a package which is not installed."""

from pathlib import Path

import pytest
import tomllib

from graphbench import registry
from graphbench.errors import BadInput, UnknownName
from graphbench.experiments.reproduce import tables
from graphbench.registry import configurations, entry_points, plugins
from graphbench.runs import trust

PROJECTS = sorted((Path(__file__).parents[2] / "plugins").glob("*/pyproject.toml"))


def test_the_listing_is_that_of_the_projects():
    listed = {}
    for path in PROJECTS:
        if path.parent.name == "kernels":  # which registers no names
            continue
        project = tomllib.loads(path.read_text())["project"]
        groups = project["entry-points"]
        listed[project["name"]] = {
            group.removeprefix("graphbench."): " ".join(sorted(names)) for group, names in sorted(groups.items())
        }
    assert listed == plugins.PLUGINS, f"PLUGINS should be {listed}"


def test_every_package_is_in_the_extra_all():
    extras = tomllib.loads((PROJECTS[0].parents[2] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {word.partition(">")[0] for word in extras["all"]} == plugins.PLUGINS.keys() | {"graphbench-kernels"}


@pytest.fixture
def core_alone(monkeypatch):
    """The wheel of graphbench by itself: no plug-in is installed, and none registers anything."""
    found = list(entry_points.metadata.distributions())
    own = [one for one in found if one.metadata["Name"] not in plugins.PLUGINS]
    monkeypatch.setattr(plugins, "_is_installed", lambda distribution: False)
    monkeypatch.setattr(entry_points.metadata, "distributions", lambda: iter(own))
    registry.refresh()
    yield
    monkeypatch.undo()
    registry.refresh()


@pytest.mark.parametrize("distribution", plugins.PLUGINS)
def test_every_name_leads_to_its_package(core_alone, tmp_path, distribution):
    own = f"pip install {distribution} "
    for group, names in plugins.PLUGINS[distribution].items():
        for name in names.split():
            if group == "configs":
                with pytest.raises(BadInput, match=own):
                    configurations.find(f"{name}/zinc")
            elif group == "tables":
                with pytest.raises(UnknownName, match=own):
                    tables.find_table(f"{name}/table-1")
            else:
                with pytest.raises(UnknownName, match=own):
                    registry.find(group, name)
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{architecture: {{class_path: {distribution.replace('-', '_')}.Model}}}}\n")
    with pytest.raises(BadInput, match=own) as error:
        trust.Policy.of(config).check(f"{distribution.replace('-', '_')}.Model")
    assert "--trust" not in str(error.value)


def test_the_quickstart_of_the_core_says_what_it_needs(core_alone, capsys):
    from graphbench.cli import main

    assert main(["fit", "--config", "quickstart"]) == 1
    said = capsys.readouterr().err.strip()
    assert "pip install graphbench-baselines " in said
    assert "graphbench-lightning[all]" in said


def test_a_name_of_nobody_leads_to_no_package(core_alone):
    with pytest.raises(UnknownName, match="pip install NAME"):
        registry.find("architectures", "Nobodys")
