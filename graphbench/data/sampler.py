"""Sample batches of graphs of similar size, with little padding and every graph once, reproducible from a seed.

Legend: G graphs, W ranks, B graphs per batch and rank; a *global batch* is what all ranks see in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Sampler

from graphbench.data.splits import permutation
from graphbench.errors import BadInput, check_range

#: Seed of the order in which evaluation visits its batches, so that the first of them are not all of one size.
_EVALUATION_ORDER = 0

#: Names in messages for options with other names on the command line.
_CALLED = {"world_size": "the number of processes (trainer.devices times trainer.num_nodes)"}


class SizeBucketSampler(Sampler[list[int]]):
    """Yield the row numbers of one rank's batches.

    Training shuffles all graphs by (seed, epoch), sorts them by size within pools of `pool` global batches, cuts global
    batches, deals each of them to the ranks (pairing large with small, so that ranks rarely wait for each other) and
    shuffles their order. Evaluation sorts all graphs by size and always uses the same order. Either way every graph
    occurs exactly once and all ranks take the same number of steps: a remainder of fewer graphs than ranks joins the
    previous global batch. No global random generator is used.

    Args:
        num_nodes: nodes of every graph `[G]`.
        batch_size: graphs per batch and rank (B); one more in the batch that the remainder joins.
        shuffle: training (True) or evaluation (False).
        seed: seed of the shuffle; the same on all ranks.
        bucketing: put graphs of similar size into a batch. Otherwise batches are cut from the shuffled order (or, in
            evaluation, from the order of the table).
        pool: global batches that are sorted together. A larger pool leaves less padding and less randomness.
        world_size: number of ranks (W).
        rank: number of this rank.
        name: name of the split, for messages.
        unit: unit of the items, for messages.

    Examples:
        >>> import torch
        >>> sampler = SizeBucketSampler(torch.tensor([9, 2, 8, 3]), batch_size=2, shuffle=False)
        >>> [sorted(rows) for rows in sampler]  # graphs of similar size
        [[1, 3], [0, 2]]
    """

    def __init__(
        self,
        num_nodes: Tensor,
        batch_size: int,
        *,
        shuffle: bool,
        seed: int = 0,
        bucketing: bool = True,
        pool: int = 32,
        world_size: int = 1,
        rank: int = 0,
        name: str = "data",
        unit: str = "graphs",
    ) -> None:
        check_range("batch_size", batch_size, at_least=1, whole=True)
        check_range("pool", pool, at_least=1, whole=True)
        check_range("rank", rank, at_least=0, below=world_size, whole=True)
        if len(num_nodes) < world_size:
            raise BadInput(
                f"The {name} split has {len(num_nodes)} {unit}, fewer than the {world_size} processes that share it: "
                "each needs at least one. Use fewer devices or more data."
            )
        self.num_nodes = num_nodes.numpy().astype(np.int64)
        self.batch_size, self.shuffle, self.seed, self.bucketing = batch_size, shuffle, seed, bucketing
        self.pool, self.world_size, self.rank = pool, world_size, rank
        self.epoch = 0
        #: Number of batches of this epoch that are already done; the next iteration skips them.
        self.start = 0
        self._begun = False
        self._differs = ""

    @property
    def sampler(self) -> SizeBucketSampler:
        """Return this sampler, since Lightning calls `batch_sampler.sampler.set_epoch`."""
        return self

    def __len__(self) -> int:
        return len(self._cuts()) - 1

    def __iter__(self) -> Iterator[list[int]]:
        if self.start and self._differs:
            raise BadInput(
                f"The checkpoint was taken within an epoch ({self.start} batches done) and cannot be continued there, "
                f"because {self._differs}. Restore the options, or start from a checkpoint of a whole epoch."
            )
        start, self.start = self.start, 0
        order, cuts, steps = self._order(), self._cuts(), self._steps()
        for step in steps[start:]:
            yield order[cuts[step] + self._deal(cuts[step + 1] - cuts[step])].tolist()

    @property
    def next_epoch(self) -> int:
        """Return the epoch of the next iteration, unless `set_epoch` is called."""
        return self.epoch + self._begun

    def begin(self) -> None:
        """Begin an iteration: each one is a new epoch, unless `set_epoch` was called in between."""
        self.set_epoch(self.next_epoch)
        self._begun = True

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle; a new epoch starts with its first batch."""
        self._begun = False
        if epoch != self.epoch:
            self.epoch, self.start = epoch, 0

    def state_dict(self, batches_done: int) -> dict[str, Any]:
        """Return the state after `batches_done` batches of this epoch; equal on all ranks."""
        return {"epoch": self.epoch, "batches_done": batches_done, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume after `state["batches_done"]` batches of its epoch.

        A state with other options is accepted, because a finished epoch does not need them. Iterating raises `BadInput`
        if it would have to resume within an epoch.
        """
        self.epoch, self.start, self._begun = int(state["epoch"]), int(state["batches_done"]), False
        self._differs = what_differs(state, self._identity())

    def _identity(self) -> dict[str, Any]:
        """Return the options that decide which graphs a step sees."""
        names = ("batch_size", "seed", "shuffle", "bucketing", "pool", "world_size")
        return {"graphs": len(self.num_nodes)} | {name: getattr(self, name) for name in names}

    def _cuts(self) -> np.ndarray:
        """Return the first positions of the global batches in the order, and its end: `[steps + 1]`."""
        total, full = len(self.num_nodes), self.batch_size * self.world_size
        cuts = np.append(np.arange(0, total, full), total)
        # Otherwise a rank without a graph in the last step would wait forever for the others in their all-reduce.
        if len(cuts) > 2 and cuts[-1] - cuts[-2] < self.world_size:
            cuts = np.delete(cuts, -2)
        return cuts

    def _order(self) -> np.ndarray:
        """Return the row numbers in the order in which global batches are cut from them: `[G]`."""
        total = len(self.num_nodes)
        order = permutation(total, self.seed, self.epoch, 0) if self.shuffle else np.arange(total)
        if not self.bucketing:
            return order
        size = self.pool * self.batch_size * self.world_size if self.shuffle else total
        pools = np.arange(total) // size
        # By pool, then by size; lexsort is stable, so graphs of one size stay in the shuffled order.
        return order[np.lexsort((self.num_nodes[order], pools))]

    def _steps(self) -> np.ndarray:
        """Return the order of the global batches: `[steps]`."""
        if self.shuffle:
            return permutation(len(self), self.seed, self.epoch, 1)
        return permutation(len(self), _EVALUATION_ORDER) if self.bucketing else np.arange(len(self))

    def _deal(self, size: int) -> np.ndarray:
        """Return the positions of this rank in a sorted global batch: rows of W, every second one dealt in reverse."""
        rows = np.arange(-(-size // self.world_size))
        mine = np.where(rows % 2 == 0, self.rank, self.world_size - 1 - self.rank) + rows * self.world_size
        return mine[mine < size]


def what_differs(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe which options of a sampler differ from a checkpoint; empty if none does.

    Examples:
        >>> what_differs({"seed": 1, "world_size": 2}, {"seed": 1, "world_size": 3})
        'the number of processes (trainer.devices times trainer.num_nodes) was 2 and is 3'
    """
    changed = [name for name, value in now.items() if before.get(name) != value]
    return ", ".join(f"{_CALLED.get(name, name)} was {before.get(name)} and is {now[name]}" for name in changed)


def useful_share(num_nodes: Tensor, batches: Iterable[Sequence[int]]) -> float:
    """Return the share of padded attention work that is not padding: sum of n_g^2 over sum of B * max(n)^2."""
    squares = [(num_nodes[torch.as_tensor(batch)] ** 2) for batch in batches]
    useful = sum(int(batch.sum()) for batch in squares)
    return useful / sum(len(batch) * int(batch.max()) for batch in squares)
