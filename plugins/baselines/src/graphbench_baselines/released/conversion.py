"""Convert released weights, using each of their tensors and setting each of the model's exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from graphbench.errors import BadInput

#: Maximum number of names listed in a message.
_SHOWN = 4
#: Tensors of a batch norm.
BATCH_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class Conversion:
    """Build a `state_dict` from released tensors; a tensor that is used twice, missing or left over is an error.

    Args:
        theirs: the authors' tensors by name.
        ours: the `state_dict` of the model, for names and shapes.

    Examples:
        >>> import torch
        >>> conversion = Conversion({"fc.weight": torch.ones(2, 3)}, {"linear.weight": torch.zeros(2, 3)})
        >>> conversion.copy("fc.weight", "linear.weight")
        >>> conversion.finish()["linear.weight"].sum()
        tensor(6.)
    """

    def __init__(self, theirs: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> None:
        self.unused, self.unset = dict(theirs), dict(ours)
        self.state: dict[str, Tensor] = {}

    def pop(self, name: str) -> Tensor:
        """Use a tensor of the authors.

        Raises:
            BadInput: there is no tensor of this name, or it was used before.
        """
        if name not in self.unused:
            raise BadInput(f"the file has no tensor {name!r}. It has {_shown(self.unused)}.")
        return self.unused.pop(name)

    def pop_list(self, prefix: str) -> list[Tensor]:
        """Use the tensors `prefix.0.weight`, `prefix.1.weight`, and so on."""
        tensors: list[Tensor] = []
        while (name := f"{prefix}.{len(tensors)}.weight") in self.unused:
            tensors.append(self.pop(name))
        return tensors

    def set(self, name: str, value: Tensor) -> None:
        """Set a tensor of the model.

        Raises:
            BadInput: the model has no tensor of this name and shape, or it was set before.
        """
        if name not in self.unset:
            raise BadInput(f"the model lacks {name!r}, which the file has; its options differ from those of the file.")
        shape = tuple(self.unset.pop(name).shape)
        if tuple(value.shape) != shape:
            raise BadInput(f"{name} of the model has shape {shape}, that of the file {tuple(value.shape)}.")
        self.state[name] = value

    def copy(self, theirs: str, ours: str) -> None:
        """Set a tensor of the model to a released one."""
        self.set(ours, self.pop(theirs))

    def copy_module(self, theirs: str, ours: str, names: Iterable[str] = ("weight", "bias")) -> None:
        """Set the tensors of a module to those with the same names in a released module."""
        for name in names:
            self.copy(f"{theirs}.{name}", f"{ours}.{name}")

    def finish(self) -> dict[str, Tensor]:
        """Return the new `state_dict`.

        Raises:
            BadInput: a tensor is left over on either side.
        """
        if self.unused:
            raise BadInput(f"{len(self.unused)} tensors of the file have no place in the model: {_shown(self.unused)}.")
        if self.unset:
            raise BadInput(f"{len(self.unset)} tensors of the model are not in the file: {_shown(self.unset)}.")
        return self.state


def _shown(names: Iterable[str]) -> str:
    """List the first names, and the number of remaining ones."""
    every = sorted(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return (", ".join(every[:_SHOWN]) or "none") + more
