from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_part_of_the_suite_exists(lower_bounds):
    assert all((ROOT / path).exists() for path in lower_bounds.PART)


@pytest.mark.parametrize(("name", "options"), [("pypi", ()), ("cpu", ("--torch-backend", "cpu"))])
def test_pytorch_comes_from_where_it_was_asked(lower_bounds, name, options):
    assert lower_bounds.backend(name) == options


def test_versions_of_python_are_read_in_order(lower_bounds):
    resolve = sys.modules["resolve"]
    text = '"Programming Language :: Python :: 3.9", "Programming Language :: Python :: 3.13",\n'
    assert resolve.pythons(text + '"Programming Language :: Python :: 3.10"') == ["3.9", "3.10", "3.13"]
    assert resolve.pythons((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[0] == "3.10"


def test_the_oldest_versions_that_fit_are_chosen(lower_bounds, tmp_path):
    """Of 1.0, 1.1 and 1.2, a requirement gets its bound 1.1; a transitive dependency gets its newest version."""
    pytest.importorskip("uv")
    for version in ("1.0", "1.1", "1.2"):
        make_wheel(tmp_path, "first", version, "Requires-Dist: second>=1.0\n")
        make_wheel(tmp_path, "second", version, "")
    asked = tmp_path / "asked.txt"
    asked.write_text("first>=1.1\n", encoding="utf-8")
    options = ("--no-index", "--find-links", str(tmp_path), "--resolution", "lowest-direct")
    assert sys.modules["resolve"].resolve(asked, "3.11", *options) == ["first==1.1", "second==1.2"]
    asked.write_text("first>=2\n", encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        sys.modules["resolve"].resolve(asked, "3.11", *options)
    assert "first" in caught.value.stderr


def make_wheel(folder, name, version, requires):
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def test_help_names_the_choices():
    script = str(ROOT / "release" / "lower_bounds.py")
    done = subprocess.run(
        [sys.executable, script, "--help"], text=True, capture_output=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert done.returncode == 0
    assert re.search(r"(?s)--torch-backend.*or pypi", done.stdout)
