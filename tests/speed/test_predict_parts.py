"""What speed/predict_parts.py prints for an input of several parts."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "speed"


@pytest.mark.slow
def test_a_longer_input_takes_the_memory_of_its_parts():
    """Ten times the rows, two parts instead of one: memory grows by less than the text of the input."""
    command = [sys.executable, SPEED / "predict_parts.py", "--most", "100000"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (growth,) = re.findall(r"^ +100,000 .* (-?[0-9.]+) +[0-9.]+$", said, re.MULTILINE)
    assert float(growth) < 300
    assert re.search("rows per second are passed over", said)
