"""ListOps as a benchmark: its contract, its options, and its independence of the number of processes."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from graphbench.benchmarks.sequences.listops import TOKENS, Grammar, ListOps, check_expression, sample_listops
from graphbench.contracts import GraphTable
from graphbench.data import worker_pool as pool
from graphbench.errors import BadInput
from graphbench.testing.benchmarks import BenchmarkContract

SMALL = {"sizes": (24, 6, 6)}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("listops"))


class TestListOps(BenchmarkContract):
    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, store):
        self.store = store

    def make_benchmark(self):
        return ListOps(**SMALL, store=self.store)


def tables(folder, **options):
    benchmark = ListOps(store=str(folder), **SMALL, **options)
    benchmark.setup()
    return benchmark.tables


def test_one_seed_gives_one_set_on_any_number_of_processes(store, tmp_path, monkeypatch):
    first = tables(store)
    monkeypatch.setattr(pool, "available_cores", lambda: 1)
    again, other = tables(tmp_path / "again"), tables(tmp_path / "other", data_seed=1)
    assert torch.equal(first["train"].columns["x"], again["train"].columns["x"])
    assert not torch.equal(first["val"].num_nodes, other["val"].num_nodes)
    assert not torch.equal(first["val"].num_nodes, first["test"].num_nodes)


def test_sequences_are_stored_without_padding(store):
    table = tables(store)["train"]
    assert len(table.columns["x"]) == int(table.num_nodes.sum())
    assert "pos" not in table.columns
    assert isinstance(table, GraphTable)


def test_published_sizes_and_length_are_in_the_specification():
    spec = ListOps().spec
    assert spec == ListOps.spec
    assert (spec.split_sizes, spec.max_nodes) == ((96_000, 2_000, 2_000), 1_999)
    short = ListOps(min_length=10, max_length=50)
    assert short.spec.max_nodes == 49


@pytest.mark.parametrize(
    "options", [{"min_length": 1_999}, {"max_depth": 0}, {"max_arguments": 1}, {"sizes": (1, 0, 1)}]
)
def test_limits_that_allow_nothing_are_refused(options):
    with pytest.raises(BadInput):
        ListOps(**options)


COUNT = 300


@pytest.fixture(scope="module")
def drawn():
    return sample_listops((3, 0, 0), COUNT)


def expressions(sequences):
    ends = np.cumsum(sequences.lengths)
    return [[TOKENS[t] for t in sequences.tokens[e - n : e]] for e, n in zip(ends, sequences.lengths, strict=True)]


def parse(tokens):
    """Return `(tree, rest)` of an expression, a digit or an operator with arguments, by recursive descent."""
    first, rest = tokens[0], tokens[1:]
    if first.isdigit():
        return int(first), rest
    assert first in ("[MIN", "[MAX", "[MED", "[SM")
    arguments = []
    while rest[0] != "]":
        argument, rest = parse(rest)
        arguments.append(argument)
    return (first, arguments), rest[1:]


def evaluate(tree):
    if isinstance(tree, int):
        return tree
    operator, arguments = tree
    values = sorted(evaluate(argument) for argument in arguments)
    if operator == "[MED":
        half = len(values) // 2
        return values[half] if len(values) % 2 else int(Fraction(values[half - 1] + values[half], 2))
    return {"[MIN": values[0], "[MAX": values[-1], "[SM": sum(values) % 10}[operator]


def depth(tree):
    return 1 if isinstance(tree, int) else 1 + max(map(depth, tree[1]))


def lists(tree):
    if not isinstance(tree, int):
        yield tree
        for argument in tree[1]:
            yield from lists(argument)


def trees(sequences):
    parsed = [parse(tokens) for tokens in expressions(sequences)]
    assert all(not rest for _, rest in parsed)
    return [tree for tree, _ in parsed]


def test_values_are_those_of_a_recursive_evaluator(drawn):
    assert [evaluate(tree) for tree in trees(drawn)] == drawn.labels.tolist()


def test_median_of_an_even_number_is_rounded_down():
    found = sample_listops((1,), 2_000, Grammar(max_depth=2, max_arguments=2, min_length=3, max_length=6))
    medians = [(t, v) for t, v in zip(expressions(found), found.labels, strict=True) if t[0] == "[MED"]
    assert len(medians) > 300
    assert all(value == (int(t[1]) + int(t[2])) // 2 for t, value in medians)


def test_expressions_keep_the_published_limits(drawn):
    assert drawn.lengths.min() > 500
    assert drawn.lengths.max() < 2_000
    every = trees(drawn)
    assert max(map(depth, every)) == 10
    sizes = {len(arguments) for tree in every for _, arguments in lists(tree)}
    assert sizes == set(range(2, 11))


def test_digits_and_operators_are_drawn_uniformly(drawn):
    counts = np.bincount(drawn.tokens, minlength=15)
    for part in (counts[:10], counts[10:14]):
        share = part / part.sum()
        tolerance = 5 * (share.mean() / part.sum()) ** 0.5
        assert np.abs(share - share.mean()).max() < tolerance
    assert counts[14] == counts[10:14].sum()


def test_lists_have_a_quarter_of_the_places_where_they_may_be():
    """Without limits on length, a quarter of the roots are lists."""
    found = sample_listops((2,), 4_000, Grammar(max_depth=3, max_arguments=3, min_length=0, max_length=1_000))
    roots = (found.lengths > 1).mean()
    assert abs(roots - 0.25) < 4 * (0.25 * 0.75 / 4_000) ** 0.5


def test_one_seed_draws_one_set(drawn):
    again, other = sample_listops((3, 0, 0), COUNT), sample_listops((3, 0, 1), COUNT)
    assert np.array_equal(drawn.tokens, again.tokens)
    assert not np.array_equal(drawn.lengths, other.lengths)


def test_impossible_lengths_are_refused():
    with pytest.raises(BadInput, match="none had a length"):
        sample_listops((0,), 1, Grammar(max_depth=2, max_arguments=2))


def is_expression(tokens):
    """Return whether a recursive descent uses every token and finds no list without arguments."""
    try:
        tree, rest = parse(tokens)
    except (AssertionError, IndexError):
        return False
    return not rest and (isinstance(tree, int) or all(arguments for _, arguments in lists(tree)))


def test_of_all_short_sequences_those_of_the_grammar_are_expressions():
    for length in range(8):
        for tokens in product(("7", "[SM", "]"), repeat=length):
            if is_expression(tokens):
                check_expression(tokens)
            else:
                with pytest.raises(BadInput):
                    check_expression(tokens)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[MAX 1 2", r"token 1, \[MAX, opens a list that no \] closes"),
        ("[MAX 1 [MIN 2 3 ]", r"token 1, \[MAX, opens a list"),
        ("[MAX 1 ] ]", r"token 4, \], closes a list, but none is open"),
        ("[MAX 1 ] 2", "token 4, 2, comes after the end of the expression"),
        ("[MAX 1 [SM ] ]", r"token 4, \], closes a list without arguments"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said_by_token(text, said):
    with pytest.raises(BadInput, match=said):
        check_expression(text.split())
