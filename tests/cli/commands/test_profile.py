"""`graphbench profile`: operations by module against counts by hand, and the command as a whole."""

from __future__ import annotations

import json

import pytest
import torch
from command_line import SMALL_MODEL
from torch import nn

from graphbench.cli import main
from graphbench.cli.commands.profile import count_operations, profile
from graphbench.errors import BadInput


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(3, 8)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)) for _ in range(5))

    def forward(self, x):
        x = self.encoder(x)
        for layer in self.layers:
            x = layer(x)
        return x


def test_modules_of_a_list_are_counted_together():
    rows = 7
    model = Stack()
    counts = count_operations(model, torch.randn(rows, 3))
    assert model.training
    encoder, layers = 2 * rows * 3 * 8, 5 * 2 * (2 * rows * 8 * 16)
    assert counts["encoder"] == encoder
    assert counts["layers.*"] == layers
    assert counts["layers.*.*"] == layers
    assert counts[""] == encoder + layers


@pytest.mark.parametrize(("depth", "shown"), [("1", 1), ("5", 5)])
def test_the_table_is_as_deep_as_asked(depth, shown, data_options, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    options = [
        *data_options,
        *SMALL_MODEL,
        "--steps",
        "6",
        "--depth",
        depth,
        "--trainer.default_root_dir",
        str(tmp_path),
    ]
    assert main(["profile", *options]) == 0
    table = capsys.readouterr().out.partition("Operations")[2].splitlines()[2:]
    names = [line.strip("│ ").split()[0] for line in table if "%" in line]
    assert "architecture" in names
    assert max(len(name.split(".")) for name in names) == shown
    assert any("layers.*" in name for name in names) == (shown > 1)


def test_schedules_that_count_epochs_have_a_length(data_options, tmp_path, capsys):
    schedule = ["--model.schedule.name", "cosine", "--model.schedule.interval", "epoch"]
    run = ["--steps", "6", "--trainer.default_root_dir", str(tmp_path)]
    assert main(["profile", *data_options, *SMALL_MODEL, *schedule, *run]) == 0
    assert "A training step" in capsys.readouterr().out


@pytest.mark.parametrize(
    "watching",
    [
        ["--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor=val/loss"],
        ["--model.schedule.name", "plateau", "--model.schedule.warmup", "0"],
    ],
)
def test_what_watches_the_validation_score_finds_one(watching, data_options, tmp_path, capsys):
    """Early stopping and plateaus need each epoch's score; here an epoch has fewer steps than are profiled."""
    options = [*data_options, "--data.store", str(tmp_path / "store"), *SMALL_MODEL, "--steps", "40", *watching]
    assert profile(options) == 0
    assert "A training step" in capsys.readouterr().out


def test_impossible_depths_are_refused():
    with pytest.raises(BadInput, match="--depth must be an integer of at least 1, but got 0"):
        profile(["--data", "NCI", "--model.architecture", "GPS", "--depth", "0"])


def test_parts_add_up_and_head_follows_its_formula(capsys):
    options = ["--data", "NCI", "--model.architecture", "GCN", "--model.architecture.hidden_dim", "32"]
    assert main(["params", *options, "--model.head.num_layers", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert sum(record["parts"].values()) == record["parameters"]
    assert record["parts"]["head"] == 2 * (32 * 32 + 32) + 33


def test_the_table_for_people_ends_with_the_total(capsys):
    assert main(["params", "--data", "NCI", "--model.architecture", "GCN"]) == 0
    text = capsys.readouterr().out
    assert "total" in text
    assert "GCN on NCI" in text
