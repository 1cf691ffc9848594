"""Each task: the head's output, the loss, and the metrics compared with scikit-learn on all rows at once."""

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error, recall_score, roc_auc_score
from sklearn.utils.class_weight import compute_class_weight

from graphbench.contracts import BenchmarkSpec, Column, Features, GraphTable, Representation
from graphbench.errors import BadInput
from graphbench.nn.heads import HeadConfig
from graphbench.testing import tiny_spec, tiny_table
from graphbench.training.tasks import build_task

SPEC = BenchmarkSpec(
    name="Probe", task="graph-regression", node=Features((3,)), edge=Features(), metric="MAE", higher_is_better=False,
    loss="L1", num_targets=2,
)  # fmt: skip


def batch_with(y_of, sizes=(3, 4, 2, 5, 6)):
    graphs = [
        {"num_nodes": n, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "y": y_of(i, n)}
        for i, n in enumerate(sizes)
    ]
    return GraphTable.from_graphs(graphs).batch(range(len(sizes)))


def spec_of(task, **changes):
    return dataclasses.replace(SPEC, task=task, **changes)


def evaluated(task, outputs, batches):
    metrics = task.build_metrics()
    for output, batch in zip(outputs, batches, strict=True):
        task.update(metrics, output, batch)
    return {name: metric.compute().item() for name, metric in metrics.items()}


def test_regression_with_missing_labels_in_real_units():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(5, 2, generator=generator) * 10 + 50
    truth[1, 0] = torch.nan
    batch = batch_with(lambda i, n: truth[i])
    task = build_task(SPEC, 8, HeadConfig())
    task.standardize(truth)
    known = ~truth.isnan()
    assert task.offset[0].item() == pytest.approx(np.nanmean(truth[:, 0].numpy()), rel=1e-6)
    assert task.scale[1].item() == pytest.approx(truth[:, 1].numpy().std(), rel=1e-6)
    output = torch.randn(5, 2, generator=generator)
    predicted = output * task.scale + task.offset
    scores = evaluated(task, [output], [batch])
    assert scores["MAE"] == pytest.approx(mean_absolute_error(truth[known], predicted[known]), rel=1e-5)
    assert scores["RMSE"] == pytest.approx(((truth[known] - predicted[known]) ** 2).mean().sqrt().item(), rel=1e-5)
    expected = (output - (truth - task.offset) / task.scale)[known].abs().mean()
    assert task.loss(output, batch).item() == pytest.approx(expected.item(), rel=1e-6)


def test_constant_targets_keep_scale_one():
    task = build_task(SPEC, 8, HeadConfig())
    task.standardize(torch.full((4, 2), 7.0))
    assert torch.equal(task.scale, torch.ones(2))


@pytest.mark.parametrize("classes", [2, 4])
def test_classification_metrics_agree_with_scikit_learn(classes):
    generator = torch.Generator().manual_seed(classes)
    batches = [batch_with(lambda i, n: torch.randint(0, classes, (n,), generator=generator)) for _ in range(3)]
    spec = spec_of("node-classification", loss="weighted_cross_entropy", metric="class_accuracy", num_classes=classes)
    task = build_task(spec, 8, HeadConfig())
    outputs = [task(Representation(torch.randn(b.num_nodes, 8, generator=generator)), b).detach() for b in batches]
    assert outputs[0].shape == (20, 1 if classes == 2 else classes)
    truth = torch.cat([b.y for b in batches]).numpy()
    chosen = torch.cat([task.predict(o, b)[0].argmax(1) for o, b in zip(outputs, batches, strict=True)]).numpy()
    scores = evaluated(task, outputs, batches)
    assert scores["accuracy"] == pytest.approx(accuracy_score(truth, chosen))
    assert scores["class_accuracy"] == pytest.approx(recall_score(truth, chosen, average="macro"))
    assert scores["macro_F1"] == pytest.approx(f1_score(truth, chosen, average="macro"))
    if classes == 2:
        assert scores["AUROC"] == pytest.approx(roc_auc_score(truth, torch.cat(outputs)[:, 0].numpy()))
        probability = task.predict(outputs[0], batches[0])[0]
        assert torch.allclose(probability[:, 1], outputs[0][:, 0].sigmoid())


