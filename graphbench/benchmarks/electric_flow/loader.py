"""Sample fresh graphs for every batch on the training device, reproducible from a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from graphbench.benchmarks.electric_flow.sampling import stream
from graphbench.contracts import GraphBatch
from graphbench.data.sampler import what_differs
from graphbench.errors import BadInput

#: Samples a batch from a generator; the second argument is the number of its first graph.
Draw = Callable[[torch.Generator, int], GraphBatch]

_TRAINING = 0  # first word of the seeds of training batches; fixed splits have a different one


class FreshLoader:
    """Yield batches that are sampled on the training device.

    A batch depends only on the seed, the rank and its number, and not on a global generator or on epoch boundaries. A
    resumed run therefore sees the same batches as an uninterrupted one. CPUs and GPUs sample different numbers from the
    same seed. An iteration of `steps` batches continues where the previous one stopped; Lightning stores `state_dict()`
    in checkpoints.

    Args:
        draw: samples a batch.
        steps: batches per epoch.
        batch_size: graphs per batch and rank.
        fresh_every: steps for which a batch is used before another is sampled.
        seed: seed of the run.
        device: device of the batches.
        world_size, rank: number of ranks, and index of this one.
    """

    def __init__(
        self,
        draw: Draw,
        steps: int,
        batch_size: int,
        fresh_every: int,
        seed: int,
        device: torch.device,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        self.draw, self.steps, self.batch_size, self.fresh_every = draw, steps, batch_size, fresh_every
        self.seed, self.device, self.world_size, self.rank = seed, device, world_size, rank
        self.done = 0  # number of batches yielded so far
        self._current: tuple[int, GraphBatch] | None = None

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[GraphBatch]:
        for _ in range(self.steps):
            batch = self._batch(self.done // self.fresh_every)
            self.done += 1
            yield batch

    def _batch(self, number: int) -> GraphBatch:
        """Return the batch of that number, which is cached for `fresh_every` steps."""
        # Kept on the device, so that a batch for `fresh_every` steps is sampled only once.
        if self._current is None or self._current[0] != number:
            generator = stream(self.device, _TRAINING, self.seed, number, self.rank)
            first_id = (number * self.world_size + self.rank) * self.batch_size
            self._current = number, self.draw(generator, first_id)
        return self._current[1]

    def state_dict(self) -> dict[str, Any]:
        """Return the number of batches so far, which is equal on all ranks."""
        return {"done": self.done, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state.

        Raises:
            BadInput: the options differ from those of the state, so the next graphs would differ.
        """
        if differs := what_differs(state, self._identity()):
            raise BadInput(
                f"The checkpoint cannot be continued on these data, because {differs}. Restore the options, "
                "or start a new run from its weights with model.init_from."
            )
        self.done = int(state["done"])

    def _identity(self) -> dict[str, Any]:
        """Return the options, other than the distribution, that select the graphs of a step."""
        return {
            "batch_size": self.batch_size,
            "fresh_every": self.fresh_every,
            "seed": self.seed,
            "world_size": self.world_size,
            "device": self.device.type,
        }
