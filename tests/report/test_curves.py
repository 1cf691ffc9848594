"""Learning curves: which panels there are, and that their means are those of the logged numbers."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest

from graphbench.report import curves as module
from graphbench.report import result_tables
from graphbench.report.curves import learning_curves


def texts(panel):
    return [element.text for element in ET.fromstring(panel.figure).iter("text")]


def titles(section):
    return [texts(panel)[-1] for panel in section.panels]


@pytest.fixture
def means(monkeypatch):
    """Arguments of every mean line drawn."""
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
