"""Wheels and source distributions of the core and a plug-in contain configurations and classes; both are found."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
FOLDERS = {"graphbench": ROOT, "graphbench_baselines": ROOT / "plugins" / "baselines"}

pytest.importorskip("hatchling", reason="pip install hatchling, the build backend")


def build(kind, package, folder):
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind=kind), str(folder)],
        cwd=FOLDERS[package], capture_output=True, text=True, check=True,
    )  # fmt: skip
    return folder / done.stdout.splitlines()[-1]


def configs_of(package):
    folder = FOLDERS[package] / "configs"
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}


@pytest.fixture(scope="module", params=FOLDERS)
def wheel(request, tmp_path_factory):
    return request.param, build("wheel", request.param, tmp_path_factory.mktemp("wheels"))


def test_a_wheel_holds_every_configuration(wheel):
    package, file = wheel
    prefix = f"{package}/configs/"
    inside = {name.removeprefix(prefix) for name in zipfile.ZipFile(file).namelist() if name.startswith(prefix)}
    assert inside == configs_of(package)


def test_an_unpacked_wheel_is_found_by_name(wheel, tmp_path):
    """Unpack it into its own folder, as an installation does, and look up a name in an empty one."""
    package, file = wheel
    site, empty = tmp_path / "site", tmp_path / "empty"
    zipfile.ZipFile(file).extractall(site)
    empty.mkdir()
    name = {"graphbench": "quickstart", "graphbench_baselines": "gps/zinc"}[package]
    code = "import sys; sys.path.insert(0, sys.argv[1]); from graphbench.registry.configurations import find"
    command = [sys.executable, "-c", f"{code}; print(find(sys.argv[2]).path)", str(site), name]
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == site / package / "configs" / f"{name}.yaml"


def test_an_unpacked_wheel_registers_its_classes(wheel, tmp_path):
    """The core lists its classes in stubs, which are files of the package; a plug-in has entry points."""
    package, file = wheel
    site = tmp_path / "site"
    zipfile.ZipFile(file).extractall(site)
    group, name, source = {
        "graphbench": ("benchmarks", "ZINC", "graphbench/benchmarks/molecules/zinc.py"),
        "graphbench_baselines": ("architectures", "GPS", "graphbench_baselines/__init__.py"),
    }[package]
    code = """if True:
        import sys
        sys.path.insert(0, sys.argv[1])
        from graphbench.registry import describe, find
        print(describe.find_source(find(sys.argv[2], sys.argv[3]).target.partition(":")[0]))
    """
    command = [sys.executable, "-c", code, str(site), group, name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == site / source


@pytest.mark.parametrize("package", FOLDERS)
def test_a_source_distribution_holds_every_configuration(package, tmp_path):
    with tarfile.open(build("sdist", package, tmp_path)) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {f"configs/{name}" for name in configs_of(package)} <= set(names)
