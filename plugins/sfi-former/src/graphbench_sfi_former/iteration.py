"""Options of the paper's iteration as a layer takes them, and a start that does not depend on the batch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphbench.errors import check_choice, check_range
from graphbench_sfi_former.proximal import Step, first_flow, sparse_flow_proximal

StartName = Literal["uniform", "scaled", "dense", "zeros"]


@dataclass(frozen=True)
class ProximalOptions:
    """What decides the result of T steps of the iteration, which is far from converged on all but tiny graphs.

    The paper draws the start at random and gives neither its range nor T. Here the random start is a function of
    `seed`, the head and the two nodes, and the same in every layer and pass: a graph gets the same answer whatever
    shares its batch.

    Args:
        num_steps: T.
        start: "uniform" on [0, 1), "scaled" uniform on [0, 2 / n), "dense" the flow without friction, or "zeros".
        step: "barzilai-borwein" or "constant"; see `sparse_flow_proximal`.
        seed: of the random starts.

    Raises:
        BadInput: fewer than one step, or an unknown start or step.

    Examples:
        >>> ProximalOptions(num_steps=5, start="zeros").as_dict()
        {'num_steps': 5, 'start': 'zeros', 'step': 'barzilai-borwein', 'seed': 0}
    """

    num_steps: int = 20
    start: StartName = "uniform"
    step: Step = "barzilai-borwein"
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("num_steps of the proximal solver", self.num_steps, at_least=1)
        check_choice("start of the proximal solver", self.start, get_args(StartName))
        check_choice("step of the proximal solver", self.step, get_args(Step))

    def solve(
        self,
        resistance: Tensor,
        friction: Tensor,
        penalty: float | Tensor,
        alpha: float | Tensor | None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """A solver for `sparse_flow_attention`; arguments as in `sparse_flow_proximal`, shapes `[B, H, N, N]`."""
        return sparse_flow_proximal(
            resistance,
            friction,
            penalty,
            alpha,
            mask,
            num_steps=self.num_steps,
            start=self._start(resistance, mask),
            step=self.step,
        )

    def start_of(
        self,
        resistance: Tensor,
        friction: Tensor,
        penalty: float | Tensor,
        alpha: float | Tensor | None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """The flow before the first step, `[B, H, N, N]`; arguments as in `solve`, of which three are not read."""
        return first_flow(self._start(resistance, mask), resistance, mask)

    def as_dict(self) -> dict[str, Any]:
        """The options as plain values."""
        return asdict(self)

    def _start(self, resistance: Tensor, mask: Tensor | None) -> StartName | Tensor:
        if self.start not in ("uniform", "scaled"):
            return self.start
        heads, num_nodes = resistance.shape[-3], resistance.shape[-1]
        start = _nested_uniform(heads, num_nodes, self.seed).to(resistance)
        if self.start == "scaled":
            num_keys = num_nodes if mask is None else mask.sum(-1, keepdim=True).clamp_min(1)
            start = start * (2 / torch.as_tensor(num_keys, device=start.device))
        return start.expand(resistance.shape)


def _nested_uniform(heads: int, num_nodes: int, seed: int) -> Tensor:
    """Uniform numbers on [0, 1) `[H, n, n]`, of which a smaller n takes the upper left corners.

    Entries are numbered so that those of the n x n corner are the first n^2: entry (i, j) has number
    m^2 + i if j = m, else m^2 + m + 1 + j, with m = max(i, j).
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(num_nodes**2, heads, generator=generator)
    row, column = torch.meshgrid(torch.arange(num_nodes), torch.arange(num_nodes), indexing="ij")
    shell = torch.maximum(row, column)
    number = shell**2 + torch.where(column == shell, row, shell + 1 + column)
    return drawn[number].permute(2, 0, 1)
