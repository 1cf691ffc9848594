"""Divide the parts of an input between several jobs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from graphbench.errors import BadInput

#: Value of `--part` that derives the share from the variables of a launcher.
AUTO = "auto"
#: Rows of an input in each part, unless specified otherwise.
PART_ROWS = 1 << 16
_ARRAY = ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_MAX", "SLURM_ARRAY_TASK_COUNT")
_TORCHRUN, _SRUN = ("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Variables by which Lightning recognises a process as one of several that train together.
_OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID", "SLURM_NTASKS", "SLURM_PROCID")


@dataclass(frozen=True)
class Share:
    """Share `number`, from 1, of `count`: every `count`-th part of an input, so the number of rows is not needed.

    Examples:
        >>> [part for part in range(7) if Share(2, 3).has(part)]
        [1, 4]
    """

    number: int = 1
    count: int = 1

    def has(self, part: int) -> bool:
        """Return whether a part, by its number from 0, belongs to this share."""
        return part % self.count == self.number - 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, str] = os.environ) -> Share:
        """Parse `3/8`, or `auto` for the task of a SLURM array, the rank of torchrun or srun, or both.

        Raises:
            BadInput: the text is something else, or no launcher has set its variables.

        Examples:
            >>> Share.parse("3/8"), Share.parse("auto", {"RANK": "0", "WORLD_SIZE": "4"})
            (Share(number=3, count=8), Share(number=1, count=4))
        """
        if text == AUTO:
            return cls._launched(variables)
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise BadInput(f"--part must be a share such as 3/8, the third of eight, or {AUTO}, but got {text!r}.")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def _launched(cls, variables: Mapping[str, str]) -> Share:
        """Return the share of a process among the tasks of an array, times the ranks of each task."""
        places = []
        if _ARRAY[0] in variables:
            places.append(_place_in_array(variables))
        for rank, size in (_TORCHRUN, _SRUN):
            if rank in variables and size in variables:
                places.append((int(variables[rank]), int(variables[size])))
                break
        if not places:
            raise BadInput(
                f"--part {AUTO}: neither a SLURM array ({_ARRAY[0]}) nor torchrun ({_TORCHRUN[0]}) nor srun "
                f"({_SRUN[0]}) has set its variables here. Name the share, as in --part 1/8."
            )
        index, count = 0, 1
        for place, ranks in places:
            # The task of the array is the high digit and the rank within it the low digit.
            index, count = index * ranks + place, count * ranks
        return cls(index + 1, count)


def _place_in_array(variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the place of a task in its array, from 0, and the number of tasks.

    Raises:
        BadInput: the tasks are not evenly numbered, so these variables do not determine their places.
    """
    try:
        task, first, last, count = (int(variables[name]) for name in _ARRAY)
    except (KeyError, ValueError) as error:
        raise BadInput(f"--part {AUTO}: {', '.join(_ARRAY)} must all be set and whole numbers ({error}).") from error
    step = (last - first) // (count - 1) if count > 1 else 1
    if first + step * (count - 1) != last or (task - first) % step:
        raise BadInput(
            f"--part {AUTO}: the array has {count} tasks from {first} to {last}, which are not evenly numbered. Submit "
            f"it as --array 0-{count - 1}, or name the share, as in --part 1/{count}."
        )
    return (task - first) // step, count


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hide the variables of ranks, and hide from each rank the GPUs of the other ranks on its machine.

    The processes of shares work independently, and Lightning must not join them.
    """
    before = dict(os.environ)
    card = _own_card(before)
    for name in _OF_RANKS:
        os.environ.pop(name, None)
    if card is not None:
        os.environ[_VISIBLE] = card
    try:
        yield
    finally:
        for name in (*_OF_RANKS, _VISIBLE):
            os.environ.pop(name, None)
            os.environ.update({name: before[name]} if name in before else {})


def _own_card(variables: Mapping[str, str]) -> str | None:
    """Return the name of the GPU that a rank uses if its machine shows it several; else None."""
    import torch  # shares are parsed before it is imported

    local, cards = variables.get("LOCAL_RANK", variables.get("SLURM_LOCALID")), torch.cuda.device_count()
    if local is None or cards < 2:
        return None
    visible = variables.get(_VISIBLE)
    # torchrun and srun show every GPU of a machine to each of its ranks.
    names = visible.split(",") if visible else [str(card) for card in range(cards)]
    return names[int(local) % cards]
