"""Losses and metrics that a user selects, compared with closed forms and other libraries."""

import dataclasses
import re

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as reference
from torch.nn import functional as F
from torchmetrics.classification import MultilabelHammingDistance
from torchmetrics.functional.classification import multiclass_calibration_error
from torchmetrics.regression import ExplainedVariance

from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput, UnknownName
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.tasks import build_task
from graphbench.training.tasks.scores import Scores, SplitScores

ROWS = 40


def scored(task, output, y, parts=2):
    """Return the scores of all rows, added in `parts` batches."""
    scores = SplitScores(task, "val")
    for rows in torch.arange(len(y)).chunk(parts):
        scores.update(task, output[rows], GraphBatch(y=y[rows], num_graphs=len(rows)))
    return {name.removeprefix("val/"): float(value) for name, value in scores.finish().items()}


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_regression_scores_are_means_over_targets_of_their_known_rows():
    task = build_task(tiny_spec(), 8, HeadConfig(), metrics=["r2", "Spearman", "PEARSON", "explained_variance", "mse"])
    y, output = numbers(ROWS, 2), numbers(ROWS, 2, seed=1) * 0.3
    output += y
    y[::7, 1] = torch.nan
    got = scored(task, output, y)
    columns = [(y[~y[:, c].isnan(), c].numpy(), output[~y[:, c].isnan(), c].numpy()) for c in range(2)]
    assert got["R2"] == pytest.approx(np.mean([reference.r2_score(t, p) for t, p in columns]), rel=1e-5)
    assert got["Spearman"] == pytest.approx(np.mean([stats.spearmanr(t, p)[0] for t, p in columns]), rel=1e-5)
    assert got["Pearson"] == pytest.approx(np.mean([stats.pearsonr(t, p)[0] for t, p in columns]), rel=1e-5)
    explained = np.mean([reference.explained_variance_score(t, p) for t, p in columns])
    assert got["explained_variance"] == pytest.approx(explained, rel=1e-5)
    assert got["MSE"] == pytest.approx(got["RMSE"] ** 2, rel=1e-5)


def test_classes_are_scored_by_name():
    task = build_task(tiny_spec("graph-classification"), 8, HeadConfig(), metrics=["MCC", "kappa", "ECE"])
    output, y = numbers(ROWS, 3), torch.arange(ROWS)[:, None] % 3
    output[:, 0] += (y[:, 0] == 0).float()
    got, guess = scored(task, output, y), output.argmax(1)
    assert got["MCC"] == pytest.approx(reference.matthews_corrcoef(y[:, 0], guess), rel=1e-5)
    assert got["kappa"] == pytest.approx(reference.cohen_kappa_score(y[:, 0], guess), rel=1e-5)
    assert got["ECE"] == pytest.approx(float(multiclass_calibration_error(output, y[:, 0], 3)), rel=1e-5)


def test_two_classes_with_one_logit():
    spec = dataclasses.replace(tiny_spec("graph-classification"), num_classes=2)
    paths = ["MCC", "AP", "torchmetrics.classification.BinaryF1Score"]
    task = build_task(spec, 8, HeadConfig(), metrics=paths)
    output, y = numbers(ROWS, 1), (torch.arange(ROWS)[:, None] % 3 == 0).long()
    got = scored(task, output, y)
    assert got["AP"] == pytest.approx(reference.average_precision_score(y[:, 0], output[:, 0]), rel=1e-5)
    assert got["MCC"] == pytest.approx(reference.matthews_corrcoef(y[:, 0], output[:, 0] > 0), rel=1e-5)
    assert got["BinaryF1Score"] == pytest.approx(reference.f1_score(y[:, 0], output[:, 0] > 0), rel=1e-5)


