"""Which trainings a table needs."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from graphbench.errors import BadInput
from graphbench.experiments.reproduce import plan
from graphbench.experiments.reproduce.plan import Job, Request, coverage, job_of, jobs, run_name, scaled, select
from graphbench.experiments.reproduce.recipes import can_be_offline
from graphbench.experiments.reproduce.tables import find_table, tables


def test_rows_and_columns_are_chosen_by_key(table):
    assert [cell.row for cell in select(table, ["plus", "other"])] == ["plus", "other"]
    assert [cell.column for cell in select(table, ["ours"], ["epochs"])] == ["epochs"]
    with pytest.raises(BadInput, match=r"--only SAN: .* has ours, plus, other, curve"):
        select(table, ["SAN"])
    with pytest.raises(BadInput, match="--columns"):
        select(table, [], ["zinc"])


def test_only_recipes_are_trained_each_once_and_seed_by_seed(table, tmp_path):
    found = jobs(select(table), Request(seeds=(0, 1)), tmp_path)
    names = [(job.training.name.split(".")[0], job.training.seed) for job in found]
    recipe = "sfi-former-pattern"
    first = [[(recipe, seed), (f"{recipe}+dense", seed), (recipe, seed)] for seed in (0, 1)]
    assert names == [*first[0], *first[1], (f"{recipe}+pretrained", 0), (f"{recipe}+pretrained", 1)]
    assert len({job.training.folder(tmp_path) for job in found}) == 8


def test_one_training_from_another_names_its_checkpoint(table, tmp_path):
    job = job_of(table.by_place["plus", "pattern"], 3, Request(), tmp_path)
    assert job.before is not None
    assert (job.before.name, job.before.seed) == ("sfi-former-pattern+dense", 3)
    best = job.before.folder(tmp_path) / "checkpoints" / "best.ckpt"
    assert job.training.options[-1] == f"--model.init_from={best}"
    dense = find_table("sfi-former/table-2").by_place["dfi-former", "pattern"]
    assert job_of(dense, 3, Request(), tmp_path).training.folder(tmp_path) == job.before.folder(tmp_path)


def test_a_short_training_is_a_twentieth_with_its_schedule(table):
    words = scaled(table.by_place["ours", "pattern"], Request("short"))
    assert words == ("--trainer.max_epochs=10", "--model.schedule.warmup=1")
    deep = find_table("deepgraph/table-1").by_place["deepgraph-12", "cluster"]
    assert scaled(deep, Request("short")) == ("--trainer.max_steps=2000", "--model.schedule.warmup=15")
    assert scaled(table.by_place["ours", "pattern"], Request()) == ()


def test_milestones_of_a_short_training_come_as_early_and_apart(table, monkeypatch):
    cell = find_table("sft/table-2").by_place["point-transformer", "oa"]
    assert scaled(cell, Request("short")) == ("--trainer.max_epochs=10", "--model.schedule.milestones=[6, 8]")
    near = {"model.schedule.milestones": [4, 30, 35, 160]}
    monkeypatch.setattr(plan, "setting", lambda recipe, name: near.get(name))
    words = scaled(table.by_place["ours", "pattern"], Request("short"))
    assert words[1:] == ("--model.schedule.milestones=[1, 2, 3, 8]",)


def test_a_smoke_test_is_two_steps_on_data_at_hand(table, tmp_path):
    words = scaled(table.by_place["ours", "pattern"], Request("smoke"))
    assert {"--data.init_args.source=generated", "--trainer.limit_train_batches=2"} <= set(words)
    assert "--data.init_args.source=generated" in scaled(table.by_place["ours", "pattern"], Request(offline=True))
    coco = find_table("sfi-former/table-1")
    (first, *_) = jobs(select(coco, columns=["coco-sp"]), Request("smoke"), tmp_path)
    assert {"--data=graphbench.testing.stand_in.StandIn", "--data.init_args.of=COCOSP"} <= set(first.training.options)


def test_every_recipe_smokes_and_a_line_counts_what_is_left_out(tmp_path):
    for table in tables().values():
        trained = [cell for cell in table.cells if cell.way == "recipe"]
        folders = {job.training.folder(tmp_path) for job in jobs(table.cells, Request("smoke"), tmp_path)}
        for cell in trained:
            assert job_of(cell, 0, Request("smoke"), tmp_path).training.folder(tmp_path) in folders
    cells = find_table("sfi-former/table-1").cells
    counts = [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", coverage(cells, "smoke"))]
    ways = Counter(cell.way for cell in cells)
    assert counts[:2] == [len(cells), ways["recipe"]]
    assert counts[2] == sum(cell.way == "recipe" and not can_be_offline(cell.recipe) for cell in cells)
    assert sum(counts[4:5]) == sum(ways[way] for way in ("missing", "unwritten", "quoted", "script"))


def test_an_unknown_scale_is_refused():
    with pytest.raises(BadInput, match="--scale must be one of full, short, smoke"):
        Request("long")  # type: ignore[arg-type]


def test_names_tell_length_data_and_options_apart():
    names = {
        run_name(["sft/listops"], options, request)
        for options in ([], ["--a.b=1"], ["--a.b=2"])
        for request in (Request(), Request("short"), Request("smoke"), Request(offline=True))
    }
    assert len(names) == 12
    assert run_name(["sft/listops"], [], Request("smoke", offline=True)) == "sft-listops.smoke"


@pytest.fixture
def three(table, tmp_path):
    training = job_of(table.by_place["ours", "pattern"], 0, Request(), tmp_path).training
    return Job(training, starts=3)


def test_the_best_start_is_trained(three, finish, tmp_path):
    trials = three.trials()
    assert [trial.seed for trial in trials] == [0, 1, 2]
    assert all("--trainer.max_epochs=1" in trial.options for trial in trials)
    assert three.chosen(tmp_path) is None
    for trial, score in zip(trials, (0.6, 0.8, 0.7), strict=True):
        finish(trial.folder(tmp_path), score)
    assert three.chosen(tmp_path).seed == 1
    for trial, score in zip(trials, (0.6, 0.8, 0.7), strict=True):
        finish(trial.folder(tmp_path), score, higher_is_better=False)
    assert three.chosen(tmp_path).seed == 0
    assert not three.is_finished(tmp_path)


def test_seeds_of_starts_never_meet(tmp_path):
    cell = find_table("electric-flow/table-2").by_place["gt-linear-transformer", "qm9"]
    first, second = (job_of(cell, seed, Request(), tmp_path) for seed in (0, 1))
    assert {trial.seed for trial in first.trials()} == {0, 1, 2}
    assert {trial.seed for trial in second.trials()} == {100, 101, 102}
    assert second.before.seed == 1
    assert job_of(cell, 0, Request("smoke"), tmp_path).trials() == []
