"""What `docs/export.md` shows is accepted: options, patterns and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from graphbench.cli import main
from graphbench.runs import hub
from graphbench.training.parts import matching, parse_patterns, parse_rates

GUIDE = (Path(__file__).parents[2] / "docs" / "export.md").read_text(encoding="utf-8")
NAMES = [
    "architecture.node_encoder.features.table",
    *(f"architecture.layers.{number}.norm.weight" for number in range(25)),
    "task.head.mlp.layers.0.weight",
]


def test_both_spellings_of_parts_say_the_same() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
    model = yaml.safe_load(text)["model"]
    (freeze,) = re.findall(r'--model\.freeze "(.*?)"', GUIDE)
    (rates,) = re.findall(r'--model\.learning_rates "(.*?)"', GUIDE)
    assert parse_patterns(freeze) == parse_patterns(model["freeze"])
    assert parse_rates(rates) == parse_rates(model["learning_rates"]) == {"head": 1e-3, "architecture.layers.*": 1e-4}
    assert [len(matching(pattern, NAMES)) for pattern in parse_patterns(freeze)] == [1, 1]


def test_patterns_mean_what_the_text_says() -> None:
    layers = [int(name.split(".")[2]) for name in matching("architecture.layers.1*", NAMES)]
    assert layers == [1, *range(10, 20)]
    assert matching("architecture.layers.1", NAMES) == ["architecture.layers.1.norm.weight"]
    assert matching("head", NAMES) == NAMES[-1:]


def test_options_are_those_of_the_commands(capsys) -> None:
    for command in ("export", "push"):
        with pytest.raises(SystemExit) as end:
            main([command, "--help"])
        assert end.value.code == 0
        told = capsys.readouterr().out
        shown = re.findall(rf"graphbench {command} .*", GUIDE)
        assert shown
        for option in {option for line in shown for option in re.findall(r"--[\w-]+", line)}:
            assert option in told


def test_the_five_files_are_those_that_are_fetched() -> None:
    assert "Only the five files above are ever" in GUIDE
    assert len(hub.FETCHED) == 5
    assert all(f"`{name}`" in GUIDE for name in hub.FETCHED)