def test_unknown_labels_do_not_count():
    task = build_task(tiny_spec("graph-multilabel"), 8, HeadConfig(), metrics=["MCC", "accuracy"])
    output, y = numbers(ROWS, 3), (numbers(ROWS, 3, seed=2) > 0).float()
    y[::5, 0] = torch.nan
    known = ~y.isnan()
    got = scored(task, output, y)
    right = [float(((output[known[:, c], c] > 0) == y[known[:, c], c].bool()).double().mean()) for c in range(3)]
    assert got["accuracy"] == pytest.approx(np.mean(right), rel=1e-5)
    correlations = [
        reference.matthews_corrcoef(y[known[:, c], c].numpy(), (output[known[:, c], c] > 0).numpy()) for c in range(3)
    ]
    assert got["MCC"] == pytest.approx(np.mean(correlations), rel=1e-4)
    other = build_task(tiny_spec("graph-multilabel"), 8, HeadConfig(), metrics=[MultilabelHammingDistance(3)])
    with pytest.raises(BadInput, match="MultilabelHammingDistance ignore_index: -1"):
        scored(other, output, y)


def test_metrics_of_torchmetrics_by_path_and_options():
    chosen = [
        "torchmetrics.regression.ExplainedVariance",
        {"class_path": "torchmetrics.regression.MinkowskiDistance", "init_args": {"p": 3}},
    ]
    task = build_task(tiny_spec(), 8, HeadConfig(), metrics=chosen)
    y, output = numbers(ROWS, 2), numbers(ROWS, 2, seed=1)
    got, own = scored(task, output, y), ExplainedVariance()
    own.update(output.flatten(), y.flatten())
    assert got["ExplainedVariance"] == pytest.approx(float(own.compute()), rel=1e-5)
    assert got["MinkowskiDistance"] == pytest.approx(float((y - output).abs().pow(3).sum() ** (1 / 3)), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "hubert"}, UnknownName, "Did you mean Huber"),
        ({"loss": "focal"}, UnknownName, "loss of graph-regression"),
        ({"metrics": ["R3"]}, UnknownName, "Did you mean R2"),
        ({"metrics": ["R2", "r2"]}, BadInput, "R2 is scored already"),
        ({"metrics": ["torchmetrics.nothing.Here"]}, BadInput, "torchmetrics.nothing.Here"),
        ({"metrics": ["torch.nn.Identity"]}, BadInput, "Identity is not a torchmetrics metric"),
        ({"metrics": ["torchmetrics.classification.MulticlassAccuracy"]}, BadInput, "init_args"),
        ({"select_by": "R2"}, UnknownName, r"Add others with --model\.metrics"),
    ],
)
def test_wrong_choices_are_told(options, error, message):
    with pytest.raises(error, match=message):
        build_task(tiny_spec(), 8, HeadConfig(), **options)


@pytest.mark.parametrize(
    "kind", ["graph-regression", "graph-classification", "graph-multilabel", "node-classification"]
)
def test_a_metric_that_is_scored_anyway_may_be_asked_for(kind):
    plain = build_task(tiny_spec(kind), 8, HeadConfig()).all_metrics()
    for name in plain:
        assert list(build_task(tiny_spec(kind), 8, HeadConfig(), metrics=[name.upper()]).all_metrics()) == list(plain)


def test_tasks_with_scores_of_their_own_take_no_others():
    with pytest.raises(BadInput, match="link-ranking has its own metrics"):
        build_task(tiny_spec("link-ranking"), 8, HeadConfig(), metrics=["torchmetrics.MeanMetric"])


def test_the_metric_that_selects_brings_its_direction():
    task = build_task(tiny_spec(), 8, HeadConfig(), metrics=["spearman"], select_by="SPEARMAN")
    assert (task.spec.metric, task.spec.higher_is_better) == ("Spearman", True)
    task = build_task(tiny_spec("graph-classification"), 8, HeadConfig(), metrics=["ECE"], select_by="ECE")
    assert (task.spec.metric, task.spec.higher_is_better) == ("ECE", False)
    by_benchmark = dataclasses.replace(tiny_spec(), metric="R2", higher_is_better=True)
    for further in ((), ["r2"], [ExplainedVariance()]):
        assert "R2" in build_task(by_benchmark, 8, HeadConfig(), metrics=further).all_metrics()


