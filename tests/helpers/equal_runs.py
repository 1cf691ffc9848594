"""Whether a run that was stopped and resumed equals one that was not."""

from __future__ import annotations

import json

import pandas as pd
import torch
from command_line import SMALL_MODEL

#: Four epochs of three steps, so that every place in an epoch is a step's number.
OPTIONS = [
    *SMALL_MODEL,
    "--trainer.max_epochs", "4",
    "--data.batch_size", "32",
    "--model.schedule.name", "cosine",
    "--model.schedule.warmup", "3",
]  # fmt: skip


def content(folder, name="last"):
    return torch.load(folder / "checkpoints" / f"{name}.ckpt", weights_only=True)


def assert_equal_runs(whole, other):
    one, two = content(whole)["state_dict"], content(other)["state_dict"]
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)
    scores = [json.loads((folder / "results.json").read_text())["val"] for folder in (whole, other)]
    assert scores[0] == scores[1]
    curves = [pd.read_csv(folder / "metrics.csv") for folder in (whole, other)]
    for column in ("train/loss", "train/MAE", "val/loss", "val/MAE"):
        rows = [curve[["epoch", "step", column]].dropna().to_numpy().tolist() for curve in curves]
        assert rows[0] == rows[1], column