def test_graph_token_takes_the_place_of_pooling():
    batch = batch_with(lambda i, n: torch.zeros(2))
    task = build_task(SPEC, 8, HeadConfig(num_layers=1, pooling="add"))
    node, graph = torch.randn(20, 8), torch.randn(5, 8)
    linear = task.head.mlp
    assert torch.allclose(task(Representation(node, graph=graph), batch), linear(graph))
    sums = torch.stack([part.sum(0) for part in node.split([3, 4, 2, 5, 6])])
    assert torch.allclose(task(Representation(node), batch), linear(sums), atol=1e-5)


@pytest.mark.parametrize("loss", ["cross_entropy", "weighted_cross_entropy", "focal"])
@pytest.mark.parametrize("classes", [2, 3])
def test_nodes_without_a_label_count_for_nothing(classes, loss):
    """Loss, gradients and metrics are those of the labelled nodes, also if a batch is scored in parts."""
    generator = torch.Generator().manual_seed(classes)
    truth = [torch.randint(-1, classes, (n,), generator=generator) for n in (9, 7, 8)] + [torch.full((4,), -1)]
    batch = batch_with(lambda i, n: truth[i], sizes=(9, 7, 8, 4))
    known = batch.y.reshape(-1) >= 0
    assert 0 < known.sum() < 24
    kept = [values[values >= 0] for values in truth[:3]]
    labelled = batch_with(lambda i, n: kept[i], sizes=[len(values) for values in kept])
    task = build_task(
        spec_of("node-classification", loss=loss, metric="accuracy", num_classes=classes), 8, HeadConfig()
    )
    output = torch.randn(28, task.spec.output_dim, generator=generator, dtype=torch.float64, requires_grad=True)
    found = task.loss(output, batch)
    if loss == "cross_entropy":
        logits = torch.cat((torch.zeros_like(output), output), 1) if classes == 2 else output
        log_probability = logits - logits.exp().sum(1, keepdim=True).log()
        expected = -sum(log_probability[row, batch.y.reshape(-1)[row]] for row in known.nonzero()[:, 0]) / known.sum()
    else:
        expected = task.loss(output[known], labelled)
    assert found.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.equal(torch.autograd.grad(found, output)[0].abs().sum(1) > 0, known)
    alone = [batch_with(lambda i, n, of=of: truth[of], sizes=[len(truth[of])]) for of in range(4)]
    parts = [task.terms(part, one) for part, one in zip(output.split([9, 7, 8, 4]), alone, strict=True)]
    sums, counts = (torch.stack(values).sum(0) for values in zip(*parts, strict=True))
    assert counts.sum() == known.sum()
    assert parts[3][1].sum() == 0
    assert task.combine(sums, counts).item() == pytest.approx(expected.item(), rel=1e-12)
    task.further = task.named_metrics()
    every, own = task.all_metrics(), task.all_metrics()
    for part, one in zip(output.detach().split([9, 7, 8, 4]), alone, strict=True):
        task.score(every, part, one)
    task.score(own, output.detach()[known], labelled)
    for name, metric in every.items():
        assert metric.compute().item() == pytest.approx(own[name].compute().item()), name


@pytest.mark.parametrize("level", ["graph", "node"])
def test_multilabel_loss_skips_unknown_labels(level):
    truth = torch.tensor([[1.0, 0.0], [torch.nan, 1.0], [0.0, torch.nan], [1.0, 1.0], [0.0, 0.0]])
    batch = batch_with(lambda i, n: truth[i])
    task = build_task(spec_of(f"{level}-multilabel", loss="BCE", metric="AP"), 8, HeadConfig())
    output = torch.randn(5, 2, generator=torch.Generator().manual_seed(3), requires_grad=True)
    known = ~truth.isnan()
    p = output.detach().sigmoid()[known].double()
    expected = -(truth[known] * p.log() + (1 - truth[known]) * (1 - p).log()).mean()
    loss = task.loss(output, batch)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    loss.backward()
    assert output.grad[1, 0] == 0.0
    assert not output.grad.isnan().any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "graph-painting"}, "graph-painting"),
        ({"loss": "hinge"}, "hinge"),
        ({"metric": "MRR"}, "MRR"),
        ({"task": "graph-classification", "loss": "cross_entropy", "metric": "accuracy"}, "num_classes"),
    ],
)
def test_what_does_not_fit_is_named(changes, message):
    with pytest.raises(BadInput, match=message):
        build_task(dataclasses.replace(SPEC, **changes), 8, HeadConfig())


