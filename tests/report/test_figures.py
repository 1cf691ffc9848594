"""Inline SVG: well-formed, unique, coloured by the page."""

import itertools
import re
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from graphbench.report.figures import INK, PALETTE, Style, legend, panel_axes, svg


@pytest.fixture
def drawn():
    with panel_axes() as (figure, axes):
        axes.plot([1, 2, 3], [1, 4, 9], color=PALETTE[0], marker="o")
        axes.set_title('<script>alert(1)</script> $x_1$ & "q"')
        return svg(figure, 'about "<b>"', "n1")


def test_text_is_text_and_escaped(drawn):
    texts = [element.text for element in ET.fromstring(drawn).iter("text")]
    assert '<script>alert(1)</script> $x_1$ & "q"' in texts
    assert "<script>" not in drawn
    assert ET.fromstring(drawn).attrib["aria-label"] == 'about "<b>"'


def test_control_characters_are_survived():
    with panel_axes() as (figure, axes):
        axes.set_title("a\x00\x1bb")
        drawn = svg(figure, "x", "n2")
    assert [element.text for element in ET.fromstring(drawn).iter("text")][-1] == "ab"


def test_nothing_points_out_of_the_page_and_colours_are_the_pages(drawn):
    assert "http" not in drawn
    assert "<style" not in drawn
    assert PALETTE[0] not in drawn
    assert INK not in drawn
    assert "var(--series-0)" in drawn
    assert "currentColor" in drawn


def test_references_are_to_identifiers_of_this_figure(drawn):
    known = set(re.findall(r'\bid="([^"]+)"', drawn))
    used = set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', drawn))
    assert {a or b for a, b in used} <= known
    assert all(name.startswith("n1-") for name in known)


def test_a_figure_is_the_same_every_time_and_leaves_no_settings():
    def draw():
        with panel_axes() as (figure, axes):
            axes.plot([1, 2], [3, 4], marker="s")
            return svg(figure, "x", "same")

    before = dict(mpl.rcParams)
    assert draw() == draw()
    assert dict(mpl.rcParams) == before


def test_series_differ_without_their_colours():
    looks = [(Style(number).line, Style(number).marker) for number in range(36)]
    assert len(set(looks)) == 36
    assert all(a[0] != b[0] and a[1] != b[1] for a, b in itertools.pairwise(looks))


def test_legend_keeps_numbers_of_series():
    entries = legend({0: "a", 3: "b"}, "l")
    assert [entry.label for entry in entries] == ["a", "b"]
    assert "var(--series-3)" in entries[1].swatch


@pytest.mark.parametrize("kind", ["deuteranopia", "protanopia"])
def test_neighbouring_colours_differ_for_colour_blind_readers(kind):
    """Linear-light RGB through the matrices of Machado, Oliveira and Fernandes (2009), severity 1."""
    matrices = {
        "deuteranopia": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        "protanopia": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
    }

    def seen(colour):
        values = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
        return [sum(weight * value for weight, value in zip(row, linear, strict=True)) for row in matrices[kind]]

    for one, other in itertools.pairwise(PALETTE):
        assert max(abs(a - b) for a, b in zip(seen(one), seen(other), strict=True)) > 0.1, (one, other)
