"""Accounts of a conversion: every tensor of the authors is read once, every tensor of the model is given once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from graphbench.errors import BadInput

#: Names that a message lists at most.
_SHOWN = 4
#: Tensors of a batch norm.
BATCH_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class Accounts:
    """Tensors of the authors that nobody has read, and those of the model that nobody has given.

    Args:
        theirs: the authors' tensors by name.
        ours: the `state_dict` of the model, for names and shapes.

    Examples:
        >>> import torch
        >>> accounts = Accounts({"fc.weight": torch.ones(2, 3)}, {"linear.weight": torch.zeros(2, 3)})
        >>> accounts.move("fc.weight", "linear.weight")
        >>> accounts.close()["linear.weight"].sum()
        tensor(6.)
    """

    def __init__(self, theirs: Mapping[str, Tensor], ours: Mapping[str, Any]) -> None:
        self.theirs, self.ours = dict(theirs), dict(ours)
        self.made: dict[str, Any] = {}

    def take(self, name: str) -> Tensor:
        """Return a tensor of the authors, which counts as read.

        Raises:
            BadInput: there is none of the name, or it was read before.
        """
        if name not in self.theirs:
            raise BadInput(f"the file has no tensor {name!r}. It has {_shown(self.theirs)}.")
        return self.theirs.pop(name)

    def take_list(self, prefix: str, suffix: str = ".weight") -> list[Tensor]:
        """Return the tensors `prefix.0suffix`, `prefix.1suffix`, and so on."""
        taken: list[Tensor] = []
        while f"{prefix}.{len(taken)}{suffix}" in self.theirs:
            taken.append(self.take(f"{prefix}.{len(taken)}{suffix}"))
        return taken

    def give(self, name: str, value: Tensor) -> None:
        """Give the model a tensor.

        Raises:
            BadInput: the model has none of the name, of this shape, or has been given it before.
        """
        if name not in self.ours:
            raise BadInput(f"the model lacks {name!r}, which the file has; its options differ from those of the file.")
        shape = tuple(self.ours.pop(name).shape)
        if tuple(value.shape) != shape:
            raise BadInput(f"{name} of the model has shape {shape}, that of the file {tuple(value.shape)}.")
        self.made[name] = value

    def move(self, theirs: str, ours: str) -> None:
        """Give the model one tensor of the authors as it is."""
        self.give(ours, self.take(theirs))

    def move_all(self, theirs: str, ours: str, names: Iterable[str] = ("weight", "bias")) -> None:
        """Give one module of the model the tensors of one of the authors', which are called alike."""
        for name in names:
            self.move(f"{theirs}.{name}", f"{ours}.{name}")

    def close(self) -> dict[str, Any]:
        """Return the new `state_dict`.

        Raises:
            BadInput: a tensor is left over on either side.
        """
        if self.theirs:
            raise BadInput(f"{len(self.theirs)} tensors of the file have no place in the model: {_shown(self.theirs)}.")
        if self.ours:
            raise BadInput(f"{len(self.ours)} tensors of the model are not in the file: {_shown(self.ours)}.")
        return self.made


def _shown(names: Iterable[str]) -> str:
    """List the first names, and how many more there are."""
    every = sorted(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return (", ".join(every[:_SHOWN]) or "none") + more
