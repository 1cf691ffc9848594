"""ListOps of the Long Range Arena, generated with its grammar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np

from graphbench.benchmarks.base import with_sizes
from graphbench.benchmarks.sequences import specs
from graphbench.benchmarks.sequences.expressions import TOKENS, Grammar, check_expression, sample_listops
from graphbench.benchmarks.sequences.inputs import TextInput, Tokens
from graphbench.contracts import GraphTable
from graphbench.errors import BadInput, check_range

_CHUNK = 500  # expressions per job; another number would sample other expressions
_NUMBERS = {token: number for number, token in enumerate(TOKENS)}


class ListOps(TextInput):
    """Value of a nested list of digits under MIN, MAX, MED and SM: 100,000 sequences of 501 to 1,999 tokens.

    Generated with the published grammar ("Long Range Arena", Tay et al., 2021), so the published expressions have the
    same distribution; their seed is unknown. Tokens: ten digits, four opening operators, one closing bracket.

    Args:
        data_seed: of the expressions.
        sizes: sequences in train, validation and test for a smaller (or larger) set.
        min_length, max_length: expressions have more tokens than `min_length` and fewer than `max_length`.
        max_depth: depth of nested lists, counting one for the digits.
        max_arguments: most arguments of a list.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: for limits that no expression, or hardly any, meets.
    """

    spec = specs.LIST_OPS

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

    text_columns = ("Source",)  # as in the arena's own files

    def tokens_of(self, texts: Sequence[str]) -> Tokens:
        """Tokenize an expression, separated by blanks, such as `[MAX 2 9 [MIN 4 7 ] 0 ]`.

        Parentheses of the arena's files are dropped, as in the arena.

        Raises:
            BadInput: there is no token, or another word, or they are not one expression, see `check_expression`.
        """
        words = [word for word in texts[0].split() if word not in ("(", ")")]
        unknown = next((word for word in words if word not in _NUMBERS), None)
        if unknown is not None:
            raise BadInput(f"{unknown!r} is no token of ListOps; expected {' '.join(TOKENS)}, separated by blanks")
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
        """Sample the expressions on all cores.

        Raises:
            BadInput: the grammar makes hardly any expression of such lengths.
        """
        return self.drawn(partial(sample_listops, grammar=self.grammar), self.data_seed, _CHUNK)
