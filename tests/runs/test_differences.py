"""Configurations compared by meaning, with each other and with a checkpoint's options."""

from __future__ import annotations

import pytest

from graphbench import registry
from graphbench.runs.differences import NOTHING, Difference, differing, differing_options

BEFORE = {
    "seed_everything": 0,
    "data": {
        "class_path": "graphbench.benchmarks.NCI",
        "init_args": {"root": "a", "seed": None, "fractions": [0.8, 0.2], "source": "mine.csv"},
    },
    "model": {
        "architecture": {
            "class_path": "old.place.GPS",
            "init_args": {"num_heads": 4, "encoders": [{"class_path": "x.RWSE", "init_args": {"steps": 8}}]},
        },
        "compile": False,
        "lr_scales": {"head": 2.0},
        "metrics": None,
    },
    "trainer": {"max_epochs": 3, "callbacks": None, "devices": 1},
}


def changed(*path, to):
    """Return the configuration with one value replaced."""

    def put(content, keys):
        return {**content, keys[0]: put(content[keys[0]], keys[1:]) if len(keys) > 1 else to}

    return put(BEFORE, path)


@pytest.mark.parametrize(
    "now",
    [
        BEFORE,
        changed("data", "class_path", to="graphbench.benchmarks.molecules.NCI"),
        changed("data", "init_args", "fractions", to=(0.8, 0.2)),
        changed("trainer", "max_epochs", to=3.0),
        changed("trainer", "callbacks", to=[]),
        changed("model", "architecture", "init_args", to={**BEFORE["model"]["architecture"]["init_args"], "later": 1}),
    ],
)
def test_the_same_by_meaning(now):
    assert differing(BEFORE, now) == []
    assert differing(now, BEFORE) == []


@pytest.mark.parametrize(
    ("now", "found"),
    [
        (changed("data", "init_args", "seed", to=1), Difference("data.seed", None, 1)),
        (
            changed("data", "init_args", "fractions", to=[0.7, 0.3]),
            Difference("data.fractions", [0.8, 0.2], [0.7, 0.3]),
        ),
        *(
            (changed("data", "init_args", "source", to=to), Difference("data.source", "mine.csv", to))
            for to in ("other.csv", "OTHER.CSV", ["mine.csv"])
        ),
        (changed("model", "compile", to=True), Difference("model.compile", False, True)),
        (changed("model", "compile", to=0), Difference("model.compile", False, 0)),
        (
            changed("model", "architecture", to=BEFORE["model"]["architecture"] | {"dict_kwargs": {"depth": 3}}),
            Difference("model.architecture.dict_kwargs.depth", NOTHING, 3),
        ),
        (changed("model", "lr_scales", "head", to=3.0), Difference("model.lr_scales.head", 2.0, 3.0)),
        (changed("model", "lr_scales", to={"head": 2.0, "a": 1.0}), Difference("model.lr_scales.a", NOTHING, 1.0)),
        (
            changed(
                "model", "architecture", "init_args", "encoders", to=[{"class_path": "RWSE", "init_args": {"steps": 9}}]
            ),
            Difference("model.architecture.encoders.RWSE.steps", 8, 9),
        ),
        (changed("trainer", "callbacks", to=["a.Timer"]), Difference("trainer.callbacks.Timer", NOTHING, "a.Timer")),
    ],
)
def test_each_difference_is_named(now, found):
    assert differing(BEFORE, now) == [found]


def test_options_without_a_declaration_count_in_every_place():
    """`dict_kwargs` is next to `init_args`, of one class and of those in a list."""
    options = [{"class_path": "x.Own", "dict_kwargs": {"depth": depth, "same": [1, 2]}} for depth in (2, 3)]
    for place, inside in (("model.optimizer", "model.optimizer"), ("trainer.callbacks", "trainer.callbacks.Own")):
        top, name = place.split(".")
        two = [{top: {name: [one] if name == "callbacks" else one}} for one in options]
        assert differing(*two) == [Difference(f"{inside}.dict_kwargs.depth", 2, 3)]


