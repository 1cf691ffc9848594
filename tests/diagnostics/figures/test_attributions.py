"""The colours of attributions use one scale around zero, whatever the signs."""

import pytest
import torch

from graphbench.diagnostics.figures.attributions import attribution_figure


class Painted:
    """A drawing that keeps the colours it receives."""

    pairs, labels, aspect = torch.tensor([[0, 1], [1, 2]]), ["a", "b", "c"], 1.0

    def paint(self, axes, nodes, lines):
        self.nodes, self.lines = nodes, lines


def warm(colour):
    """Return how much more red than blue a colour has: above 0 for orange, below for purple, about 0 if neutral."""
    return colour[0] - colour[2]


@pytest.mark.parametrize("values", [[0.5, 0.0, -2.0], [1.0, 2.0, 0.0], [-1.0, 0.0, -3.0], [0.0, 0.0, 0.0]])
def test_zero_is_neutral_and_signs_are_told_apart(values):
    drawing, nodes, lines = Painted(), torch.tensor(values, dtype=torch.float64), torch.tensor([0.1, -0.1]).double()
    figure = attribution_figure(drawing, nodes, lines, "title", "eV", "masking")
    for value, colour in zip([*values, 0.1, -0.1], [*drawing.nodes, *drawing.lines], strict=True):
        if value == 0:
            assert abs(warm(colour)) < 0.02
            assert min(colour) > 0.9
        else:
            assert warm(colour) * value > 0
    bar = figure.axes[1]
    low, high = bar.get_xlim()
    assert low == -high
    assert high == pytest.approx(max(0.1, *map(abs, values)))
    assert bar.get_xlabel() == "adds to the prediction [eV], masking"


def test_equal_sizes_of_both_signs_have_equal_strength():
    drawing = Painted()
    attribution_figure(drawing, torch.tensor([1.0, -1.0, 4.0]), None, "title", "", "masking")
    up, down, most = ([abs(channel - 0.97) for channel in colour] for colour in drawing.nodes)
    assert sum(up) == pytest.approx(sum(down), rel=0.5)
    assert sum(most) > 2 * sum(up)
    assert len({tuple(line) for line in drawing.lines}) == 1
