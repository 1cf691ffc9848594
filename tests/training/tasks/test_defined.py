"""Metrics of every task on splits that leave some undefined, compared with scikit-learn, SciPy or a definition."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sk
from torchmetrics import Metric

from graphbench.contracts import GraphBatch, Representation
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.tasks import TASKS, build_task
from graphbench.training.tasks.defined import TargetRange, TargetRanges
from graphbench.training.tasks.scores import SplitScores

ROW_TASKS = [name for name in TASKS if name not in ("link-ranking", "map-recovery")]


def task_of(name, classes=2, targets=1):
    spec = tiny_spec(name)
    if name.endswith("classification"):
        spec = dataclasses.replace(spec, num_classes=classes, extra={})
    else:
        spec = dataclasses.replace(spec, num_targets=targets, target_names=(), target_units=())
    plain = build_task(spec, 8, HeadConfig())
    return build_task(spec, 8, HeadConfig(), metrics=list(plain.named_metrics()))


def scores_of(task, predictions, targets):
    scores = SplitScores(task, "val")
    if len(targets):
        scores.add(task, torch.tensor(predictions), torch.tensor(targets))
    scores.has_loss = False
    values = {name.removeprefix("val/"): float(value) for name, value in scores.finish().items()}
    return values, {name.removeprefix("val/"): reason for name, reason in scores.undefined.items()}


def truth_of_classes(name, probabilities, classes):
    """Return a classification score from scikit-learn, NaN if the known rows leave it undefined."""
    known = classes >= 0
    truth, p = classes[known], probabilities[known]
    chosen = p.argmax(1)
    if not len(truth):
        return math.nan
    if name == "accuracy":
        return sk.accuracy_score(truth, chosen)
    if name == "ECE":
        return None  # compared with its definition elsewhere; here it must only be finite
    if name == "F1":
        return sk.f1_score(truth, chosen) if truth.any() else math.nan
    if len(set(truth)) < 2:
        return math.nan
    if name == "class_accuracy":
        return sk.recall_score(truth, chosen, average="macro", labels=sorted(set(truth) | set(chosen)), zero_division=0)
    if name == "macro_F1":
        return sk.f1_score(truth, chosen, average="macro", labels=sorted(set(truth) | set(chosen)), zero_division=0)
    binary = {"AUROC": sk.roc_auc_score, "AP": sk.average_precision_score}
    if name in binary:
        return binary[name](truth, p[:, 1])
    return {"MCC": sk.matthews_corrcoef, "kappa": sk.cohen_kappa_score}[name](truth, chosen)


CLASS_SPLITS = {
    "empty": [],
    "no label": [-1, -1, -1],
    "one sample": [1],
    "no positive": [0, 0, 0, 0, 0],
    "positives alone": [1, 1, 1],
    "one class and unknown": [1, -1, 1, -1],
    "two classes": [0, 1, 1, 0, 1, -1],
}


@pytest.mark.parametrize("constant", [False, True], ids=["any predictions", "one predicted class"])
@pytest.mark.parametrize("split", CLASS_SPLITS)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", [name for name in ROW_TASKS if name.endswith("classification")])
def test_classes(name, classes, split, constant):
    targets = np.array(CLASS_SPLITS[split], dtype=np.int64)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(classes), len(targets)).astype(np.float32)
    if constant:
        probabilities = np.sort(probabilities)
    task = task_of(name, classes)
    values, undefined = scores_of(task, probabilities, targets[:, None])
    assert set(values) == set(task.all_metrics())
    for metric, value in values.items():
        expected = truth_of_classes(metric, probabilities, targets)
        if expected is None:
            assert math.isfinite(value)
        else:
            assert value == pytest.approx(expected, abs=1e-6, nan_ok=True), metric
        assert (metric in undefined) == math.isnan(value), metric


def of_label(name, p, truth):
    if name == "accuracy":
        return sk.accuracy_score(truth, p > 0.5) if len(truth) else None
    if name in ("macro_F1", "micro_F1"):
        return sk.f1_score(truth, p > 0.5, zero_division=0) if truth.any() else None
    if len(set(truth)) < 2:
        return None
    if name == "MCC":
        return sk.matthews_corrcoef(truth, p > 0.5)
    return {"AP": sk.average_precision_score, "AUROC": sk.roc_auc_score}[name](truth, p)


LABEL_SPLITS = {
    "empty": np.zeros((0, 3)),
    "no label": np.full((3, 3), np.nan),
    "one sample": np.array([[1.0, 0.0, np.nan]]),
    "no positive": np.zeros((4, 3)),
    "positives alone": np.ones((4, 3)),
    "one label of three": np.array([[0, 0, np.nan], [1, 0, 1], [1, 0, 1], [np.nan, 0, 1]]),
    "two of three": np.array([[0, 0, 1], [1, 0, 0], [1, 0, 1], [np.nan, 0, 1.0]]),
}


@pytest.mark.parametrize("split", LABEL_SPLITS)
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("name", [name for name in ROW_TASKS if name.endswith("multilabel")])
def test_labels(name, targets, split):
    truth = LABEL_SPLITS[split][:, :targets].astype(np.float32)
    p = np.random.default_rng(1).random(truth.shape).astype(np.float32)
    task = task_of(name, targets=targets)
    values, undefined = scores_of(task, p, truth)
    for metric in task.all_metrics():
        columns = [(p[:, n], truth[:, n]) for n in range(targets)]
        if metric == "micro_F1":
            columns = [(p.reshape(-1), truth.reshape(-1))]
        found = [of_label(metric, q[~np.isnan(t)], t[~np.isnan(t)]) for q, t in columns]
        defined = [value for value in found if value is not None]
        expected = np.mean(defined) if defined else math.nan
        assert values[metric] == pytest.approx(expected, abs=1e-6, nan_ok=True), metric
        if targets > 1 and metric in ("AP", "AUROC"):
            for n, value in enumerate(found):
                assert values[f"{metric}/{n}"] == pytest.approx(math.nan if value is None else value, nan_ok=True)
    assert set(undefined) == {metric for metric, value in values.items() if math.isnan(value)}


def of_column(name, p, truth):
    if not len(truth):
        return None
    p, truth = p.astype(np.float64), truth.astype(np.float64)
    errors = {
        "MAE": np.abs(p - truth).mean(),
        "RMSE": np.sqrt(((p - truth) ** 2).mean()),
        "MSE": ((p - truth) ** 2).mean(),
    }
    if name in errors:
        return errors[name]
    if len(set(truth)) < 2:
        return None
    if name in ("Pearson", "Spearman") and len(set(p)) < 2:
        return None
    correlations = {"Pearson": stats.pearsonr, "Spearman": stats.spearmanr}
    if name in correlations:
        return correlations[name](p, truth)[0]
    if name == "RAE":
        return np.abs(p - truth).mean() / np.abs(truth - truth.mean()).mean()
    return {"R2": sk.r2_score, "explained_variance": sk.explained_variance_score}[name](truth, p)


NUMBER_SPLITS = {
    "empty": np.zeros((0, 2)),
    "no target": np.full((3, 2), np.nan),
    "one sample": np.array([[1.5, np.nan]]),
    "constant": np.full((4, 2), 2.5),
    "constant and unknown": np.array([[2.5, np.nan], [2.5, np.nan], [2.5, np.nan]]),
    "one constant of two": np.array([[2.5, 1.0], [2.5, -1.0], [2.5, np.nan], [np.nan, 7.0]]),
    "varied": np.array([[2.0, 1.0], [-2.5, -1.0], [0.5, np.nan], [np.nan, 7.0], [3.0, 3.0]]),
}


@pytest.mark.parametrize("constant", [False, True], ids=["any predictions", "predictions of one value"])
@pytest.mark.parametrize("split", NUMBER_SPLITS)
@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("name", [name for name in ROW_TASKS if name.endswith("regression")])
def test_numbers(name, targets, split, constant):
    truth = NUMBER_SPLITS[split][:, :targets].astype(np.float32)
    p = np.random.default_rng(2).normal(size=truth.shape).astype(np.float32)
    p = np.full_like(p, 0.5) if constant else p
    task = task_of(name, targets=targets)
    task.deviation.copy_(torch.tensor([2.0, 50.0][:targets]))
    values, undefined = scores_of(task, p, truth)
    known = [(p[~np.isnan(t), n], t[~np.isnan(t)]) for n, t in enumerate(truth.T)]
    pooled = [tuple(np.concatenate(part) for part in zip(*known, strict=True))]
    for metric in task.all_metrics():
        if metric.startswith("scaled_"):
            found = [of_column(metric.removeprefix("scaled_"), *column) for column in known]
            found = [None if v is None else v / d for v, d in zip(found, (2.0, 50.0), strict=False)]
        else:
            found = [of_column(metric, *column) for column in (pooled if metric in ("MAE", "RMSE", "MSE") else known)]
        defined = [value for value in found if value is not None]
        # The mean is undefined if constant predictions leave a column undefined that its targets define
        broken = constant and metric in ("Pearson", "Spearman")
        expected = np.mean(defined) if defined and not broken else math.nan
        assert values[metric] == pytest.approx(expected, abs=1e-5, nan_ok=True), metric
    assert set(undefined) == {metric for metric, value in values.items() if math.isnan(value)}


@pytest.mark.parametrize(
    ("path", "targets"),
    [
        ("torchmetrics.classification.BinaryAUROC", "classes"),
        ("torchmetrics.classification.BinaryAveragePrecision", "classes"),
        ("torchmetrics.classification.BinaryMatthewsCorrCoef", "classes"),
        ("torchmetrics.classification.BinaryF1Score", "classes"),
        ("torchmetrics.classification.BinaryCohenKappa", "classes"),
        ("torchmetrics.regression.R2Score", "numbers"),
        ("torchmetrics.regression.PearsonCorrCoef", "numbers"),
        ("torchmetrics.regression.ExplainedVariance", "numbers"),
    ],
)
def test_metrics_by_path_are_undefined_too(path, targets):
    name = path.rpartition(".")[2]
    kind = "graph-classification" if targets == "classes" else "graph-regression"
    spec = dataclasses.replace(tiny_spec(kind), num_classes=2) if targets == "classes" else tiny_spec(kind)
    spec = spec if targets == "classes" else dataclasses.replace(spec, num_targets=1, target_names=(), target_units=())
    task = build_task(spec, 8, HeadConfig(), metrics=[path])
    p = np.array([[0.4, 0.6], [0.7, 0.3]], dtype=np.float32)
    p, y = (p, np.array([[0], [0]])) if targets == "classes" else (p[:, :1], np.array([[2.5], [2.5]], dtype=np.float32))
    for rows in (0, 1, 2):
        values, undefined = scores_of(task, p[:rows], y[:rows])
        assert math.isnan(values[name])
        assert undefined[name]


def test_predictions_that_are_not_finite_are_the_reason():
    task = task_of("graph-regression")
    values, undefined = scores_of(task, [[math.nan], [1.0]], [[1.0], [2.0]])
    assert math.isnan(values["MAE"])
    assert undefined["MAE"]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("name", TASKS)
def test_one_output_that_is_not_finite_leaves_no_score_a_number(name, broken):
    """NaN would otherwise rank first, or count as a prediction of the first class."""
    spec = tiny_spec(name)
    task = build_task(spec, 8, HeadConfig())
    task = build_task(spec, 8, HeadConfig(), metrics=list(task.named_metrics()))
    batch, generator = tiny_table(spec, num_graphs=12).batch(range(12)), torch.Generator().manual_seed(0)
    edge = torch.randn(batch.edge_index.shape[1], 8, generator=generator)
    output = task(Representation(torch.randn(batch.num_nodes, 8, generator=generator), edge=edge), batch).detach()
    known = task.known_targets(batch.y) if "y" in batch else None
    row = 0 if known is None else int((~known.isnan()).all(1).nonzero()[0])
    for spoiled in (False, True):
        output[row] = broken if spoiled else output[row]
        scores = SplitScores(task, "val")
        scores.update(task, output, batch)
        values = scores.finish()
        values.pop("val/loss")
        assert [math.isnan(value) for value in values.values()] == [spoiled] * len(values), values
        assert set(scores.undefined) == (set(values) if spoiled else set())


def test_outputs_of_rows_without_a_label_and_of_other_targets_may_be_anything():
    task = task_of("node-regression", targets=2)
    batch = GraphBatch(y=torch.tensor([[1.0, 2.0], [2.0, 1.0], [math.nan, 3.0]]))
    scores = SplitScores(task, "val")
    scores.update(task, torch.tensor([[1.0, 2.0], [1.0, math.nan], [math.nan, 0.0]]), batch)
    values = scores.finish()
    assert values["val/MAE/0"] == pytest.approx(0.5)
    assert values["val/MAE/1"].isnan()
    assert values["val/MAE"].isnan()


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", TASKS)
def test_sums_of_scores_keep_their_types_where_weights_get_others(name, kind):
    """Lightning's true precisions call `module.to(kind)`; states and their reset values keep their dtypes."""
    spec = tiny_spec(name)
    task = build_task(spec, 8, HeadConfig(), metrics=list(build_task(spec, 8, HeadConfig()).named_metrics()))
    for split in ("train", "val"):
        plain, moved = SplitScores(task, split), SplitScores(task, split).to(kind)
        for one, other in zip(plain.modules(), moved.modules(), strict=True):
            if isinstance(one, Metric):
                for state, default in one._defaults.items():
                    if isinstance(default, torch.Tensor):
                        assert getattr(other, state).dtype == other._defaults[state].dtype == default.dtype, state


