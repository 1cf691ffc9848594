"""What speed/prepare_parts.py prints for a file of two parts."""

import subprocess
import sys
from pathlib import Path

import pytest

SPEED = Path(__file__).parents[2] / "speed"


@pytest.mark.slow
def test_shares_make_the_entry_of_one_process():
    command = [sys.executable, SPEED / "prepare_parts.py", "--most", "32768"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "the entry of the shares is that of one process" in said
