"""ListOps of the Long Range Arena: nested lists of digits under MIN, MAX, MED and SM, sampled and evaluated.

The grammar of "Long Range Arena" (Tay et al., 2021, section 2.2.1; after Nangia and Bowman, 2018), with the published
constants: below depth 10 an expression is a list with probability 1/4, else a digit; a list has one of the four
operators and 2 to 10 arguments, all sampled uniformly. Expressions with 501 to 1,999 tokens are kept.

MED is the median rounded down, SM the sum modulo 10. Tokens are the digits, the opening operators and the closing
bracket. Parentheses in the published files carry no information, and the published pipeline also drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.base import Sequences
from graphbench.benchmarks.sequences.inputs import TextInput, Tokens
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import with_sizes
from graphbench.data.worker_pool import random_state
from graphbench.errors import BadInput, check_range

_CHUNK = 500  # expressions per job; another number would change the expressions
TOKENS = ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]")
MIN, MAX, MED, SM, END = 10, 11, 12, 13, 14
_LIST_PROBABILITY = 0.25
_MIN_ARGUMENTS = 2
_FRUITLESS = 20  # rounds without any expression before giving up
_CANDIDATES = 8_000  # expressions begun at once: about a million nodes

_NUMBERS = {token: number for number, token in enumerate(TOKENS)}


class ListOps(TextInput):
    """Value of a nested list of digits under MIN, MAX, MED and SM: 100,000 sequences of 501 to 1,999 tokens.

    Expressions are generated with the published grammar ("Long Range Arena", Tay et al., 2021), so the published ones
    have the same distribution; their seed is unknown. Tokens: ten digits, four opening operators, one closing bracket.

    Args:
        data_seed: seed of the expressions.
        sizes: sequences in train, validation and test for a smaller (or larger) set.
        min_length, max_length: expressions have more tokens than `min_length` and fewer than `max_length`.
        max_depth: depth of nested lists, counting one for the digits.
        max_arguments: maximum number of arguments of a list.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: no expression, or hardly any, meets the limits.
    """

    spec = specs.LIST_OPS
    text_columns = ("Source",)  # as in the arena's files

    def __init__(
        self,
        data_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        min_length: int = 500,
        max_length: int = 2_000,
        max_depth: int = 10,
        max_arguments: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.grammar = Grammar(max_depth, max_arguments, min_length, max_length)
        self.data_seed = data_seed
        check_range("max_depth", max_depth, at_least=1, whole=True)
        check_range("max_arguments", max_arguments, at_least=2, whole=True)
        if not 0 <= min_length < max_length - 1:
            raise BadInput(
                f"min_length must be at least 0 and two below max_length, but got {min_length} and {max_length}."
            )
        spec = with_sizes(type(self).spec, sizes)
        if self.grammar != Grammar():
            spec = replace(spec, max_nodes=max_length - 1, mean_nodes=None, disk_mb=None)
        self.spec = spec

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """Tokenize an expression, separated by blanks, such as `[MAX 2 9 [MIN 4 7 ] 0 ]`.

        Parentheses in the arena's files are dropped, as in the arena.
        """
        words = [word for word in texts[0].split() if word not in ("(", ")")]
        unknown = next((word for word in words if word not in _NUMBERS), None)
        if unknown is not None:
            raise BadInput(f"{unknown!r} is not a token of ListOps; expected {' '.join(TOKENS)}, separated by blanks")
        check_expression(words)
        return Tokens(np.array([_NUMBERS[word] for word in words], dtype=np.uint8))

    def source_key(self) -> dict[str, Any]:
        """Return the options that define the expressions."""
        return {
            "data_seed": self.data_seed,
            "sizes": list(self.spec.split_sizes or ()),
            "grammar": asdict(self.grammar),
            "chunk": _CHUNK,
        }

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample the expressions on all cores."""
        return self.drawn(partial(sample_listops, grammar=self.grammar), self.data_seed, _CHUNK)


@dataclass(frozen=True)
class Grammar:
    """Limits of the sampled expressions.

    Expressions have more tokens than `min_length` and fewer than `max_length`; depth counts one for the digits.
    """

    max_depth: int = 10
    max_arguments: int = 10
    min_length: int = 500
    max_length: int = 2_000


@dataclass
class _Level:
    """All nodes of one depth, with children of one list adjacent, in the order of their parents.

    Args:
        root: expression of each node `[nodes]`.
        code: token of each, an operator or a digit `[nodes]`.
        arguments: children of each list `[lists]`.
        parent: index of the parent among the lists one level up `[nodes]`.
    """

    root: np.ndarray
    code: np.ndarray
    arguments: np.ndarray
    parent: np.ndarray

    @property
    def is_list(self) -> np.ndarray:
        return self.code >= MIN


def sample_listops(seed: tuple[int, ...], count: int, grammar: Grammar | None = None) -> Sequences:
    """Sample `count` expressions, as indices into `TOKENS`, and their values 0 to 9."""
    grammar = grammar or Grammar()
    generator = random_state(*seed)
    tokens, lengths, values = [], [], []
    missing, rounds = count, 0
    # Grow whole forests, since NumPy grows thousands as fast as one; a few percent have a length to keep.
    while missing > 0:
        levels, chosen = _draw_trees(generator, grammar)
        rounds += 1
        if not len(chosen):
            if rounds >= _FRUITLESS and missing == count:
                raise BadInput(
                    f"Of {rounds * _CANDIDATES:,} ListOps expressions sampled with {grammar}, none had a length to "
                    "keep. Allow deeper, wider or shorter expressions."
                )
            continue
        part = _read_off(_renumber(levels, chosen[:missing]))
        tokens.append(part.tokens)
        lengths.append(part.lengths)
        values.append(part.labels)
        missing -= len(part)
    return Sequences(np.concatenate(tokens), np.concatenate(lengths), np.concatenate(values))


