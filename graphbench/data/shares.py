"""Shares of train, validation and test, as options give them; without torch, for processes that read molecules."""

from __future__ import annotations

from collections.abc import Sequence

from graphbench.contracts import SPLITS
from graphbench.errors import BadInput

#: Shares of train, val and test that options have unless they are given.
USUAL_SHARES = (0.8, 0.1, 0.1)


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """Return three shares that add up to 1; validation and test may have none.

    Raises:
        BadInput: they are something else.

    Examples:
        >>> check_fractions([0.9, 0.1, 0])
        (0.9, 0.1, 0.0)
    """
    shares = tuple(map(float, fractions))
    if len(shares) != len(SPLITS) or min(shares) < 0 or not shares[0] > 0 or not abs(sum(shares) - 1) < 1e-6:
        raise BadInput(
            f"fractions: expected shares of train (above 0), val and test (0 or more) that add up to 1, got "
            f"{list(fractions)}."
        )
    train, val, test = shares
    return train, val, test


def without_share(fractions: Sequence[float]) -> tuple[str, ...]:
    """Return the splits that may stay empty.

    Examples:
        >>> without_share([0.9, 0.1, 0])
        ('test',)
    """
    return tuple(name for name, share in zip(SPLITS, fractions, strict=True) if not share)


def unused_shares(fractions: Sequence[float]) -> str:
    """Say that shares decide nothing, where they are not the usual ones and a split is given whole.

    Examples:
        >>> unused_shares([0.8, 0.1, 0.1]), unused_shares([0.5, 0.25, 0.25])
        ('', '; fractions are not used')
    """
    return "" if tuple(fractions) == USUAL_SHARES else "; fractions are not used"
