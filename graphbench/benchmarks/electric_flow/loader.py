"""Fresh graphs in every batch, made where they are used, and the same again for a seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from graphbench.benchmarks.electric_flow.sampling import stream
from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput

#: Samples a batch from a generator; the second argument is the number of its first graph.
Draw = Callable[[torch.Generator, int], GraphBatch]

#: First word of the streams of training batches; the fixed splits have another.
_TRAINING = 0


class FreshLoader:
    """Hands out batches that are sampled on the device that trains, none of them twice.

    The seed, the rank and how many batches came before decide a batch, and nothing else does: neither a global
    generator nor where epochs end. So a run that is resumed sees what an uninterrupted one sees. CPUs and GPUs sample
    different numbers from one seed.

    It has no sampler and no epochs of its own: an iteration goes on where the one before stopped, for `steps` batches.
    Lightning keeps its `state_dict()` in checkpoints.

    Args:
        draw: makes a batch.
        steps: batches per epoch.
        batch_size: graphs per batch and rank.
        fresh_every: steps for which a batch serves before another is sampled.
        seed: of the run.
        device: where to draw.
        world_size: number of ranks.
        rank: which of them this is.
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
        #: Batches handed out so far.
        self.done = 0
        self._current: tuple[int, GraphBatch] | None = None

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[GraphBatch]:
        for _ in range(self.steps):
            batch = self._batch(self.done // self.fresh_every)
            self.done += 1
            yield batch

    def _batch(self, number: int) -> GraphBatch:
        """The batch of that number, kept for the steps that it serves."""
        if self._current is None or self._current[0] != number:
            generator = stream(self.device, _TRAINING, self.seed, number, self.rank)
            first_id = (number * self.world_size + self.rank) * self.batch_size
            self._current = number, self.draw(generator, first_id)
        return self._current[1]

    def state_dict(self) -> dict[str, Any]:
        """How many batches were handed out; equal on all ranks."""
        return {"done": self.done, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the state was taken.

        Raises:
            BadInput: the state is of other options, with which other graphs would follow.
        """
        changed = [f"{k} was {state.get(k)} and is {v}" for k, v in self._identity().items() if state.get(k) != v]
        if changed:
            raise BadInput(
                f"The checkpoint cannot be continued on these data, because {', '.join(changed)}. Restore the options, "
                "or start a new run from its weights with model.init_from."
            )
        self.done = int(state["done"])

    def _identity(self) -> dict[str, Any]:
        """All that decides which graphs a step sees, beside the distribution itself."""
        return {
            "batch_size": self.batch_size,
            "fresh_every": self.fresh_every,
            "seed": self.seed,
            "world_size": self.world_size,
            "device": self.device.type,
        }