def weighted_batch(y_of, weights):
    """Build a batch of one graph per weight."""
    graphs = [
        {"num_nodes": 2, "edge_index": torch.zeros(2, 0, dtype=torch.int64), "y": y_of(i), "weight": torch.tensor(w)}
        for i, w in enumerate(weights)
    ]
    return GraphTable.from_graphs(graphs, {"y": Column("graph"), "weight": Column("graph")}).batch(range(len(weights)))


WEIGHTS = [0.5, 0.0, 2.0, 1.5, 1.0]


@pytest.mark.parametrize(
    ("loss", "of"),
    [("L1", torch.nn.L1Loss), ("MSE", torch.nn.MSELoss), ("Huber", torch.nn.HuberLoss)],
)
def test_weighted_regression_counts_every_row_by_its_weight_and_scores_count_it_once(loss, of):
    truth = torch.tensor([[1.0, torch.nan], [9.0, 3.0], [2.0, 2.0], [torch.nan, torch.nan], [0.5, 1.0]])
    batch = weighted_batch(lambda i: truth[i], WEIGHTS)
    output = torch.randn(5, 2, generator=torch.Generator().manual_seed(1))
    known = ~truth.isnan()
    errors = of(reduction="none")(output[known], truth[known])
    rows = torch.tensor(WEIGHTS)[:, None].expand(5, 2)[known]
    task = build_task(spec_of("graph-regression", loss=loss), 8, HeadConfig())
    assert task.loss(output, batch).item() == pytest.approx(float((rows * errors).sum() / known.sum()), rel=1e-6)
    expected = float((output - truth)[known].abs().mean())
    assert evaluated(task, [output], [batch])["MAE"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_weights_of_classes_and_rows_against_torch(classes):
    labels = torch.tensor([0, 1, 1, classes - 1, 1])
    batch = weighted_batch(lambda i: labels[i], WEIGHTS)
    spec = spec_of("graph-classification", num_classes=classes, num_targets=1, loss="cross_entropy", metric="accuracy")
    given = [1.0, 4.0, 2.5][:classes]
    task = build_task(spec, 8, HeadConfig(), class_weights=given)
    task.set_class_weights(labels)
    scale = torch.tensor(given)[labels].mean()
    logits = torch.randn(5, spec.output_dim, generator=torch.Generator().manual_seed(2))
    both = torch.cat((torch.zeros_like(logits), logits), 1) if classes == 2 else logits
    losses = torch.nn.CrossEntropyLoss(weight=torch.tensor(given) / scale, reduction="none")(both, labels)
    expected = (losses * torch.tensor(WEIGHTS)).mean()
    assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-5)
    scores = evaluated(task, [logits], [batch])
    assert scores["accuracy"] == pytest.approx(accuracy_score(labels, both.argmax(1)))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("loss", ["cross_entropy", "weighted_cross_entropy"])
