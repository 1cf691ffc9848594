"""Public names are kept in `public_names.txt`; adding or removing one needs a line in CHANGELOG.md.

    python tests/test_changed_names.py    rewrites the file

Sources are read, not imported.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "public_names.txt"
CHANGELOG = ROOT / "CHANGELOG.md"


def public_names(roots):
    """Return `package.module.name` of every name that an `__all__` or a stub of lazy names lists.

    Args:
        roots: folders of packages.
    """
    found = set()
    for root in roots:
        for file in sorted(root.rglob("__init__.py*")):
            if file.suffix not in (".py", ".pyi"):
                continue
            module = ".".join(file.parent.relative_to(root.parent).parts)
            found |= {f"{module}.{name}" for name in listed(ast.parse(file.read_bytes()), stub=file.suffix == ".pyi")}
    return sorted(found)


def listed(tree, stub):
    """Return the names of a literal `__all__`; in a stub also those that are imported as themselves."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names |= set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List | ast.Tuple) else set()
        elif stub and isinstance(node, ast.ImportFrom):
            names |= {alias.name for alias in node.names if alias.asname == alias.name}
    return names


def now():
    return public_names([ROOT / "graphbench", *sorted(ROOT.glob("plugins/*/src/graphbench_*"))])


def unreleased():
    """Return the part of CHANGELOG.md above the last release."""
    return CHANGELOG.read_text(encoding="utf-8").partition("## Unreleased")[2].partition("\n## ")[0]


def test_a_changed_name_is_kept_and_told():
    """CHANGELOG.md contains the last part of each added or removed name, and the list of names is up to date."""
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    changed = sorted(set(kept) ^ set(now()))
    words = set(re.findall(r"\w+", unreleased()))
    untold = [name for name in changed if name.rpartition(".")[2] not in words]
    assert not untold, f"public names changed: say so under Unreleased in CHANGELOG.md: {', '.join(untold)}"
    assert not changed, f"CHANGELOG.md names them; now run `python {Path(__file__).relative_to(ROOT)}`: {changed}"


@pytest.mark.parametrize(
    ("text", "stub", "expected"),
    [
        ('__all__ = ["A", "b"]\n', False, {"A", "b"}),
        ("from .a import A as A\nfrom .a import hidden\n", True, {"A"}),
        ("from .a import A as A\n", False, set()),
        ("__all__: list[str]\n", True, set()),
    ],
)
def test_names_are_read_from_sources(text, stub, expected):
    assert listed(ast.parse(text), stub) == expected


def test_names_carry_their_module(tmp_path):
    (tmp_path / "house" / "room").mkdir(parents=True)
    (tmp_path / "house" / "__init__.pyi").write_text("from .room import Door as Door\n", encoding="utf-8")
    (tmp_path / "house" / "room" / "__init__.py").write_text('__all__ = ["Door"]\n', encoding="utf-8")
    assert public_names([tmp_path / "house"]) == ["house.Door", "house.room.Door"]


def test_every_lazy_room_is_read():
    assert {"graphbench.Architecture", "graphbench.nn.GPSLayer", "graphbench_sft.SFT"} <= set(now())


if __name__ == "__main__":
    KEPT.write_text("\n".join(now()) + "\n", encoding="utf-8")
