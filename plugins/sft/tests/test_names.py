"""Names of tokens and the noise that is derived from them."""

import torch

from graphbench_sft.sampler import GUMBEL, gumbel, names_of_places, names_of_tokens, scramble, uniform


def graph_of(sizes):
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)), ptr


def test_scrambling_is_one_to_one_and_follows_its_definition():
    values = torch.cat([torch.arange(100_000), 2**32 - 1 - torch.arange(100_000)])
    assert scramble(values).unique().numel() == len(values)
    for value in (0, 1, 12345, 2**32 - 1):
        expected = value
        expected = ((expected ^ expected >> 16) * 0x21F0AAAD) % 2**32
        expected = ((expected ^ expected >> 15) * 0x735A2D97) % 2**32
        assert int(scramble(torch.tensor(value))) == expected ^ expected >> 15


def test_one_changed_bit_changes_half_of_the_bits():
    values = scramble(torch.arange(2000))  # any numbers
    for bit in range(32):
        changed = scramble(values) ^ scramble(values ^ (1 << bit))
        flips = torch.stack([(changed >> other) & 1 for other in range(32)]).double().mean(1)
        assert ((flips - 0.5).abs() < 0.08).all()


def largest_gap(numbers, distribution):
    """Return the largest difference between the empirical and the exact distribution function (Kolmogorov-Smirnov)."""
    exact = distribution(numbers.double().sort().values)
    steps = torch.arange(len(exact) + 1) / len(exact)
    return float(torch.maximum((exact - steps[:-1]).abs(), (exact - steps[1:]).abs()).max())


def test_noise_has_its_distribution_and_streams_are_independent():
    count = 100_000
    bound = 1.95 / count**0.5  # passed with probability 0.999
    for names in (torch.arange(count), scramble(torch.arange(count)), 1024 * torch.arange(count)):
        first, second = uniform(names), uniform(names, GUMBEL)
        assert first.min() > 0
        assert first.max() < 1
        assert largest_gap(first, lambda u: u) < bound
        assert largest_gap(gumbel(names), lambda g: (-(-g).exp()).exp()) < bound
        for one, other in ((first, second), (first[1:], first[:-1])):
            assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 4 / count**0.5


def test_places_name_tokens_by_graph_size_alone():
    names = names_of_places(*graph_of([5, 3, 5]))
    assert names[:8].unique().numel() == 8
    assert torch.equal(names[8:], names[:5])


def example(sizes=(6, 4)):
    generator = torch.Generator().manual_seed(0)
    batch, ptr = graph_of(sizes)
    codes = torch.randint(2, (len(batch), 1), generator=generator)
    path = torch.cat([torch.arange(a, b - 1) for a, b in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)])
    edges = torch.stack([path, path + 1])
    return batch, ptr, [codes, torch.randn(len(batch), 2, generator=generator)], torch.cat([edges, edges.flip(0)], 1)


def test_names_move_with_the_tokens_and_ignore_batch_mates():
    batch, ptr, columns, edges = example()
    names = names_of_tokens(batch, ptr, columns, edges)
    assert names.unique().numel() == len(names)
    order = torch.cat([torch.randperm(6), 6 + torch.randperm(4)])
    place = order.argsort()
    moved = names_of_tokens(batch, ptr, [column[order] for column in columns], place[edges])
    assert torch.equal(moved, names[order])
    inside = edges[:, edges[0] >= 6] - 6
    alone = names_of_tokens(batch[6:] - 1, ptr[1:] - 6, [column[6:] for column in columns], inside)
    assert torch.equal(alone, names[6:])
    batch, ptr, columns, edges = example((6, 1))  # the second graph has no edges
    alone = names_of_tokens(batch[6:] - 1, ptr[1:] - 6, [column[6:] for column in columns], edges[:, :0])
    assert torch.equal(alone, names_of_tokens(batch, ptr, columns, edges)[6:])


def test_programs_give_the_same_names():
    program = torch.compile(names_of_tokens, backend="aot_eager", fullgraph=True)
    assert torch.equal(program(*example()), names_of_tokens(*example()))


def test_neighbours_tell_equal_tokens_apart_and_order_the_rest():
    batch, ptr = graph_of([5])
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    edges = torch.cat([edges, edges.flip(0)], 1)
    order = torch.tensor([2, 0, 4, 1, 3])
    names = names_of_tokens(batch, ptr, [], edges)
    moved = names_of_tokens(batch, ptr, [], order.argsort()[edges])
    assert moved[order.argsort()[2]] == names[2], "the middle of a path has no equal"
    assert set(moved.tolist()) == set(names.tolist()), "its ends differ by their order"
    assert names.unique().numel() == 5


def test_names_depend_on_every_column_and_on_the_rest_of_the_graph():
    batch, ptr, (codes, dense), edges = example()
    names = names_of_tokens(batch, ptr, [codes, dense], edges)
    for changed in ([1 - codes, dense], [codes, dense + 1], [codes, dense.flip(1)]):
        assert not torch.isin(names_of_tokens(batch, ptr, changed, edges), names).any()
    other = dense.clone()
    other[0] += 1
    assert not torch.isin(names_of_tokens(batch, ptr, [codes, other], None)[:6], names).any()
    assert torch.equal(names_of_tokens(batch, ptr, [codes, other], edges)[6:], names[6:])


def test_signs_of_zero_and_precision_do_not_matter():
    batch, ptr = graph_of([3])
    zeros = torch.tensor([[0.0], [1.5], [2.0]])
    expected = names_of_tokens(batch, ptr, [zeros], None)
    for same in (torch.tensor([[-0.0], [1.5], [2.0]]), zeros.double()):
        assert torch.equal(names_of_tokens(batch, ptr, [same], None), expected)
