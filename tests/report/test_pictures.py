"""Pictures of diagnostics, embedded."""

import base64
import re

import pytest

from graphbench.report.loading import load_run
from graphbench.report.pictures import picture_section

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


@pytest.fixture
def folder(make_run):
    return make_run("a", seed=2)


def test_without_pictures_there_is_no_section(folder):
    assert picture_section([load_run(folder, "a")], "p") is None


def test_pictures_are_embedded_byte_for_byte(folder):
    (folder.diagnostics / "attention_layer_0.png").write_bytes(PIXEL)
    (folder.diagnostics / "b.svg").write_text(
        '<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"><script>1</script></svg>'
    )
    section = picture_section([load_run(folder, "a")], "p")
    images = [panel.figure for panel in section.panels]
    assert [re.search(r"data:([^;]+)", image)[1] for image in images] == ["image/png", "image/svg+xml"]
    assert base64.b64decode(re.search(r"base64,([^\"]+)", images[0])[1]) == PIXEL
    assert 'alt="attention layer 0 of a"' in images[0]
    assert all(image.startswith("<img ") for image in images)
    assert section.panels[0].caption == "a, seed 2: attention_layer_0.png"


def test_what_cannot_be_embedded_is_named(folder):
    (folder.diagnostics / "empty.png").write_bytes(b"")
    (folder.diagnostics / "huge.png").write_bytes(PIXEL + bytes(2_000_000))
    section = picture_section([load_run(folder, "a")], "p")
    assert section.panels == []
    assert [note.split(": ")[-1] for note in section.notes] == [
        "it is no PNG file.",
        "it has 2.0 MB, more than the 2 MB that are embedded.",
    ]


def test_names_are_escaped(folder):
    (folder.diagnostics / 'x"onload=".png').write_bytes(PIXEL)
    (panel,) = picture_section([load_run(folder, "<b>")], "p").panels
    assert 'alt="x&#34;onload=&#34; of &lt;b&gt;"' in panel.figure


def test_pictures_in_folders_are_found(folder):
    maps = folder.diagnostics / "attention_maps"
    maps.mkdir()
    (maps / "val-3_epoch-002_drawing.png").write_bytes(PIXEL)
    (maps / "torn.png").write_bytes(b"")
    section = picture_section([load_run(folder, "a")], "p")
    assert [panel.caption for panel in section.panels] == ["a, seed 2: val-3_epoch-002_drawing.png"]
    assert section.notes == ["a: diagnostics/attention_maps/torn.png is not shown: it is no PNG file."]


def test_pictures_of_one_name_stand_side_by_side(make_run):
    runs = [load_run(make_run(name), name) for name in ("a", "b")]
    for run in runs:
        for picture in ("x.png", "y.png"):
            (run.folder.diagnostics / picture).write_bytes(PIXEL)
    section = picture_section([load_run(run.folder, run.name) for run in runs], "p")
    assert [panel.caption for panel in section.panels] == [
        "a, seed 0: x.png", "b, seed 0: x.png", "a, seed 0: y.png", "b, seed 0: y.png",
    ]  # fmt: skip