def test_errors_of_many_batches_add_up_beside_weights_in_bfloat16():
    """In bfloat16, a sum of ones would stop at 256."""
    task = task_of("graph-regression")
    scores = SplitScores(task, "val").to(torch.bfloat16)
    for _ in range(1000):
        scores.add(task, torch.ones(1, 1), torch.zeros(1, 1))
    assert float(scores.finish()["val/MAE"]) == 1


def test_ranges_add_up_over_batches():
    gathered = TargetRanges(2)
    gathered.update(torch.tensor([[1.0, math.nan]]))
    gathered.update(torch.zeros(0, 2))
    gathered.update(torch.tensor([[3.0, 2.0], [-1.0, 2.0]]))
    assert gathered.result() == TargetRange((3, 2), (-1.0, 2.0), (3.0, 2.0))
    assert gathered.result().missing("contrast") == ""
    assert gathered.result().column(1).missing("contrast") != ""


def test_a_small_spread_beside_a_large_offset_is_no_constant():
    values = torch.tensor([[1e6], [1e6 + 1e-3]], dtype=torch.float64)
    assert TargetRange.of(values).missing("contrast") == ""
    assert TargetRange.of(values.float()).missing("contrast") != ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_have_the_dtypes_of_a_process_without_rows(dtype):
    task = task_of("graph-regression", targets=2)
    scores, without = SplitScores(task, "val"), SplitScores(task, "val")
    scores.add(task, torch.zeros(3, 2, dtype=dtype), torch.arange(6, dtype=dtype).reshape(3, 2))
    for metric, other in zip(scores.modules(), without.modules(), strict=True):
        for name, state in metric.metric_state.items() if isinstance(metric, Metric) else ():
            assert isinstance(state, list) or state.dtype == getattr(other, name).dtype, name


