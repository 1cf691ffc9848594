"""IoU of parts compared with the published evaluation, written as its loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from graphbench.contracts import BenchmarkSpec, Features, Representation
from graphbench.errors import BadInput
from graphbench.nn import HeadConfig
from graphbench.testing.tiny import tiny_table
from graphbench.training.tasks import build_task
from graphbench.training.tasks.metrics import PartIoU, parts_of

PARTS = (2, 3, 1)
SPEC = BenchmarkSpec(
    name="Shapes",
    task="node-classification",
    node=Features(vocabularies=(3,), names=("category",)),
    edge=Features(),
    metric="instance_IoU",
    higher_is_better=True,
    loss="cross_entropy",
    num_classes=6,
    extra={"parts": "2 3 1"},
)


def shapes(seed, sizes=(5, 9, 1, 7)):
    """Return scores, true parts, the shape of each point and the category of each shape."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.tensor([0, 2, 5])
    category = torch.randint(3, (len(sizes),), generator=generator)
    shape = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    within = torch.randint(100, (len(shape),), generator=generator) % torch.tensor(PARTS)[category[shape]]
    return torch.randn(len(shape), 6, generator=generator), first[category][shape] + within, shape, category


def published(batches):
    """Return the instance and class averages, one shape and one part at a time."""
    by_category = {}
    first = [0, 2, 5]
    for scores, target, shape, category in batches:
        for number, kind in enumerate(category.tolist()):
            own = range(first[kind], first[kind] + PARTS[kind])
            rows = shape == number
            predicted = np.array(own)[scores[rows][:, list(own)].argmax(1).numpy()]
            truth = target[rows].numpy()
            ious = []
            for part in own:
                union = ((predicted == part) | (truth == part)).sum()
                both = ((predicted == part) & (truth == part)).sum()
                ious.append(1.0 if union == 0 else both / union)
            by_category.setdefault(kind, []).append(np.mean(ious))
    every = [iou for ious in by_category.values() for iou in ious]
    return np.mean(every), np.mean([np.mean(ious) for ious in by_category.values()])


@pytest.mark.parametrize("seed", range(5))
def test_both_averages_are_the_published_ones(seed):
    batches = [shapes(seed), shapes(seed + 50), shapes(seed + 100, sizes=(3,))]
    values = []
    for average in ("instance", "class"):
        metric = PartIoU(PARTS, average=average)
        for batch in batches:
            metric.update(*batch)
        values.append(float(metric.compute()))
    assert values == pytest.approx(published(batches), abs=1e-6)


def test_absent_part_counts_one_and_other_categories_are_no_choice():
    scores = torch.tensor([[0.0, -1.0, 9.0, 9.0, 9.0, 9.0]] * 4)
    metric = PartIoU(PARTS)
    metric.update(scores, torch.zeros(4, dtype=torch.int64), torch.zeros(4, dtype=torch.int64), torch.tensor([0]))
    assert float(metric.compute()) == 1.0  # part 0 is right everywhere, part 1 is absent


def test_halves_of_the_shapes_add_up():
    """The states of two ranks add up to the state of one that saw all shapes."""
    whole, halves = PartIoU(PARTS), [PartIoU(PARTS), PartIoU(PARTS)]
    for seed, half in enumerate(halves):
        half.update(*shapes(seed))
        whole.update(*shapes(seed))
    halves[0].total += halves[1].total
    halves[0].shapes += halves[1].shapes
    assert float(halves[0].compute()) == pytest.approx(float(whole.compute()))


def test_node_classification_scores_parts():
    task = build_task(SPEC, dim=4, head=HeadConfig())
    batch = tiny_table(SPEC, num_graphs=4).batch(range(4))
    category = torch.tensor([0, 1, 2, 1])
    batch.x = category[batch.batch][:, None]
    batch.y = torch.tensor([0, 2, 5])[batch.x] + torch.arange(len(batch.x))[:, None] % torch.tensor(PARTS)[batch.x]
    output = task(Representation(torch.randn(len(batch.x), 4)), batch).detach()
    metrics = task.build_metrics()
    task.update(metrics, output, batch)
    expected = published([(output, batch.y[:, 0], batch.batch, category)])
    assert (float(metrics["instance_IoU"].compute()), float(metrics["class_IoU"].compute())) == pytest.approx(expected)
    assert float(metrics["accuracy"].compute()) == pytest.approx((output.argmax(1) == batch.y[:, 0]).float().mean())


def test_other_node_classifications_have_no_parts():
    plain = replace(SPEC, metric="accuracy", extra={})
    assert "instance_IoU" not in build_task(plain, dim=4, head=HeadConfig()).build_metrics()


@pytest.mark.parametrize("extra", ["2 3", "2 3 1 1", "two", "", "0 6 0"])
def test_parts_that_do_not_fit_are_refused(extra):
    with pytest.raises(BadInput, match="parts"):
        build_task(replace(SPEC, extra={"parts": extra}), dim=4, head=HeadConfig())


def test_parts_are_read_from_the_specification():
    assert parts_of("4 2 2") == (4, 2, 2)
