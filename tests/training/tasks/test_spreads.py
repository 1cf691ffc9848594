"""Regressions that learn a variance or quantiles: against other libraries, known samples and by command."""

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from sklearn.metrics import mean_pinball_loss

import graphbench
from graphbench.cli import main
from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec
from graphbench.training.tasks import build_task
from graphbench.training.tasks.spreads import GaussianSpread, QuantileSpread, quantile_levels

LEVELS = (0.1, 0.25, 0.5, 0.9)


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def fitted(task, y):
    """Return one output for all rows, fitted by 300 steps on the loss."""
    width = task.head.mlp.layers[-1].out_features
    output = torch.zeros(1, width, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([output], lr=0.05)
    batch = GraphBatch(y=y)
    for step in range(300):
        optimizer.param_groups[0]["lr"] = 0.1 * (1 - step / 300)
        optimizer.zero_grad()
        task.loss(output.expand(len(y), -1), batch).backward()
        optimizer.step()
    return output.detach()


def test_the_likelihood_is_that_of_torch():
    output, y = numbers(40, 4), numbers(40, 2, seed=1)
    variance = torch.nn.functional.softplus(output[:, 2:]) + 1e-6
    expected = torch.nn.GaussianNLLLoss(eps=1e-12)(output[:, :2], y, variance)
    task = build_task(tiny_spec(), 8, HeadConfig(), loss="gaussian").double()
    assert float(task.loss(output, GraphBatch(y=y))) == pytest.approx(float(expected), rel=1e-10)


def test_the_pinball_loss_is_that_of_scikit_learn_and_quantiles_never_cross():
    output, y = 3 * numbers(40, 8), numbers(40, 2, seed=1)
    task = build_task(tiny_spec(), 8, HeadConfig(), loss="QUANTILE", quantiles=LEVELS).double()
    found = task.spread.quantiles(output)
    assert (found.diff(dim=2) > 0).all()
    assert torch.equal(found[..., 2], output[:, :2])  # the median
    losses = [mean_pinball_loss(y, found[..., place], alpha=level) for place, level in enumerate(LEVELS)]
    assert float(task.loss(output, GraphBatch(y=y))) == pytest.approx(np.mean(losses), rel=1e-10)
    y[::3, 1] = torch.nan
    known = ~y.isnan()
    losses = [mean_pinball_loss(y[known], found[..., place][known], alpha=a) for place, a in enumerate(LEVELS)]
    assert float(task.loss(output, GraphBatch(y=y))) == pytest.approx(np.mean(losses), rel=1e-10)


def test_what_is_learned_of_a_sample_is_its_deviation_or_its_quantiles():
    y = torch.stack([numbers(400).exp(), 5 + 3 * numbers(400, seed=1)], dim=1)
    batch = GraphBatch(y=y)
    task = build_task(tiny_spec(), 8, HeadConfig(), loss="Gaussian").double()
    task.standardize(y)
    output = fitted(task, y)
    assert task.predict(output, batch)[0][0].numpy() == pytest.approx(y.mean(0).numpy(), abs=0.02)
    assert task.spreads(output)[0].numpy() == pytest.approx(y.std(0, correction=0).numpy(), rel=0.01)
    task = build_task(tiny_spec(), 8, HeadConfig(), loss="Quantile", quantiles=LEVELS).double()
    task.standardize(y)
    output = fitted(task, y)
    assert task.predict(output, batch)[0][0].numpy() == pytest.approx(y.quantile(0.5, 0).numpy(), abs=0.05)
    expected = np.quantile(y.numpy(), [0.1, 0.25, 0.9], axis=0).T.ravel()
    assert task.spreads(output)[0].numpy() == pytest.approx(expected, abs=0.15)


def test_several_models_are_a_mixture():
    generator = np.random.RandomState(0)
    means, deviations = generator.normal(0, 2, (3, 5, 2)), generator.uniform(0.5, 2, (3, 5, 2))
    found = GaussianSpread().pooled(np.concatenate([means, deviations], axis=2), 2)
    draws = means[:, None] + deviations[:, None] * generator.standard_normal((3, 200_000, 5, 2))
    every = draws.reshape(-1, 5, 2)
    assert found[:, :2] == pytest.approx(every.mean(0), abs=0.02)
    assert found[:, 2:] == pytest.approx(every.std(0), rel=0.01)
    quantiles = generator.normal(0, 1, (3, 5, 4))
    assert QuantileSpread().pooled(quantiles, 2) == pytest.approx(quantiles.mean(0))


@pytest.mark.parametrize(
    "levels", [(0.1, 0.9), (0.5,), (0.0, 0.5), (0.5, 0.5), (0.5, 1.0), (0.1, float("nan"), 0.5, 0.9)]
)
def test_levels_that_are_none_are_told(levels):
    with pytest.raises(BadInput, match=r"quantiles must be different levels .*0\.5 \(the prediction\)"):
        quantile_levels(levels)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Return options for a file of molecules with two targets each."""
    folder = tmp_path_factory.mktemp("own")
    rows = [f"C1{'C' * size}C1{chain}" for chain in ("", "C", "O", "CC", "N") for size in range(1, 7)]
    lines = [f"{smiles},{100 + len(smiles)},{number % 7}" for number, smiles in enumerate(rows)]
    (folder / "own.csv").write_text("\n".join(["smiles,size,rest", *lines]) + "\n")
    data = ["--data", "Molecules", "--data.file", str(folder / "own.csv"), "--data.target", "[size, rest]"]
    return [*data, "--data.root", str(folder), *SMALL_MODEL, "--trainer.max_epochs", "1"]


@pytest.fixture
def predicted(tmp_path):
    """Return a function that runs `predict` and reads the table it writes."""

    def predicted(*words):
        assert main(["predict", *words, "--output", str(tmp_path / "out.csv")]) == 0
        return pd.read_csv(tmp_path / "out.csv")

    return predicted


@pytest.fixture
def new(tmp_path):
    (tmp_path / "new.csv").write_text("smiles\nC1CC1\nno molecule\nCCO\n")
    return ["--input", str(tmp_path / "new.csv")]


@pytest.mark.slow
def test_two_runs_with_variances_are_told_as_their_mixture(options, tmp_path, predicted, new):
    runs = [str(tmp_path / f"run-{seed}") for seed in range(2)]
    chosen = ["--model.loss", "gaussian", "--model.standardize_targets", "true"]
    for seed, run in enumerate(runs):
        assert main(["fit", *options, *chosen, "--seed_everything", str(seed), "--run", run]) == 0
    one, other = (predicted("--run", run, *new) for run in runs)
    assert list(one)[1:-2] == ["prediction_size", "prediction_rest", "size_std", "rest_std"]
    assert one[["size_std", "rest_std"]].iloc[1].isna().all()
    both = predicted("--run", *runs, *new)
    assert list(both)[1:-2] == [*list(one)[1:-2], "spread_size", "spread_rest"]
    means = (one["prediction_size"] + other["prediction_size"]) / 2
    assert both["prediction_size"].to_numpy() == pytest.approx(means.to_numpy(), rel=1e-5, nan_ok=True)
    variance = (one["size_std"] ** 2 + other["size_std"] ** 2) / 2
    variance += (one["prediction_size"] - other["prediction_size"]) ** 2 / 4
    assert both["size_std"].to_numpy() ** 2 == pytest.approx(variance.to_numpy(), rel=1e-4, nan_ok=True)


@pytest.mark.slow
def test_quantiles_are_told_of_inputs_and_splits(options, tmp_path, predicted, new):
    run, beside = str(tmp_path / "run"), ["size_q0.1", "size_q0.8", "rest_q0.1", "rest_q0.8"]
    levels = ["--model.loss", "quantile", "--model.quantiles", "[0.1, 0.5, 0.8]"]
    assert main(["fit", *options, *levels, "--run", run]) == 0
    found = predicted("--run", run, *new)
    assert list(found)[1:-2] == ["prediction_size", "prediction_rest", *beside]
    assert (found["size_q0.1"] < found["prediction_size"]).tolist() == [True, False, True]
    assert (found["size_q0.8"] > found["prediction_size"]).tolist() == [True, False, True]
    split, interval = predicted("--run", run), predicted("--run", run, "--interval", "0.5")
    assert {*beside, "size_low", "size_high"} <= set(interval)
    for name in [*beside, "prediction_size"]:
        assert interval[name].to_numpy() == pytest.approx(split[name].to_numpy(), rel=1e-5)
    module = graphbench.BenchmarkModule.load_from_checkpoint(f"{run}/checkpoints/best.ckpt")
    assert module.task.spread_names == ("q0.1", "q0.8")
    assert main(["report", run]) == 0


def test_what_does_not_fit_is_one_line(options, tmp_path, capsys):
    for chosen, said in (
        (["--model.quantiles", "[0.1, 0.5]"], "quantiles is for the loss Quantile (--model.loss quantile), not for L1"),
        (["--model.loss", "quantile", "--model.quantiles", "[0.1, 0.9]"], "quantiles must be different levels"),
        (["--data", "CSL", "--model.quantiles", "[0.1, 0.5]"], "quantiles is for regressions; CSL is graph-class"),
    ):
        words = options if "--data" not in chosen else SMALL_MODEL
        assert main(["fit", *words, *chosen, "--run", str(tmp_path / "run")]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert said in told[0]
