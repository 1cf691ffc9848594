"""Diagnostics by layer and epoch, and the pictures that they drew."""

from __future__ import annotations

import base64
import re
from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from graphbench.report import diagnostics as depth
from graphbench.report import result_tables
from graphbench.report.diagnostics import diagnostic_sections, picture_section
from graphbench.report.groups import group_runs
from graphbench.report.loading import load_run, load_runs


def titles(panels):
    return [ET.fromstring(panel.figure).attrib["aria-label"] for panel in panels]


def sections(*folders):
    return diagnostic_sections(result_tables(folders)[0], "d")


def test_without_tables_there_is_no_section(make_run):
    assert sections(make_run("a")) == []


def test_layers_and_a_map_of_layers_and_epochs(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder)
    (section,) = sections(folder)
    assert section.title == "Attention capacity by layer"
    assert titles(section.panels) == [
        "Attention capacity by attention layer of GPS",
        "Attention capacity by attention layer and epoch of GPS",
        "Entropy of attention by attention layer of GPS",
    ]


def test_one_epoch_or_one_layer_has_no_map(make_run, add_layers):
    one, other = make_run("a"), make_run("b", architecture="GCN")
    add_layers(one, epochs=(0,), measures=("capacity",))
    add_layers(other, layers=1, measures=("capacity",))
    (section,) = sections(one, other)
    assert len(section.panels) == 1


def test_meanover_seeds_equals_pandas(make_run, add_layers):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(3)]
    for base, folder in zip((0.0, 0.5, 2.0), folders, strict=True):
        add_layers(folder, base=base)
    (group,) = group_runs(load_runs(folders))
    means = depth.over_seeds(group, "attention_capacity")["capacity"]
    files = pd.concat(pd.read_csv(folder.diagnostics / "attention_capacity.csv") for folder in folders)
    values = files[(files.measure == "capacity") & (files.epoch == 2) & (files.layer == 1)]["value"]
    assert len(values) == 3
    for row in (means.epochs.loc[(2, 1)], means.last.loc[1]):
        assert row["mean"] == pytest.approx(values.mean())
        assert row["std"] == pytest.approx(values.std(ddof=1))


def test_seeds_that_stop_early_count_with_their_own_last_epoch(make_run, add_layers):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(2)]
    add_layers(folders[0], epochs=(0, 1, 2))
    add_layers(folders[1], base=10.0, epochs=(0, 1))
    (group,) = group_runs(load_runs(folders))
    means = depth.over_seeds(group, "attention_capacity")["capacity"]
    assert list(means.epochs.index.unique("epoch")) == [0, 1]
    add_layers(folders[0], measures=("mean_headroom", "capacity_head0"))
    assert list(depth.over_seeds(group_runs(load_runs(folders[:1]))[0], "attention_capacity")) == ["mean_headroom"]
    assert means.last.loc[0, "mean"] == pytest.approx((0.2 + 10.1) / 2)


def test_heads_are_left_out_and_further_measures_folded(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder, measures=("capacity", "capacity_head0", "gamma"))
    (section,) = sections(folder)
    assert all("head" not in title for title in titles(section.panels + section.more))
    assert titles(section.more) == ["Factor gamma of the spread by attention layer of GPS"]


def test_shares_by_distance_are_one_curve_and_a_map_of_depths(make_run, add_layers):
    folder, measures = make_run("a"), [f"share_{distance}" for distance in range(12)]
    add_layers(folder, stem="range", measures=["range", *measures, "share_beyond"])
    path = folder.diagnostics / "range.csv"
    table = pd.read_csv(path)
    table.loc[table.measure.isin(measures[5:]), "value"] = 0.0  # no influence from there
    table.to_csv(path, index=False)
    (section,) = sections(folder)
    assert titles(section.panels) == [
        "Range by depth of GPS",
        "Range by depth and epoch of GPS",
        "Influence by distance of GPS",
        "Influence by distance and depth of GPS",
    ]
    assert titles(section.more) == ["From nodes farther than that by depth of GPS"]
    curve = "".join(section.panels[2].figure.split())
    assert ">4<" in curve
    assert ">5<" not in curve


def test_a_model_of_one_depth_has_a_curve_over_distance_alone(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder, stem="range", measures=["range", "share_0", "share_1"], layers=1, epochs=(0,), base=0.5)
    (section,) = sections(folder)
    assert titles(section.panels) == ["Influence by distance of GPS"]


def test_measures_of_several_tables_stand_in_one_figure(make_run, add_layers):
    deep, shallow = make_run("a"), make_run("b", architecture="GCN")
    add_layers(deep)
    add_layers(deep, "rank_progression", ("effective_rank",))
    add_layers(deep, "gradients", ("gradient_norm", "condition"), base=1.0)
    add_layers(shallow, "gradients", ("gradient_norm",), base=2.0)
    together, *others = sections(deep, shallow)
    assert together.title == "What happens with depth"
    assert [title.partition(" by ")[0] for title in titles(together.panels)] == [
        "Attention capacity", "Effective rank", "Gradient of the loss", "Condition of the weights",
    ]  # fmt: skip
    assert "GPS, GCN" in titles(together.panels)[2]
    assert len(others) == 3
    assert len({panel.figure for section in (together, *others) for panel in section.panels}) == sum(
        len(section.panels) for section in (together, *others)
    )


def test_a_constant_measure_is_a_sentence(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder, measures=("capacity", "zeros"))
    path = folder.diagnostics / "attention_capacity.csv"
    table = pd.read_csv(path)
    table.loc[table.measure == "zeros", "value"] = 0.0
    table.to_csv(path, index=False)
    (section,) = sections(folder)
    assert section.notes == ["Zeros in attention: 0 in every layer, epoch and run."]


def test_models_without_measures_are_named(make_run, add_layers):
    folder, other = make_run("a"), make_run("b", architecture="GCN")
    add_layers(folder)
    (other.diagnostics / "attention_capacity.csv").write_text("epoch,step,layer,module,measure,value,graphs\n")
    (section,) = sections(folder, other)
    assert section.notes == ["Nothing was measured for GCN."]
    assert [entry.label for entry in section.legend] == ["GPS"]


def test_a_table_of_a_plugin_is_shown_too(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder, stem="flow_share", measures=("sources",))
    (section,) = sections(folder)
    assert section.title == "Flow share"
    assert titles(section.panels)[0] == "Sources by layer of GPS"


def test_a_table_without_a_single_number_is_no_crash(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder)
    path = folder.diagnostics / "attention_capacity.csv"
    table = pd.read_csv(path)
    table["value"] = "nan"
    table.to_csv(path, index=False)
    (section,) = sections(folder)
    assert section.panels == []
    assert section.notes == ["Nothing was measured for GPS."]


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
        "it is not a PNG file.",
        "it has 2.0 MB, more than the 2 MB allowed.",
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
    assert section.notes == ["a: diagnostics/attention_maps/torn.png is not shown: it is not a PNG file."]


def test_pictures_of_one_name_stand_side_by_side(make_run):
    runs = [load_run(make_run(name), name) for name in ("a", "b")]
    for run in runs:
        for picture in ("x.png", "y.png"):
            (run.folder.diagnostics / picture).write_bytes(PIXEL)
    section = picture_section([load_run(run.folder, run.name) for run in runs], "p")
    assert [panel.caption for panel in section.panels] == [
        "a, seed 0: x.png", "b, seed 0: x.png", "a, seed 0: y.png", "b, seed 0: y.png",
    ]  # fmt: skip