def test_another_class_is_one_difference():
    other = {"class_path": "x.GT", "init_args": {"dim": 3}}
    (found,) = differing(BEFORE, changed("model", "architecture", to=other))
    assert str(found) == "model.architecture is GT instead of GPS"
    assert str(Difference("data.source", "mine.csv", "other.csv")) == 'data.source is "other.csv" instead of "mine.csv"'


def test_items_of_a_list_are_found_by_class_and_their_order_counts():
    one, two = {"class_path": "a.One", "init_args": {"x": 1}}, {"class_path": "a.Two", "init_args": {"x": 1}}
    first = {"callbacks": [one, two, {**two, "init_args": {"x": 2}}]}
    second = {"callbacks": [two, one, {**two, "init_args": {"x": 3}}]}
    assert [one.option for one in differing(first, second)] == ["callbacks.Two-2.x", "callbacks"]


@pytest.mark.parametrize(
    ("option", "decides"),
    [
        ("seed_everything", False), ("data", True), ("data.root", False), ("data.graphs.store", False),
        ("data.batch_size", True), ("data.split_seed", True), ("model.compile", False), ("model.optimizer.lr", True),
        ("model.architecture", True), ("model.metrics", False), ("trainer.limit_train_batches", True),
        ("trainer.devices", True), ("trainer.accelerator", False),
        ("trainer.max_epochs", False), ("trainer.precision", True),
        ("trainer.gradient_clip_val", True), ("trainer.callbacks.EarlyStopping.patience", True),
        ("trainer.callbacks.AttentionCapacity", False), ("trainer.callbacks.RunProgressBar", False),
        ("expected.value", False),
    ],
)  # fmt: skip
def test_what_a_score_follows_from(option, decides):
    assert Difference(option, 1, 2).decides_score is decides


def test_no_score_follows_from_registered_callbacks_that_only_look():
    decisive = {name for name in registry.callbacks() if Difference(f"trainer.callbacks.{name}", 1, 2).decides_score}
    assert decisive == {"BatchNormMomentum"}


@pytest.mark.parametrize(
    ("devices", "several"),
    [(1, False), ("1", False), ("0,", False), ([0], False), (2, True), ("0,1", True), ([0, 1], True)],
)
def test_several_devices_multiply_the_batch_however_they_are_written(devices, several):
    assert Difference("trainer.devices", "auto", devices).decides_score is several


TRAINED = {
    "architecture": {"class_path": "package.GPS", "init_args": {"num_heads": 4, "dropout": 0.1, "encoders": [1, 2]}},
    "head": {"pooling": "mean"},
    "loss": "Quantile",
    "quantiles": [0.05, 0.5, 0.95],
    "lr_scales": None,
}


def test_equal_options_say_nothing():
    later = TRAINED["architecture"] | {"init_args": TRAINED["architecture"]["init_args"] | {"new": 3}}
    assert differing_options(TRAINED, TRAINED) == []
    assert differing_options(TRAINED | {"architecture": later, "lr_scales": {"a": 2}}, TRAINED) == []
    assert differing_options(TRAINED | {"head": {}}, TRAINED) == []
    assert differing_options(TRAINED | {"head": {"layers": []}}, TRAINED | {"head": {"layers": ()}}) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"head": {"pooling": "sum"}}, 'model.head.pooling is "sum" instead of "mean"'),
        (
            {"architecture": {"class_path": "x.GPS", "init_args": {"num_heads": 8, "encoders": [1, 2]}}},
            "model.architecture.num_heads is 8 instead of 4",
        ),
        (
            {"architecture": {"class_path": "x.GPS", "init_args": {"num_heads": 4, "encoders": [1, 2, 3]}}},
            "model.architecture.encoders is [1, 2, 3] instead of [1, 2]",
        ),
        (
            {"architecture": {"class_path": "x.GT", "init_args": {"num_heads": 4, "encoders": [1, 2]}}},
            "model.architecture is GT instead of GPS",
        ),
        ({"loss": "L1"}, 'model.loss is "L1" instead of "Quantile"'),
        ({"quantiles": [0.1, 0.5, 0.95]}, "model.quantiles is [0.1, 0.5, 0.95] instead of [0.05, 0.5, 0.95]"),
    ],
)
def test_what_differs_is_named(options, told):
    assert differing_options(TRAINED | options, TRAINED) == [told]
