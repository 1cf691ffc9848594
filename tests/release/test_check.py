from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "plugins" / "sft"

pytest.importorskip("hatchling", reason="pip install hatchling, the build backend")


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def built(request, tmp_path_factory):
    """Build a distribution with the backend and return its kind and path."""
    folder = tmp_path_factory.mktemp(request.param)
    code = f"import sys; from hatchling.build import build_{request.param} as build; print(build(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=PLUGIN, check=True, text=True, capture_output=True
    )
    return request.param, folder / done.stdout.split()[-1]


def without(kind, source, target, left_out):
    """Copy a wheel or source distribution without the members whose name ends with `left_out`."""
    if kind == "wheel":
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
            for name in old.namelist():
                if not name.endswith(left_out):
                    new.writestr(name, old.read(name))
    else:
        with tarfile.open(source) as old, tarfile.open(target, "w:gz") as new:
            for member in old.getmembers():
                if not member.name.endswith(left_out):
                    new.addfile(member, old.extractfile(member))
    return target


def faults(check, kind, file):
    return {"wheel": check.wheel_faults, "sdist": check.sdist_faults}[kind](file, PLUGIN)


def test_a_good_file_has_no_fault(check, built):
    assert faults(check, *built) == []


@pytest.mark.parametrize("left_out", ["/LICENSE", "configs/listops.yaml", "/model.py"])
def test_what_is_left_out_is_named(check, built, tmp_path, left_out):
    kind, file = built
    found = faults(check, kind, without(kind, file, tmp_path / file.name, left_out))
    assert len(found) == 1
    licence = "LICENSE" in left_out and kind == "wheel"
    assert found[0].endswith("lacks the text of the licence" if licence else left_out.lstrip("/"))


def test_a_stray_file_is_named(check, built, tmp_path):
    kind, file = built
    if kind == "sdist":
        pytest.skip("a source distribution may hold more")
    copy = without(kind, file, tmp_path / file.name, "nothing has this name")
    with zipfile.ZipFile(copy, "a") as archive:
        archive.writestr("tests/test_sft.py", "")
    assert faults(check, kind, copy) == ["holds tests/test_sft.py"]


def test_packages_are_lent_without_those_of_this_project(check, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    target.mkdir()
    for name in ("numpy", "graphbench", "_editable_impl_graphbench_sft.pth", "graphbench_sft-0.1.0.dist-info"):
        (source / name).mkdir(parents=True)
    check.lend(source, target)
    assert [path.name for path in target.iterdir()] == ["numpy"]
    assert (target / "numpy").resolve() == source / "numpy"


def test_a_failed_step_is_told_with_its_words(check):
    with pytest.raises(check.Failed, match=r"(?s)exit code 3: .*sys.exit\(3\).*told"):
        check.run([sys.executable, "-c", "import sys; print('told', file=sys.stderr); sys.exit(3)"])


def test_every_project_of_the_clone_is_built(check):
    assert {path.name for path in check.projects()} == {ROOT.name, *(path.name for path in ROOT.glob("plugins/*"))}
