"""Users' folders: hidden files, links, and cycles of links."""

import pytest

from graphbench.data.files.listing import files_below


@pytest.fixture
def folder(tmp_path):
    for name in ("data/b/2.txt", "data/b/1.txt", "data/a.txt", "data/.a.txt", "data/.cache/c.txt", "elsewhere/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "data"


def listed(folder, **options):
    return [path.relative_to(folder).as_posix() for path in files_below(folder, **options)]


def test_files_are_sorted_and_hidden_ones_left_out(folder):
    assert listed(folder) == ["a.txt", "b/1.txt", "b/2.txt"]
    assert listed(folder, hidden=True) == [".a.txt", ".cache/c.txt", "a.txt", "b/1.txt", "b/2.txt"]
    hidden = folder.rename(folder.with_name(".data"))
    assert listed(hidden) == ["a.txt", "b/1.txt", "b/2.txt"]


def test_links_are_followed_but_not_in_circles(folder):
    (folder / "linked").symlink_to(folder.parent / "elsewhere")
    (folder / "same.txt").symlink_to(folder / "a.txt")
    (folder / "broken.txt").symlink_to(folder / "gone")
    (folder / "b" / "up").symlink_to(folder)
    (folder.parent / "elsewhere" / "itself").symlink_to(folder.parent / "elsewhere")
    assert listed(folder) == ["a.txt", "b/1.txt", "b/2.txt", "linked/d.txt", "same.txt"]
