"""Hours from measured seconds: by steps, by whole trainings, along a line of depths, or unknown."""

from __future__ import annotations

from math import ceil

import pytest

from graphbench.experiments.records import Record
from graphbench.experiments.reproduce.cost import Costs, line_at, step_of
from graphbench.experiments.reproduce.recipes import length_of, setting
from graphbench.experiments.reproduce.tables import tables

FLOW, ZINC = "electric-flow/figure-1-notebook", "benchmarking-gnns/zinc"


@pytest.fixture(scope="module")
def installed():
    return tables()


@pytest.fixture
def cell(installed):
    return lambda table, row, column: installed[table].by_place[row, column]


def record(cell, seconds, steps, options=None, **more):
    """Return a made-up record of a cell's recipe."""
    metric = cell.metric.removeprefix("test/")
    return Record(
        "trial", "one", cell.recipe, 0, metric, 1.0, options=cell.options if options is None else options,
        seconds=seconds, steps=steps, **more,
    )  # fmt: skip


def test_steps_of_a_short_training_are_those_of_the_whole_one(cell):
    one = cell(FLOW, "electric-csl", "layers-1")
    assert Costs([record(one, 100.0, 500)]).hours(one) == pytest.approx(3100 * 0.2 / 3600)


def test_epochs_are_counted_in_steps_of_the_whole_data(cell):
    """With a fifth of the graphs, a step takes as long and an epoch does not."""
    one = cell("sfi-former/table-2", "dfi-former", "pattern")
    options = (*one.options, "--data.init_args.train_fraction=0.2", "--data.init_args.source=generated",
               "--model.optimizer.init_args.lr=0.0005", "--trainer.max_epochs=10")  # fmt: skip
    found = step_of(one.recipe, one.options)
    assert step_of(one.recipe, options) == found
    batch, epochs = setting(one.recipe, "data.init_args.batch_size"), length_of(one).epochs
    for steps, stored in ((1250, 1250), (10 * ceil(2_000 / batch), None)):  # recorded, or those of ten epochs
        hours = Costs([record(one, steps * 0.5, stored, options, epochs=10)]).hours(one)
        assert hours == pytest.approx(epochs * ceil(10_000 / batch) * 0.5 / 3600)


def test_the_median_counts_where_a_step_was_measured_often(cell):
    one = cell(FLOW, "electric-csl", "layers-1")
    records = [record(one, seconds, 100) for seconds in (10.0, 20.0, 900.0)]
    assert Costs(records).hours(one) == pytest.approx(3100 * 0.2 / 3600)


def test_a_depth_lies_on_the_line_through_two_that_were_measured(cell):
    first, third, ninth = (cell(FLOW, "electric-csl", f"layers-{n}") for n in (1, 3, 9))
    one = [record(first, 200.0, 1000)]
    assert Costs(one).hours(ninth) is None, "one depth does not tell how a step grows"
    assert Costs([*one, record(third, 600.0, 1000)]).hours(ninth) == pytest.approx(40_100 * 1.8 / 3600)


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ("electric-fc-frozen", ()),
        ("electric-csl", ("--data.init_args.batch_size=1000",)),
        ("electric-csl", ("--model.architecture.init_args.form=efficient",)),
        ("electric-csl", ("--model.optimizer=torch.optim.SGD",)),
    ],
)
def test_another_model_batch_or_data_set_tells_nothing(cell, row, options):
    one, wanted = cell(FLOW, "electric-csl", "layers-1"), cell(FLOW, row, "layers-1")
    assert Costs([record(one, 100.0, 500, (*one.options, *options))]).hours(wanted) is None


def test_a_training_that_its_rate_ends_costs_what_whole_ones_took(cell):
    one = cell(ZINC, "gin", "layers-4")
    assert Costs([record(one, 50.0, 790, epochs=10)]).hours(one) is None, "its whole length is not known"
    assert Costs([record(one, 900.0, 11_850, epochs=150, full=True)]).hours(one) == pytest.approx(0.25)


def test_altered_runs_scripts_and_records_without_seconds_tell_nothing(cell):
    one = cell(FLOW, "electric-csl", "layers-1")
    altered = record(one, 100.0, 500, altered=("data.batch_size is 4 instead of 10000",))
    script = Record("trial", "one", ("a script",), 0, "log_loss", 1.0, seconds=5.0, steps=5)
    assert Costs([altered, script, record(one, None, 500)]).hours(one) is None


def test_a_line_that_falls_below_nothing_is_none():
    assert line_at([(8, 1.0), (9, 2.0)], 4) is None
    assert line_at([(1, 1.0), (2, 1.5), (3, 3.0)], 2) == pytest.approx(11 / 6)
