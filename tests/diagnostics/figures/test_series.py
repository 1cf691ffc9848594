"""Curves and bars contain the given numbers, obtained and printed ones apart."""

from __future__ import annotations

import numpy as np
import pytest

from graphbench.diagnostics.figures.series import Series, bars_figure, curves_figure, heatmap_figure

BOTH = Series("GPS", {3: (0.2, 0.1), 1: (0.5, 0.0)}, {1: 0.4, 3: 0.25})
PRINTED = Series("GT", printed={1: 0.7})


def test_curves_run_through_the_means_and_the_printed_values_in_order():
    figure = curves_figure({"": [BOTH, PRINTED]}, "layers", "MAE", "title")
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert {name: line.get_xydata().tolist() for name, line in lines.items()} == {
        "GPS": [[1, 0.5], [3, 0.2]], "GPS, printed": [[1, 0.4], [3, 0.25]], "GT, printed": [[1, 0.7]],
    }  # fmt: skip
    assert lines["GPS"].get_color() == lines["GPS, printed"].get_color() != lines["GT, printed"].get_color()
    assert lines["GPS"].get_linestyle() != lines["GPS, printed"].get_linestyle()
    (band,) = figure.axes[0].collections
    assert np.ptp(band.get_paths()[0].vertices[:, 1]) == pytest.approx(0.5 - 0.1)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["GPS", "GPS, printed", "GT, printed"]


def test_bars_have_the_lengths_of_their_values():
    figure = bars_figure({"a": [Series("x", {0: (2.0, 0.5)}, {0: 3.0})], "b": [PRINTED, BOTH]}, "seconds", "title")
    widths = [[(bar.get_width(), bar.get_fill()) for bar in axes.patches] for axes in figure.axes]
    assert widths[0] == [(2.0, True), (3.0, False)]
    assert (0.7, False) in widths[1]
    assert [label.get_text() for label in figure.axes[1].get_yticklabels()] == ["GT", "GPS"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_there_is_a_visible_panel_for_every_key(count):
    figure = curves_figure({str(number): [BOTH] for number in range(count)}, "x", "y", "title")
    assert [axes.get_title() for axes in figure.axes if axes.get_visible()] == [str(one) for one in range(count)]


def test_a_series_without_values_is_empty():
    assert Series("x").is_empty
    assert not PRINTED.is_empty


def test_a_heatmap_shows_every_number_in_its_place():
    values = np.arange(6.0).reshape(2, 3)
    figure = heatmap_figure(values, ["a", "b"], [1, 2, 4], "layer", "epoch", "rank")
    axes = figure.axes[0]
    (image,) = axes.images
    assert np.array_equal(image.get_array(), values)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "4"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