def test_huber_is_quadratic_up_to_one():
    task = build_task(tiny_spec(), 8, HeadConfig(), loss="huber")
    y, output = torch.zeros(3, 2), torch.tensor([[0.5, 1.0], [2.0, -3.0], [0.0, 9.0]])
    y[2, 1] = torch.nan
    assert float(task.loss(output, GraphBatch(y=y))) == pytest.approx((0.125 + 0.5 + 1.5 + 2.5 + 0.0) / 5)


def test_focal_losses_against_their_formula():
    logits, y = numbers(ROWS, 3).double(), torch.arange(ROWS)[:, None] % 3
    p = logits.softmax(1).gather(1, y)
    task = build_task(tiny_spec("graph-classification"), 8, HeadConfig(), loss="focal")
    torch.testing.assert_close(task.loss(logits, GraphBatch(y=y)), (-((1 - p) ** 2) * p.log()).mean())
    labels = (numbers(ROWS, 3, seed=2) > 0).double()
    task = build_task(tiny_spec("graph-multilabel"), 8, HeadConfig(), loss="focal")
    chance = torch.where(labels > 0, logits.sigmoid(), 1 - logits.sigmoid())
    expected = (-((1 - chance) ** 2) * chance.log()).mean()
    torch.testing.assert_close(task.loss(logits, GraphBatch(y=labels)), expected)
    assert expected < F.binary_cross_entropy_with_logits(logits, labels)


def log_cosh(prediction, target):
    return (prediction - target).cosh().log()


@pytest.mark.parametrize(
    ("task", "path", "expected"),
    [
        ("graph-regression", "torch.nn.SmoothL1Loss", torch.nn.SmoothL1Loss()),
        ("node-regression", f"{__name__}.log_cosh", lambda p, t: (p - t).cosh().log().mean()),
        ("graph-classification", "torch.nn.CrossEntropyLoss", torch.nn.CrossEntropyLoss()),
        ("node-classification", "torch.nn.functional.multi_margin_loss", torch.nn.MultiMarginLoss()),
        ("graph-multilabel", "torch.nn.SoftMarginLoss", torch.nn.SoftMarginLoss()),
        ("node-multilabel", "torch.nn.functional.soft_margin_loss", torch.nn.SoftMarginLoss()),
    ],
)
def test_a_loss_by_its_path_is_that_loss_of_the_known_rows(task, path, expected):
    spec = tiny_spec(task)
    made = build_task(spec, 8, HeadConfig(), loss=path)
    batch = tiny_table(spec, num_graphs=4).batch(range(4))
    output = torch.randn(int(batch.num_nodes) if spec.level == "node" else 4, spec.output_dim)
    if spec.kind == "classification":
        value = expected(output, batch.y.reshape(-1).long())
    else:
        batch.y[0, 0] = torch.nan
        known = ~batch.y.isnan()
        value = expected(output[known], batch.y[known])
    torch.testing.assert_close(made.loss(output, batch), value)
    assert made.spec.loss == path


def test_two_classes_have_two_logits_in_a_loss_by_its_path():
    spec = dataclasses.replace(tiny_spec("graph-classification"), num_classes=2)
    made = build_task(spec, 8, HeadConfig(), loss="torch.nn.CrossEntropyLoss")
    output, batch = torch.randn(3, 1), GraphBatch(y=torch.tensor([[0], [1], [1]]))
    expected = F.binary_cross_entropy_with_logits(output[:, 0], batch.y[:, 0].float())
    torch.testing.assert_close(made.loss(output, batch), expected)


def of_three(prediction, target, weight):
    return (weight * (prediction - target)).mean()


class OfOne(torch.nn.Module):
    def forward(self, prediction):
        return prediction.mean()


NO_LOSSES = ["torch.nn.NoSuchLoss", "no_such_package.Loss", "torch.pi", "torch.nn.Linear"]


