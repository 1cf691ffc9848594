"""Options of a run's configuration beside those that its checkpoint was trained with."""

import pytest

from graphbench.runs.trained_options import differing_options

TRAINED = {
    "architecture": {"class_path": "package.GPS", "init_args": {"num_heads": 4, "dropout": 0.1, "encoders": [1, 2]}},
    "head": {"pooling": "mean"},
    "lr_scales": None,
}


def test_equal_options_say_nothing():
    later = TRAINED["architecture"] | {"init_args": TRAINED["architecture"]["init_args"] | {"new": 3}}
    assert differing_options(TRAINED, TRAINED) == []
    assert differing_options(TRAINED | {"architecture": later, "lr_scales": {"a": 2}}, TRAINED) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"head": {"pooling": "sum"}}, 'model.head.pooling is "sum" instead of "mean"'),
        ({"head": {}}, 'model.head.pooling is missing instead of "mean"'),
        (
            {"architecture": {"class_path": "x.GPS", "init_args": {"num_heads": 8, "encoders": [1, 2]}}},
            "model.architecture.num_heads is 8 instead of 4",
        ),
        (
            {"architecture": {"class_path": "x.GPS", "init_args": {"num_heads": 4, "encoders": [1, 2, 3]}}},
            "model.architecture.encoders.length is 3 instead of 2",
        ),
        (
            {"architecture": {"class_path": "x.GT", "init_args": {"num_heads": 4, "encoders": [1, 2]}}},
            'model.architecture.class_path is "GT" instead of "GPS"',
        ),
    ],
)
def test_what_differs_is_named(options, told):
    assert differing_options(TRAINED | options, TRAINED) == [told]
