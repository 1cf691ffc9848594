from __future__ import annotations

import numpy as np
import pytest
import torch

from graphbench.data.sampler import SizeBucketSampler, useful_share
from graphbench.errors import BadInput

SIZES = torch.randint(5, 200, (203,), generator=torch.Generator().manual_seed(3))


def ranks(world_size, sizes=SIZES, batch_size=8, shuffle=True, **options):
    return [
        SizeBucketSampler(sizes, batch_size, shuffle=shuffle, world_size=world_size, rank=rank, **options)
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("bucketing", [False, True])
@pytest.mark.parametrize("graphs", [4, 31, 32, 33, 65, 203])
def test_every_graph_once_and_equal_steps(world_size, shuffle, bucketing, graphs):
    samplers = ranks(world_size, SIZES[:graphs], shuffle=shuffle, bucketing=bucketing, pool=3)
    batches = [list(sampler) for sampler in samplers]
    seen = sorted(graph for rank in batches for batch in rank for graph in batch)
    assert seen == list(range(graphs))
    assert {len(rank) for rank in batches} == {len(sampler) for sampler in samplers} == {len(batches[0])}
    for step in zip(*batches, strict=True):
        lengths = [len(batch) for batch in step]
        assert min(lengths) >= 1
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= 9


def test_a_rest_smaller_than_the_ranks_joins_the_batch_before():
    assert [len(sampler) for sampler in ranks(4, SIZES[:33])] == [1] * 4
    assert [len(sampler) for sampler in ranks(4, SIZES[:36])] == [2] * 4


def test_global_batches_of_two_ranks_are_the_batches_of_one_with_twice_the_size():
    (one,) = ranks(1, batch_size=16)
    two = zip(*ranks(2, batch_size=8), strict=True)
    assert [set(batch) for batch in one] == [set(a + b) for a, b in two]


def test_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch, disturb):
        (sampler,) = ranks(1, seed=seed)
        sampler.set_epoch(epoch)
        torch.manual_seed(disturb)
        np.random.seed(disturb)
        return list(sampler)

    assert order(1, 5, 0) == order(1, 5, 99)
    assert order(1, 5, 0) != order(1, 6, 0)
    assert order(1, 5, 0) != order(2, 5, 0)


def test_global_generators_stay_untouched():
    torch.manual_seed(0)
    np.random.seed(0)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    list(ranks(1)[0])
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)


def test_evaluation_order_is_fixed_and_without_bucketing_that_of_the_table():
    (sampler,) = ranks(1, shuffle=False)
    first = list(sampler)
    sampler.set_epoch(7)
    assert list(sampler) == first
    largest = [SIZES[batch].max() for batch in first]
    assert largest != sorted(largest), "batches are sorted by size"
    (plain,) = ranks(1, shuffle=False, bucketing=False)
    assert [graph for batch in plain for graph in batch] == list(range(len(SIZES)))


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("done", [0, 1, 5])
def test_resuming_yields_exactly_the_remaining_batches(world_size, done):
    for original, resumed in zip(ranks(world_size), ranks(world_size), strict=True):
        original.set_epoch(4)
        expected = list(original)
        resumed.load_state_dict(original.state_dict(done))
        resumed.set_epoch(4)
        assert len(resumed) == len(expected)
        assert list(resumed) == expected[done:]
        assert list(resumed) == expected  # the position applies only once


def test_a_new_epoch_starts_at_its_beginning():
    (sampler,) = ranks(1)
    sampler.load_state_dict(sampler.state_dict(3))
    sampler.set_epoch(1)
    assert len(list(sampler)) == len(sampler)


def test_state_is_equal_on_all_ranks():
    first, second = ranks(2)
    assert first.state_dict(3) == second.state_dict(3)


def test_other_options_cannot_continue_within_an_epoch_but_after_it():
    (saved,) = ranks(1)
    (other,) = ranks(1, batch_size=4)
    other.load_state_dict(saved.state_dict(3))
    with pytest.raises(BadInput, match="batch_size was 8 and is 4"):
        list(other)
    other.set_epoch(1)
    assert len(list(other)) == len(other)
    for one in ranks(2):
        one.load_state_dict(saved.state_dict(3))
        with pytest.raises(
            BadInput, match=r"number of processes \(trainer.devices times trainer.num_nodes\) was 1 and"
        ):
            list(one)


def test_bucketing_raises_the_useful_share():
    (bucketed,), (plain,) = ranks(1), ranks(1, bucketing=False)
    assert useful_share(SIZES, bucketed) > 0.8 > 0.6 > useful_share(SIZES, plain)


def test_useful_share_by_hand():
    sizes = torch.tensor([2, 4, 3, 3])
    assert useful_share(sizes, [[0, 1], [2, 3]]) == pytest.approx((4 + 16 + 9 + 9) / (2 * 16 + 2 * 9))
    assert useful_share(sizes, [[0], [1], [2], [3]]) == 1.0


def test_ranks_share_the_work_evenly():
    batches = [list(sampler) for sampler in ranks(4, bucketing=True)]
    nodes = torch.tensor([[int(SIZES[torch.tensor(batch)].sum()) for batch in rank] for rank in batches])
    full = nodes[:, nodes.min(0).values > 8]
    assert float((full.max(0).values / full.min(0).values).median()) < 1.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"pool": 0}, "pool"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"world_size": 300, "name": "test"}, "test split has 203 graphs, fewer than the 300"),
    ],
)
def test_options_out_of_range(options, message):
    with pytest.raises(BadInput, match=message):
        SizeBucketSampler(SIZES, **({"batch_size": 8, "shuffle": True} | options))