@pytest.mark.parametrize("name", ["graph-multilabel", "node-classification"])
def test_saturated_logits_keep_their_order(name):
    """In float32 the sigmoid of every logit above 17 is 1, and so is a softmax."""
    task = task_of(name)
    batch = GraphBatch(y=torch.tensor([[1.0], [0.0], [1.0], [0.0]] if "label" in name else [1, 0, 1, 0]))
    logits = torch.tensor([30.0, 25.0, 20.0, 18.0])
    scores = SplitScores(task, "val")
    scores.update(task, logits[:, None], batch)
    values, truth = scores.finish(), batch.y.reshape(-1).numpy()
    assert float(values["val/AUROC"]) == pytest.approx(sk.roc_auc_score(truth, logits.numpy()))
    if "val/AP" in values:
        assert float(values["val/AP"]) == pytest.approx(sk.average_precision_score(truth, logits.numpy()))


@pytest.mark.parametrize("name", ["graph-multilabel", "node-classification"])
def test_equal_logits_tie_wherever_they_are_in_a_batch(name):
    """Vectorised functions may round the last rows of a tensor differently."""
    task, rows = task_of(name), 203
    for logit in torch.randn(200, generator=torch.Generator().manual_seed(0)) * 3:
        probabilities = task.predict(logit.repeat(rows, 1), GraphBatch(y=torch.zeros(rows, 1)))[0]
        assert len(probabilities[:, -1].unique()) == 1
