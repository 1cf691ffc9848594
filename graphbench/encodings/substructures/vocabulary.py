"""Define the vocabulary of substructures: kinds, and patterns of a kind and a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from graphbench.errors import BadInput


class Kind(IntEnum):
    """Kinds of substructures, in the order of the vocabulary.

    Examples:
        >>> [kind.name for kind in Kind]
        ['CYCLE', 'PATH', 'STAR', 'HOP', 'WALK']
    """

    CYCLE = 0
    PATH = 1
    STAR = 2
    HOP = 3
    WALK = 4

    @property
    def is_neighbourhood(self) -> bool:
        """Return whether the kind is a neighbourhood of a node rather than a geometric pattern."""
        return self >= Kind.HOP


#: Kind -> unit of `size` and its smallest value. A star with one leaf is an edge, which has no centre.
_SIZES = {
    Kind.CYCLE: ("nodes", 3),
    Kind.PATH: ("nodes", 2),
    Kind.STAR: ("leaves", 2),
    Kind.HOP: ("hops", 1),
    Kind.WALK: ("steps", 1),
}


@dataclass(frozen=True)
class Pattern:
    """One entry of the vocabulary.

    Args:
        kind: kind of the substructure.
        size: nodes of a cycle or path, leaves of a star, radius of a k-hop neighbourhood, steps of a random walk.

    Examples:
        >>> Pattern(Kind.CYCLE, 6)  # benzene rings
        Pattern(kind=<Kind.CYCLE: 0>, size=6)
    """

    kind: Kind
    size: int

    def __post_init__(self) -> None:
        unit, smallest = _SIZES[self.kind]
        if isinstance(self.size, bool) or not isinstance(self.size, int) or not smallest <= self.size <= 255:
            raise BadInput(
                f"A {self.kind.name.lower()} needs a whole number of {unit} from {smallest} to 255, got {self.size!r}."
            )

    @property
    def name(self) -> str:
        """Name for messages: "cycle-6", "star-3", "hop-2"."""
        return f"{self.kind.name.lower()}-{self.size}"

    @property
    def max_nodes(self) -> int | None:
        """Nodes of the largest match; None for k-hop neighbourhoods, which are unbounded."""
        if self.kind is Kind.HOP:
            return None
        return self.size + (self.kind in (Kind.STAR, Kind.WALK))


def make_vocabulary(**sizes: Sequence[int]) -> tuple[Pattern, ...]:
    """Build patterns sorted by kind and size from `cycle=(3, 4), path=(4,), ...`.

    Raises:
        BadInput: a size is out of range or named twice, or there is no pattern at all.
    """
    patterns = [Pattern(Kind[kind.upper()], size) for kind, chosen in sizes.items() for size in chosen]
    repeated = sorted({pattern.name for pattern in patterns if patterns.count(pattern) > 1})
    if repeated:
        raise BadInput(f"Each size of a kind may be named only once; repeated: {', '.join(repeated)}.")
    if not patterns:
        raise BadInput("The vocabulary is empty: name at least one size of one kind of substructure.")
    return tuple(sorted(patterns, key=lambda pattern: (pattern.kind, pattern.size)))
