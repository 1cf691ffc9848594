"""Shares of an input: each part is in exactly one, and launchers' variables are read as documented."""

from __future__ import annotations

import os

import pytest
import torch

from graphbench.data.parts.shares import Share, alone
from graphbench.errors import BadInput


@pytest.mark.parametrize("count", [1, 3, 7])
def test_every_part_is_in_one_share(count):
    shares = [Share.parse(f"{number}/{count}") for number in range(1, count + 1)]
    assert all(sum(share.has(part) for share in shares) == 1 for part in range(40))
    sizes = [sum(map(share.has, range(40))) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "a/b", "1/0", "-1/2", ""])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(BadInput, match="--part must be a share such as 3/8"):
        Share.parse(text, {})


def array(task, first=0, last=3, count=4):
    names = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
    return dict(zip(names, map(str, (task, first, last, count)), strict=True))


@pytest.mark.parametrize(
    ("variables", "share"),
    [
        ({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0"}, "3/4"),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_NTASKS": "6"}, "6/6"),
        (array(2), "3/4"),
        (array(30, 10, 40, 4), "3/4"),  # --array 10-40:10
        (array(7, 7, 7, 1), "1/1"),
        (array(1) | {"RANK": "1", "WORLD_SIZE": "2"}, "4/8"),
        (array(0) | {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, "1/4"),  # a batch script without srun
    ],
)
def test_a_launcher_says_which_share(variables, share):
    assert Share.parse("auto", variables) == Share.parse(share)


def test_tasks_of_an_array_times_ranks_make_each_share_once():
    shares = [
        Share.parse("auto", array(task) | {"RANK": str(rank), "WORLD_SIZE": "3"})
        for task in range(4)
        for rank in range(3)
    ]
    assert sorted(share.number for share in shares) == list(range(1, 13))
    assert {share.count for share in shares} == {12}


def test_without_a_launcher_or_with_uneven_tasks_a_share_must_be_named():
    with pytest.raises(BadInput, match="neither a SLURM array"):
        Share.parse("auto", {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"})
    with pytest.raises(BadInput, match="3 tasks from 1 to 8, which are not evenly numbered"):
        Share.parse("auto", array(1, 1, 8, 3))
    with pytest.raises(BadInput, match="must all be set"):
        Share.parse("auto", {"SLURM_ARRAY_TASK_ID": "1"})


def test_a_rank_works_alone_on_its_own_card(monkeypatch):
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "3"), ("CUDA_VISIBLE_DEVICES", "4,6")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    before = dict(os.environ)
    with alone():
        assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} & os.environ.keys()
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "6"
    assert dict(os.environ) == before
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # srun has assigned one device
    with alone():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,6"