@pytest.mark.parametrize("path", [*NO_LOSSES, f"{__name__}.of_three", f"{__name__}.OfOne"])
def test_a_path_that_leads_to_no_loss_is_refused_by_name(path):
    with pytest.raises(BadInput, match=re.escape(path)):
        build_task(tiny_spec(), 8, HeadConfig(), loss=path)


def gives_a_number(prediction, target):
    return float((prediction - target).abs().mean())


def gives_nothing(prediction, target):
    (prediction - target).abs()


def gives_no_gradient(prediction, target):
    return (prediction - target).abs().detach()


def gives_pairs(prediction, target):
    return torch.stack([prediction, target])


@pytest.mark.parametrize("loss", [gives_a_number, gives_nothing, gives_no_gradient, gives_pairs])
def test_a_loss_that_gives_something_else_is_refused(loss):
    spec = tiny_spec()
    made = build_task(spec, 8, HeadConfig(), loss=f"{__name__}.{loss.__name__}")
    output = torch.randn(4, spec.output_dim, requires_grad=True)
    with pytest.raises(BadInput, match="loss"):
        made.loss(output, tiny_table(spec, num_graphs=4).batch(range(4)))


def test_a_mean_cannot_weigh_rows():
    spec = tiny_spec()
    made = build_task(spec, 8, HeadConfig(), loss="torch.nn.functional.smooth_l1_loss")
    batch = tiny_table(spec, num_graphs=4).batch(range(4))
    batch.weight = torch.ones(4, 1)
    with pytest.raises(BadInput, match="weights"):
        made.loss(torch.randn(4, spec.output_dim), batch)


BY_CLASS = {"class_path": "torchmetrics.classification.MulticlassRecall", "init_args": {"num_classes": 3}}


@pytest.mark.parametrize("level", ["graph", "node", "edge"])
def test_a_metric_by_class_has_a_score_for_each(level):
    """Recalls by class equal those of scikit-learn."""
    each = {**BY_CLASS, "init_args": {"num_classes": 3, "average": "none", "ignore_index": -1}}
    spec = dataclasses.replace(tiny_spec(f"{level}-classification"), num_classes=3, target_names=("a", "b", "c"))
    task = build_task(spec, 8, HeadConfig(), metrics=[each])
    scores = Scores(task).of("test")
    assert {f"test/MulticlassRecall/{name}" for name in "abc"} <= set(scores.names)
    generator = torch.Generator().manual_seed(0)
    predictions, truth = torch.rand(40, 3, generator=generator), torch.randint(0, 3, (40, 1), generator=generator)
    scores.add(task, predictions.softmax(1), truth)
    found = scores.finish()
    expected = reference.recall_score(truth[:, 0], predictions.argmax(1), average=None)
    assert [float(found[f"test/MulticlassRecall/{name}"]) for name in "abc"] == pytest.approx(expected.tolist())
    with pytest.raises(BadInput, match="a number for each class"):
        build_task(spec, 8, HeadConfig(), metrics=[each], select_by="MulticlassRecall")


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"class_path": "torchmetrics.classification.MulticlassConfusionMatrix", "init_args": {"num_classes": 3}},
         "gives 9 numbers instead of one"),
        ({**BY_CLASS, "init_args": {"num_classes": 4}}, "MulticlassRecall does not fit graph-classification"),
        ({"class_path": "torchmetrics.classification.MulticlassROC", "init_args": {"num_classes": 3}}, "gives a tuple"),
    ],
)  # fmt: skip
def test_a_metric_that_is_no_number_is_one_line(choice, said):
    task = build_task(tiny_spec("graph-classification"), 8, HeadConfig(), metrics=[choice])
    scores = Scores(task).of("val")

    def score():
        scores.add(task, torch.rand(6, 3).softmax(1), torch.tensor([[0], [1], [2], [0], [1], [2]]))
        scores.finish()

    with pytest.raises(BadInput, match=said):
        score()
