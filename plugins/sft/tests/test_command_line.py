"""SFT as users start it: precisions, and options that are refused before training."""

from pathlib import Path

import pytest
from quick import slow

from graphbench.cli import main

CONFIGS = Path(__file__).parents[1] / "configs"
OPTION = "--model.architecture.init_args"
SMALL = [
    "--config", str(CONFIGS / "reduced" / "solids.yaml"),
    "--data.init_args.sizes", "[16,8,8]",
    "--data.init_args.num_points", "12",
    "--data.init_args.batch_size", "8",
    f"{OPTION}.hidden_dim", "16",
    f"{OPTION}.num_layers", "2",
    f"{OPTION}.num_samples", "4",
    f"{OPTION}.readout_samples", "4",
    f"{OPTION}.token_drop", "0.3",
    f"{OPTION}.score_dropout", "0.1",
    "--trainer.max_steps", "2",
    "--trainer.accelerator", "cpu",
    "--trainer.enable_model_summary", "false",
]  # fmt: skip


def fit(tmp_path, *options):
    folders = ["--data.root", str(tmp_path / "data"), "--data.store", str(tmp_path / "store")]
    return ["fit", *SMALL, *folders, "--run", str(tmp_path / "run"), *options]


@pytest.mark.parametrize(
    ("precision", "relative"),
    [
        ("bf16-true", "none"),
        ("64-true", "none"),
        slow("bf16-mixed", "none"),
        slow("32", "none"),
        ("bf16-true", "distances"),
    ],
)
def test_two_steps_in_every_precision(tmp_path, precision, relative):
    assert main([*fit(tmp_path, "--trainer.precision", precision, f"{OPTION}.relative", relative)]) == 0
    assert (tmp_path / "run" / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("num_heads", "0", "num_heads must be an integer of at least 1, but got 0"),
        ("num_heads", "3", "num_heads must divide hidden_dim, but got num_heads=3 and hidden_dim=16"),
        ("num_samples", "null", "num_samples must be an integer of at least 1, but got None"),
        ("num_samples", "2.5", "num_samples is '2.5'; expected int"),
        ("num_samples", "0", "num_samples must be an integer of at least 1, but got 0"),
        ("token_drop", "null", "token_drop must be at least 0 and below 1, but got None"),
        ("temperature", "null", "temperature must be above 0 and below inf, but got None"),
        ("temperature", ".nan", "temperature must be above 0 and below inf, but got nan"),
        ("evaluation", "mean", "evaluation is 'mean'; expected one of 'as_trained', 'topk'"),
        ("evaluation", "null", "evaluation must be one of as_trained, topk, but got None"),
    ],
)
def test_bad_options_are_one_sentence(tmp_path, capsys, option, value, expected):
    assert main(fit(tmp_path, f"{OPTION}.{option}", value)) == 1
    message = capsys.readouterr().err
    assert expected in message
    assert "Traceback" not in message


def test_the_setting_of_figure_6_trains(tmp_path):
    """Coordinates in the tokens and distances in the scores, second curve."""
    overlays = [str(CONFIGS / "overlays" / f"{name}.yaml") for name in ("distances-too", "softmax")]
    figure = ["--config", overlays[0], "--config", overlays[1]]
    arguments = fit(tmp_path)
    assert main([*arguments[:3], *figure, *arguments[3:]]) == 0
    text = (tmp_path / "run" / "config.yaml").read_text()
    for line in ("relative: distances", "places_in_tokens: true", "attention: softmax_dot", "evaluation: as_trained"):
        assert line in text
