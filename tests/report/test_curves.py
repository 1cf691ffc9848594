"""Learning curves and gaps: their panels and notes, and means against the logged numbers."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from graphbench.report import curves as module
from graphbench.report import result_tables
from graphbench.report.curves import gap_section, learning_curves, looked_at_test
from graphbench.report.figures import thinned
from graphbench.report.loading import Run, load_run
from graphbench.report.page import render


def texts(panel):
    return [element.text for element in ET.fromstring(panel.figure).iter("text")]


def titles(section):
    return [texts(panel)[-1] for panel in section.panels]


@pytest.fixture
def means(monkeypatch):
    """Record the arguments of every mean line drawn."""
    drawn, draw = [], module.draw_mean
    monkeypatch.setattr(
        module,
        "draw_mean",
        lambda axes, mean, sd, style: (drawn.append((mean, sd, style)), draw(axes, mean, sd, style)),
    )
    return drawn


def test_one_model_has_training_and_validation_in_one_panel(make_run):
    section = learning_curves(result_tables([make_run("a")])[0], "c")
    assert titles(section) == ["MAE (the loss)", "Learning rate", "Training speed"]
    assert [entry.label for entry in section.legend] == ["training", "validation"]
    curves = {f"{split}/loss": pd.Series([1e-9, 2e-9]) for split in ("train", "val")}
    small = Run("small", None, curves=curves | {f"{split}/MAE": pd.Series([4e-9, 8e-9]) for split in ("train", "val")})
    assert not module._is_loss(small, "MAE")


def test_several_models_have_a_panel_a_split(make_run):
    section = learning_curves(result_tables([make_run("a"), make_run("b", architecture="GCN")])[0], "c")
    assert titles(section) == [
        "Training MAE (the loss)",
        "Validation MAE (the loss)",
        "Learning rate",
        "Training speed",
    ]
    assert {entry.label for entry in section.legend} == {"GPS", "GCN"}


def test_a_loss_that_is_not_the_metric_has_its_own_panel(make_run):
    folder = make_run("a")
    folder.metrics.write_text("step,epoch,val/loss,val/MAE,train/loss,train/MAE\n9,0,1.0,2.0,1.0,2.0\n")
    assert titles(learning_curves(result_tables([folder])[0], "c")) == ["Loss", "MAE"]


@pytest.mark.slow
def test_mean_and_band_are_those_of_the_seeds(make_run, means):
    losses = {0: ((1.0, 2.0), (0.5, 1.0)), 1: ((3.0, 2.5), (0.7, 4.0)), 2: ((2.0, 2.5), (0.9, 1.0))}
    runs = [make_run(f"g{seed}", seed=seed, losses=values) for seed, values in losses.items()]
    learning_curves(
        result_tables([*runs, make_run("x", architecture="GCN", losses=((1.0, 9.0),), scores=(9.0, 9.0))])[0], "c"
    )
    validation = np.array([[val for _, val in values] for values in losses.values()])
    mean, sd, _ = next(call for call in means if call[2].number == 0 and call[0].iloc[0] > 2.2)
    assert list(mean.index) == [1, 2]
    assert mean.to_numpy() == pytest.approx(validation.mean(0))
    assert sd.to_numpy() == pytest.approx(validation.std(0, ddof=1))


@pytest.mark.parametrize(("score", "place"), [(0.4, 1.5), (0.6, 2.0)])
def test_the_ring_is_at_the_validation_of_the_best_checkpoint(make_run, score, place):
    folder = make_run("a", scores=(score, 0.9), results={"best_epoch": 2, "epochs_from": 1})
    assert module._best_place(load_run(folder, "a")) == 2
    rows = [(4, 1, 0.5), (9, 1, 0.7), (14, 2, 0.4), (19, 2, 0.6)]
    folder.metrics.write_text("step,epoch,val/MAE\n" + "".join(f"{s},{e},{v}\n" for s, e, v in rows))
    assert module._best_place(load_run(folder, "a")) == place


def test_the_mean_ends_with_the_shortest_seed(make_run, means):
    runs = [make_run("a", seed=0, losses=((1.0, 1.0),)), make_run("b", seed=1)]
    learning_curves(result_tables(runs)[0], "c")
    mean, _, _ = means[0]
    assert list(mean.index) == [1]


def test_wide_ranges_are_logarithmic(make_run):
    section = learning_curves(result_tables([make_run("a", losses=((100.0, 90.0), (1.0, 1.0)))])[0], "c")
    assert "(logarithmic)" in texts(section.panels[0])


def test_rates_begin_at_zero_however_wide_their_range(make_run):
    losses = [(1.0, 1.0)] * 40  # the learning rate of these runs is 0.001 / epoch
    section = learning_curves(result_tables([make_run("a", losses=losses)])[0], "c")
    assert "0.0000" in texts(section.panels[1])
    assert "(logarithmic)" not in texts(section.panels[1])


def test_a_rate_with_one_point_is_left_out(make_run):
    for count, panels in ((1, 2), (2, 3)):
        (table,) = result_tables([make_run(f"epochs-{count}", losses=((1.0, 1.1), (0.5, 0.7))[:count])])
        shown = [str(panel.figure) for panel in learning_curves(table, "p").panels]
        assert len(shown) == panels
        assert any("Learning rate" in figure for figure in shown) is (count > 1)


def test_thousands_of_epochs_keep_their_extremes_in_small_figures(make_run):
    rng = np.random.default_rng(0)
    short, long = (np.exp(rng.normal(size=(epochs, 2)) / 10) for epochs in (500, 4000))
    long[1234] = 3.0
    sizes = []
    for name, losses in (("short", short), ("long", long)):
        runs = [make_run(f"{name}-{seed}", seed=seed, losses=losses * (1 + seed / 9)) for seed in range(2)]
        sizes.append(sum(len(str(panel.figure)) for panel in learning_curves(result_tables(runs)[0], name).panels))
    assert sizes[1] < 1.5 * sizes[0] < 300_000


def test_a_thinned_curve_has_the_range_of_every_stretch():
    values = np.random.default_rng(0).normal(size=3000)
    values[1500:1700] = np.nan
    curve = pd.Series(values, index=np.arange(1, 3001))
    thin = thinned(curve)
    assert len(thin) <= 400
    assert thin.index.is_monotonic_increasing
    assert thin.equals(curve[thin.index])
    for start in range(0, 3000, 15):
        part, kept = curve.iloc[start : start + 15], thin[(thin.index > start) & (thin.index <= start + 15)]
        assert (part.min(), part.max()) == (kept.min(), kept.max()) or (part.isna().all() and kept.isna().all())
    assert thinned(curve[:200]).equals(curve[:200])


def test_without_curves_there_is_a_sentence(make_run):
    folder = make_run("a")
    folder.metrics.unlink()
    section = learning_curves(result_tables([folder])[0], "c")
    assert section.panels == []
    assert section.intro == "No run has logged a finished epoch."


def test_a_diverged_run_is_still_drawn(make_run):
    folder = make_run("a", losses=((1.0, float("inf")), (float("inf"), float("inf"))))
    assert len(learning_curves(result_tables([folder])[0], "c").panels) == 3


def test_every_learning_rate_has_its_panel(make_run):
    folder = make_run("a")
    text = folder.metrics.read_text().replace("lr-AdamW/rest", "lr-AdamW/a")
    header, *rows = text.splitlines()
    folder.metrics.write_text("\n".join([f"{header},lr-AdamW/b", *(f"{row},0.5" for row in rows)]))
    found = titles(learning_curves(result_tables([folder])[0], "c"))
    assert found[1:3] == ["Learning rate of AdamW/a", "Learning rate of AdamW/b"]


HEADER = "epoch,step,split,measure,train,unseen,gap,stage\n"


def write(folder, *rows):
    (folder.diagnostics / "train_test_gap.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))


def test_without_a_table_there_is_no_section(make_run):
    folder = make_run("a")
    table = result_tables([folder])[0]
    assert gap_section(table, "g") is None
    write(folder)
    assert gap_section(result_tables([folder])[0], "g") is None


def test_validation_is_a_panel_and_the_last_test_a_sentence(make_run):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(2)]
    for seed, folder in enumerate(folders):
        write(
            folder,
            "1,10,val,MAE,0.9,1.0,0.1,fit",
            "1,10,val,loss,0.9,1.0,0.1,fit",
            "2,20,val,MAE,0.5,0.8,0.3,fit",
            "2,20,test,MAE,0.1,0.1,0.0,test",
            f"{2 - seed},20,test,MAE,0.5,{0.9 + 0.2 * seed},{0.4 + 0.2 * seed},test",
        )
    section = gap_section(result_tables(folders)[0], "g")
    assert len(section.panels) == 1
    (note,) = section.notes
    for part in ("GPS", "epochs 1, 2", "MAE 0.5000 on the training", "1.000 on the test", "0.5000 ± 0.14 ", "2 runs"):
        assert part in note


@pytest.mark.parametrize(("epoch", "said"), [(3, "tested checkpoint of epoch 3"), (0, "tested checkpoint")])
def test_the_sentence_names_the_epoch_of_the_tested_checkpoint(make_run, epoch, said):
    folder = make_run("a")
    write(folder, f"{epoch},20,test,MAE,0.5,0.9,0.4,test")
    (note,) = gap_section(result_tables([folder])[0], "g").notes
    assert note.startswith(f"GPS, {said}: MAE 0.5000")


def test_several_validations_in_an_epoch_are_placed_by_their_steps(make_run, means):
    folders = [make_run(f"g{seed}", seed=seed) for seed in range(2)]
    for seed, folder in enumerate(folders):
        rows = [(1, 5, 0.1), (1, 10, 0.2), (2, 15, 0.3), (2, 20, 0.5)]
        write(folder, *(f"{epoch},{step},val,MAE,0.5,0.8,{gap + seed},fit" for epoch, step, gap in rows))
    section = gap_section(result_tables(folders)[0], "g")
    ((mean, _, _),) = means
    assert len(section.panels) == 1
    assert mean.to_dict() == pytest.approx({0.5: 0.6, 1.0: 0.7, 1.5: 0.8, 2.0: 1.0})


def test_broken_rows_are_left_out(make_run):
    folder = make_run("a")
    write(folder, "1,10,val,MAE,x,y,z,fit", "2,20,val,MAE,0.5,0.8,0.3,fit", ",,,,,,,")
    section = gap_section(result_tables([folder])[0], "g")
    assert len(section.panels) == 1


@pytest.mark.slow
def test_a_test_split_looked_at_in_training_has_its_own_panel_and_is_marked(make_run):
    folder, other = make_run("a"), make_run("b", architecture="GIN")
    write(folder, "1,10,val,MAE,0.5,0.8,0.3,fit", "1,10,test,MAE,0.5,0.9,0.4,fit", "2,20,test,MAE,0.5,0.7,0.2,fit")
    write(other, "1,10,val,MAE,0.5,0.8,0.3,fit", "1,10,test,MAE,0.5,0.9,0.4,test")
    table = result_tables([folder, other])[0]
    section = gap_section(table, "g")
    titles = [panel.figure for panel in section.panels]
    assert len(titles) == 2
    assert "test split, looked at in training over epochs of GPS" in titles[1]
    assert [note.partition(",")[0] for note in section.notes] == ["GIN"], "no test of a checkpoint for GPS"
    assert [looked_at_test(group) for group in table.groups] == [group.label == "GPS" for group in table.groups]
    page = render([table])
    assert "GPS: the test split was looked at during training" in page
    assert "GIN: the test split" not in page