def test_smoothed_labels_are_those_of_torch_in_training_alone(classes, loss):
    labels = torch.tensor([0, 1, 1, classes - 1, 1])
    batch = batch_with(lambda i, _: labels[i].reshape(1))
    spec = spec_of("graph-classification", num_classes=classes, num_targets=1, loss=loss, metric="accuracy")
    task = build_task(spec, 8, HeadConfig(), label_smoothing=0.2)
    logits = 50 * torch.randn(5, spec.output_dim, generator=torch.Generator().manual_seed(2))
    both = torch.cat((torch.zeros_like(logits), logits), 1) if classes == 2 else logits
    weights = 1 - torch.bincount(labels, minlength=classes) / 5 if loss != "cross_entropy" else torch.ones(classes)
    weights = weights * (torch.bincount(labels, minlength=classes) > 0)
    divisor = 5 if classes == 2 or loss == "cross_entropy" else weights[labels].sum()
    for training, amount in (True, 0.2), (False, 0.0):
        task.train(training)
        values = torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=amount)(both.double(), labels)
        expected = (values * weights[labels]).sum() / divisor
        assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_smoothed_row_has_the_weight_of_its_label():
    labels = torch.tensor([0, 1, 1, 2, 1])
    batch = weighted_batch(lambda i: labels[i], WEIGHTS)
    spec = spec_of("graph-classification", num_classes=3, num_targets=1, loss="cross_entropy", metric="accuracy")
    task = build_task(spec, 8, HeadConfig(), class_weights=[1.0, 4.0, 2.5], label_smoothing=0.1)
    task.set_class_weights(labels)
    given = torch.tensor([1.0, 4.0, 2.5])[labels]
    logits = torch.randn(5, 3, generator=torch.Generator().manual_seed(2))
    losses = torch.nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)(logits, labels)
    expected = (losses * given / given.mean() * torch.tensor(WEIGHTS)).mean()
    assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("task", "loss", "amount", "message"),
    [
        ("graph-regression", "L1", 0.1, "label_smoothing is for classifications; Probe is graph-regression"),
        ("graph-classification", "cross_entropy", 1.0, "label_smoothing must be at least 0 and below 1, but got 1"),
        ("graph-classification", "cross_entropy", -0.1, "label_smoothing must be at least 0 and below 1"),
        ("graph-classification", "focal", 0.1, "label_smoothing: the loss focal"),
    ],
)
def test_smoothing_that_does_not_fit_is_told(task, loss, amount, message):
    classes = {} if task == "graph-regression" else {"num_classes": 3, "num_targets": 1, "metric": "accuracy"}
    with pytest.raises(BadInput, match=message):
        build_task(spec_of(task, loss=loss, **classes), 8, HeadConfig(), label_smoothing=amount)


def test_balanced_classes_are_those_of_scikit_learn():
    labels = torch.tensor([0, 1, 1, 2, 1, 1, -1, 0])
    spec = spec_of("node-classification", num_classes=3, num_targets=1, loss="focal", metric="accuracy")
    task = build_task(spec, 8, HeadConfig(), class_weights="balanced")
    task.set_class_weights(labels[:, None])
    known = labels[labels >= 0].numpy()
    expected = compute_class_weight("balanced", classes=np.arange(3), y=known)
    assert task.class_weights.numpy() == pytest.approx(expected)
    assert "class_weights" in task.state_dict()
    with pytest.raises(BadInput, match="no training row is of class 2"):
        task.set_class_weights(torch.tensor([0, 1, 1]))


def test_weighted_labels_count_known_ones():
    truth = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [1.0, 1.0], [torch.nan, torch.nan], [0.0, 0.0]])
    batch = weighted_batch(lambda i: truth[i], WEIGHTS)
    task = build_task(spec_of("graph-multilabel", loss="BCE", metric="AP"), 8, HeadConfig())
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    known = ~truth.isnan()
    rows = torch.tensor(WEIGHTS)[:, None].expand(5, 2)[known]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits[known], truth[known], rows, reduction="sum")
    assert task.loss(logits, batch).item() == pytest.approx(float(loss / known.sum()), rel=1e-6)


@pytest.mark.parametrize("loss", ["BCE", "focal"])
def test_weights_of_labels_are_those_of_torch(loss):
    truth = torch.tensor([[1.0, torch.nan], [0.0, 1.0], [1.0, 1.0], [torch.nan, torch.nan], [0.0, 0.0]])
    batch = weighted_batch(lambda i: truth[i], WEIGHTS)
    task = build_task(spec_of("graph-multilabel", loss=loss, metric="AP"), 8, HeadConfig(), class_weights=[4.0, 0.5])
    task.set_class_weights(truth, torch.tensor(WEIGHTS))
    logits = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    known, rows = ~truth.isnan(), torch.tensor(WEIGHTS)[:, None]
    plain = torch.nn.BCEWithLogitsLoss(reduction="none")(logits, truth.nan_to_num())
    weighted = torch.nn.BCEWithLogitsLoss(reduction="none", pos_weight=torch.tensor([4.0, 0.5]))(
        logits, truth.nan_to_num()
    )
    ratio = torch.where(known, weighted / plain, 0.0)
    scale = (ratio * rows).sum(0) / known.sum(0)  # a label's weights are divided by their mean over its rows
    values = plain * (1 - (-plain).exp()) ** 2 if loss == "focal" else plain
    expected = (values * ratio / scale * rows)[known].sum() / known.sum()
    assert task.loss(logits, batch).item() == pytest.approx(expected.item(), rel=1e-5)


