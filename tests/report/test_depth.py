"""Diagnostics by layer and epoch."""

from xml.etree import ElementTree as ET

import pandas as pd
import pytest

from graphbench.report import depth, result_tables
from graphbench.report.depth import diagnostic_sections
from graphbench.report.groups import group_runs
from graphbench.report.loading import load_runs


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


def test_mean_over_seeds_equals_pandas(make_run, add_layers):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(3)]
    for base, folder in zip((0.0, 0.5, 2.0), folders, strict=True):
        add_layers(folder, base=base)
    (group,) = group_runs(load_runs(folders))
    means = depth._over_seeds(group, "attention_capacity")["capacity"]
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
    means = depth._over_seeds(group, "attention_capacity")["capacity"]
    assert list(means.epochs.index.unique("epoch")) == [0, 1]
    assert means.last.loc[0, "mean"] == pytest.approx((0.2 + 10.1) / 2)


def test_heads_are_left_out_and_further_measures_folded(make_run, add_layers):
    folder = make_run("a")
    add_layers(folder, measures=("capacity", "capacity_head0", "gamma"))
    (section,) = sections(folder)
    assert all("head" not in title for title in titles(section.panels + section.more))
    assert titles(section.more) == ["Factor gamma of the spread by attention layer of GPS"]


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