def check_expression(words: Sequence[str]) -> None:
    """Refuse tokens that are not one expression: a digit, or a closed list of one or more arguments.

    Examples:
        >>> check_expression("[MAX 2 [MIN 4 7 ] ]".split())
        >>> check_expression("[MAX 2 [MIN 4 7 ]".split())
        Traceback (most recent call last):
        graphbench.errors.BadInput: token 1, [MAX, opens a list that no ] closes
    """
    if not words:
        raise BadInput("there is no token")
    open_lists: list[int] = []  # positions of the lists around a token
    for place, word in enumerate(words, start=1):
        fault = ""
        if word == "]" and not open_lists:
            fault = "closes a list, but none is open"
        elif place > 1 and not open_lists:
            fault = "comes after the end of the expression"
        elif word == "]" and open_lists.pop() == place - 1:
            fault = "closes a list without arguments"
        if fault:
            raise BadInput(f"token {place}, {word}, {fault}; expected one digit, or one list such as [MAX 2 9 ]")
        if word.startswith("["):
            open_lists.append(place)
    if open_lists:
        place = open_lists[-1]
        raise BadInput(f"token {place}, {words[place - 1]}, opens a list that no ] closes")


def _draw_trees(generator: np.random.RandomState, grammar: Grammar) -> tuple[list[_Level], np.ndarray]:
    """Sample level by level; also return the expressions of valid length, ascending."""
    length = np.zeros(_CANDIDATES, dtype=np.int64)
    root = parent = np.arange(_CANDIDATES)
    levels = []
    for depth in range(1, grammar.max_depth + 1):
        code = generator.randint(0, 10, len(root)).astype(np.uint8)
        if depth < grammar.max_depth:
            is_list = generator.random_sample(len(root)) < _LIST_PROBABILITY
            code[is_list] = generator.randint(MIN, SM + 1, int(is_list.sum()))
        lists = code >= MIN
        length += np.bincount(root, minlength=_CANDIDATES) + np.bincount(root[lists], minlength=_CANDIDATES)
        arguments = generator.randint(_MIN_ARGUMENTS, grammar.max_arguments + 1, int(lists.sum()))
        levels.append(_Level(root, code, arguments, parent))
        if not len(arguments):
            break
        parent = np.repeat(np.arange(len(arguments)), arguments)
        root = root[lists][parent]
    return levels, np.flatnonzero((length > grammar.min_length) & (length < grammar.max_length))


def _renumber(levels: list[_Level], chosen: np.ndarray) -> list[_Level]:
    """Select the levels of the chosen expressions, and renumber these."""
    number = np.full(_CANDIDATES, -1)
    number[chosen] = np.arange(len(chosen))
    selected = []
    new_parent = number
    for level in levels:
        stays = number[level.root] >= 0
        lists_stay = stays[level.is_list]
        selected.append(
            _Level(
                number[level.root[stays]],
                level.code[stays],
                level.arguments[lists_stay],
                new_parent[level.parent[stays]],
            )
        )
        new_parent = lists_stay.cumsum() - 1
    return [level for level in selected if len(level.code)]


def _read_off(levels: list[_Level]) -> Sequences:
    """Compute lengths and values from the leaves up, then positions of tokens from the roots down."""
    sizes: list[np.ndarray] = []
    value = size = np.zeros(0, dtype=np.int64)
    # Children of one list are adjacent in the level below, so that `reduceat` sums or sorts all lists at once.
    for level in reversed(levels):
        below, below_size = value, size
        value, size = level.code.astype(np.int64), np.ones(len(level.code), dtype=np.int64)
        if len(level.arguments):
            starts = level.arguments.cumsum() - level.arguments
            size[level.is_list] = 2 + np.add.reduceat(below_size, starts)
            value[level.is_list] = _evaluate(level.code[level.is_list], below, starts, level.arguments)
        sizes.append(size)
    sizes.reverse()
    tokens = np.zeros(int(size.sum()), dtype=np.uint8)
    start = size.cumsum() - size
    for number, level in enumerate(levels):
        if number:
            before = sizes[number].cumsum() - sizes[number]  # tokens of all nodes left of this one
            first = np.flatnonzero(np.diff(level.parent, prepend=-1))
            start = start[levels[number - 1].is_list][level.parent] + 1 + before - before[first][level.parent]
        tokens[start] = level.code
        tokens[(start + sizes[number] - 1)[level.is_list]] = END
    return Sequences(tokens, size, value.astype(np.uint8))


def _evaluate(operators: np.ndarray, values: np.ndarray, starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Evaluate lists whose arguments are consecutive in `values`: `[lists]`."""
    owner = np.repeat(np.arange(len(starts)), counts)
    ordered = values[np.lexsort((values, owner))]
    median = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) // 2
    low, high = ordered[starts], ordered[starts + counts - 1]
    return np.choose(operators - MIN, [low, high, median, np.add.reduceat(values, starts) % 10])