def test_balanced_labels_are_those_of_scikit_learn():
    labels = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 1.0, 1.0], [0.0, torch.nan, 1.0], [0.0, 1.0, 1.0]])
    task = build_task(
        spec_of("node-multilabel", num_targets=3, loss="BCE", metric="AP"), 8, HeadConfig(), class_weights="balanced"
    )
    task.set_class_weights(labels)
    for label in range(2):
        known = labels[~labels[:, label].isnan(), label].numpy()
        expected = compute_class_weight("balanced", classes=np.arange(2), y=known)
        assert task.class_weights[:, label].numpy() == pytest.approx(expected)
    assert task.class_weights[:, 2].tolist() == [1.0, 1.0], "one value in all rows: nothing to balance"


@pytest.mark.parametrize(
    ("task", "loss", "weights", "message"),
    [
        ("node-multilabel", "BCE", [1.0, 2.0], "2 numbers for the 1 labels"),
        ("graph-regression", "L1", "balanced", "class_weights is for classes and labels; Probe is graph-regression"),
        ("graph-classification", "cross_entropy", [1.0, 2.0], "2 numbers for the 3 classes"),
        ("graph-classification", "cross_entropy", [1.0, 2.0, 0.0], "class_weights of class 2 must be above 0"),
        ("graph-classification", "cross_entropy", "rare", "class_weights must be one of balanced, but got 'rare'"),
        ("node-classification", "weighted_cross_entropy", "balanced", "the loss weighted_cross_entropy"),
    ],
)
def test_weights_of_classes_that_do_not_fit_are_told(task, loss, weights, message):
    classes = {} if task == "graph-regression" else {"num_classes": 3, "num_targets": 1, "metric": "accuracy"}
    with pytest.raises(BadInput, match=message):
        build_task(spec_of(task, loss=loss, **classes), 8, HeadConfig(), class_weights=weights)


@pytest.mark.parametrize("edge_dim", [0, 5])
@pytest.mark.parametrize("classes", [2, 3])
def test_edges_without_a_label_count_for_nothing(classes, edge_dim):
    spec = dataclasses.replace(tiny_spec("edge-classification"), num_classes=classes)
    task = build_task(spec, 8, HeadConfig(), edge_dim=edge_dim)
    batch = tiny_table(dataclasses.replace(spec, num_classes=2), sizes=[5, 1, 3]).batch(range(3))
    edges = batch.edge_index.shape[1]
    representation = Representation(torch.randn(9, 8), edge=torch.randn(edges, edge_dim) if edge_dim else None)
    output = task(representation, batch)
    assert output.shape == (edges, spec.output_dim)
    batch.y[::3] = -1
    known = batch.y[:, 0] >= 0
    logits = output if classes > 2 else torch.cat([torch.zeros_like(output), output], 1)
    expected = torch.nn.functional.cross_entropy(logits[known], batch.y[known, 0])
    torch.testing.assert_close(task.loss(output, batch), expected)
    probabilities, targets = task.predict(output, batch)
    torch.testing.assert_close(probabilities, logits.softmax(1))
    assert torch.equal(targets, batch.y)
    assert ("F1" in task.build_metrics()) == (classes == 2)


def test_numbers_of_edges_may_have_gaps_and_a_model_with_edges_is_read():
    spec = tiny_spec("edge-regression")
    task = build_task(spec, 8, HeadConfig(), edge_dim=5)
    batch = tiny_table(spec, sizes=[5, 3]).batch(range(2))
    node, edge = torch.randn(8, 8), torch.randn(batch.edge_index.shape[1], 5)
    output = task(Representation(node, edge=edge), batch)
    assert not torch.allclose(output, task(Representation(node, edge=edge + 1), batch))
    batch.y[::2, 0] = torch.nan
    known = ~batch.y.isnan()
    expected = (output - batch.y).abs()[known].mean()
    torch.testing.assert_close(task.loss(output, batch).float(), expected.float())
