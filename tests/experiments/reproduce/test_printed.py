"""Numbers as papers print them."""

from __future__ import annotations

import pytest

from graphbench.experiments.reproduce.printed import Printed


@pytest.mark.parametrize(
    ("text", "value", "sd", "unit"),
    [
        ("0.3774 ± 0.0150", 0.3774, 0.015, 0.00005),
        ("0.3801*", 0.3801, None, 0.00005),
        ("2.0M", 2_000_000, None, 50_000),
        ("44,750,081", 44_750_081, None, 0.5),
        ("1e-5", 1e-5, None, 5e-6),
        ("12.5%", 12.5, None, 0.05),
        ("LapPE-10", None, None, 0.0),
        ("3 to 8", 3.0, None, 0.5),
        ("2.5x", None, None, 0.0),
    ],
)
def test_numbers_are_read_as_printed(text, value, sd, unit):
    read = Printed.read(text)
    assert (read.text, read.value, read.sd) == (text, value, sd)
    assert read.unit == pytest.approx(unit)
