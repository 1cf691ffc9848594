"""A small campaign of random kills; `make survive` runs the large one."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from scripts import load_script

campaign = load_script(Path(__file__).with_name("campaign.py"))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_random_kills_cost_nothing(tmp_path, capsys, processes):
    counts = {signal.SIGKILL: 3, signal.SIGTERM: 2}
    assert campaign.campaign(tmp_path, ["GPS"], [processes], counts, [], seed=0) == 0, capsys.readouterr().out
