"""The iteration of the paper, T steps of proximal gradient through autograd, for fidelity and comparison.

SFi-Former (Li et al., 2025, section 3.3, equation 12 and appendix A). Three of its formulas cannot be meant as printed
and are corrected here: the threshold is max(|Y| - t penalty F, 0), without the bar around the whole difference; the
Barzilai-Borwein step is <A, B> / ||B||_F^2, with the square; and the greatest safe constant step is
1 / (max r + alpha n), as the Hessian of a row is diag(r) + alpha 1 1^T, not 1 / (1 + alpha sqrt n).

The paper starts from uniform random numbers and gives neither their range nor T. With 50 or more nodes the flow is far
from the optimum after tens of steps, so the result depends on the start. `sparse_flow` is the limit of many steps.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from graphbench.errors import BadInput, check_choice, check_range
from graphbench_sfi_former.sparse_flow import check_mask, check_rows, per_matrix, solving_dtype

Start = Literal["uniform", "scaled", "dense", "zeros"]
Step = Literal["barzilai-borwein", "constant"]


def sparse_flow_proximal(
    resistance: Tensor,
    friction: Tensor,
    penalty: float | Tensor,
    alpha: float | Tensor | None,
    mask: Tensor | None = None,
    *,
    num_steps: int = 20,
    start: Start | Tensor = "uniform",
    step: Step = "barzilai-borwein",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Take T steps of equation (12) towards the minimum of equation (11), differentiated through all of them.

    With a step length t, one step is

        Y = Z - t (R o Z + alpha (Z 1 - 1) 1^T),    Z <- sign(Y) max(|Y| - t penalty F, 0).

    The Barzilai-Borwein step is one number per matrix, t = <A, B> / ||B||_F^2 with A the change of Z and B that of the
    gradient; autograd treats it as a constant. The first step is the greatest safe constant one.

    Args:
        resistance: r `[..., N, K]`, positive.
        friction: f `[..., N, K]`, non-negative.
        penalty: weight of the friction, non-negative: a number or a tensor that broadcasts to `[..., 1, 1]`.
        alpha: weight of the unit-inflow term, positive, same types as `penalty`. The iteration has no hard constraint.
        mask: boolean, broadcastable to `[..., N, K]`; True where a key is allowed. Other keys stay 0.
        num_steps: T; memory for the backward pass grows with it.
        start: "uniform" on [0, 1) as in the paper (our reading), "scaled" uniform on [0, 2 / n) so that rows sum to
            about one, "dense" the flow without friction, "zeros", or a tensor of the shape of `resistance`.
        step: "barzilai-borwein", or "constant" for 1 / (max r + alpha n) of each matrix, with n the largest number of
            allowed keys in a row.
        generator: source of the random start.

    Returns:
        Flow after T steps `[..., N, K]`, in the dtype of `resistance`; half precision is computed in float32.

    Raises:
        BadInput: alpha is None, fewer than one step, an unknown start or step, or as for `sparse_flow`.

    Examples:
        >>> r, f = torch.ones(2, 2), torch.zeros(2, 2)
        >>> sparse_flow_proximal(r, f, penalty=0.0, alpha=1.0, num_steps=50, start="zeros")  # alpha / (r + 2 alpha)
        tensor([[0.3333, 0.3333],
                [0.3333, 0.3333]])
    """
    check_rows(resistance, friction)
    if alpha is None:
        raise BadInput("sparse_flow_proximal needs alpha: the iteration solves the penalised problem. See sparse_flow.")
    check_range("num_steps", num_steps, at_least=1)
    check_choice("step", step, get_args(Step))
    lead = tuple(resistance.shape[:-2])
    dtype = solving_dtype(resistance, friction)
    r, f = resistance.to(dtype), friction.to(dtype)
    penalty = per_matrix("penalty", penalty, lead, r.device, positive=False).to(dtype).reshape(*lead, 1, 1)
    alpha = per_matrix("alpha", alpha, lead, r.device, positive=True).to(dtype).reshape(*lead, 1, 1)
    if mask is not None:
        check_mask(mask, tuple(r.shape))
        r, f = torch.where(mask, r, 1.0), torch.where(mask, f, 0.0)
    flow = first_flow(start, r, mask, generator)
    return _iterate(flow, r, penalty * f, alpha, mask, num_steps, step).to(resistance.dtype)


def _iterate(
    flow: Tensor, resistance: Tensor, toll: Tensor, alpha: Tensor, mask: Tensor | None, num_steps: int, step: Step
) -> Tensor:
    """Run the loop; `toll` is penalty f."""
    length = _safe_step(resistance, alpha, mask)
    last: tuple[Tensor, Tensor] | None = None
    for _ in range(num_steps):
        gradient = resistance * flow + alpha * (flow.sum(-1, keepdim=True) - 1)
        if mask is not None:
            # Forbidden keys start at 0 and stay there.
            gradient = torch.where(mask, gradient, 0.0)
        if step == "barzilai-borwein":
            if last is not None:
                length = _barzilai_borwein(flow.detach() - last[0], gradient.detach(), last[1], length)
            # Detached: the step length counts as a constant, whatever it was computed from.
            last = flow.detach(), gradient.detach()
        target = flow - length * gradient
        threshold = length * toll
        # The threshold of (12) with the bar around Y only. Before convergence, entries may be negative.
        flow = target.sign() * (target.abs() - threshold).relu()
    return flow


@torch.no_grad()
def _safe_step(resistance: Tensor, alpha: Tensor, mask: Tensor | None) -> Tensor:
    """Return 1 / (max r + alpha n), n the largest number of allowed keys of a row: `[..., 1, 1]`."""
    largest = resistance if mask is None else torch.where(mask, resistance, 0.0)
    num_keys = _num_keys(resistance, mask).amax(-2, keepdim=True)
    top = largest.amax((-2, -1), keepdim=True) + alpha * num_keys
    return 1 / top.clamp_min(torch.finfo(top.dtype).tiny)


def _num_keys(rows: Tensor, mask: Tensor | None) -> Tensor:
    """Count the allowed keys of each row `[..., N, 1]`."""
    if mask is None:
        return rows.new_full((*rows.shape[:-1], 1), rows.shape[-1])
    return mask.expand(rows.shape).sum(-1, keepdim=True)


@torch.no_grad()
def _barzilai_borwein(moved: Tensor, gradient: Tensor, last: Tensor, length: Tensor) -> Tensor:
    """Return <A, B> / ||B||_F^2 of each matrix `[..., 1, 1]`, with B = gradient - last.

    If the gradient has changed by no more than rounding, keep the previous step: the quotient would be noise and move a
    converged flow away from the optimum.
    """
    turned = gradient - last
    along = (moved * turned).sum((-2, -1), keepdim=True)
    change, size = (torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True) for x in (turned, gradient))
    genuine = change > 32 * torch.finfo(change.dtype).eps * size
    return torch.where(genuine, along / torch.where(genuine, change.square(), 1.0), length)


@torch.no_grad()
def first_flow(
    start: Start | Tensor, resistance: Tensor, mask: Tensor | None, generator: torch.Generator | None = None
) -> Tensor:
    """Return the first flow `[..., N, K]`, 0 at keys that are not allowed."""
    if isinstance(start, Tensor):
        if start.shape != resistance.shape:
            raise BadInput(f"start must have the shape {tuple(resistance.shape)}, but has {tuple(start.shape)}.")
        flow = start.to(resistance)
    elif start in ("uniform", "scaled"):
        flow = torch.empty_like(resistance).uniform_(generator=generator)
        if start == "scaled":
            flow *= 2 / _num_keys(resistance, mask).clamp_min(1)
    elif start == "dense":
        flow = 1 / resistance if mask is None else torch.where(mask, 1 / resistance, 0.0)
        flow = flow / flow.sum(-1, keepdim=True).clamp_min(torch.finfo(flow.dtype).tiny)
    elif start == "zeros":
        flow = torch.zeros_like(resistance)
    else:
        raise BadInput(f"start must be 'uniform', 'scaled', 'dense', 'zeros' or a tensor, but is {start!r}.")
    return flow if mask is None else torch.where(mask, flow, 0.0)


StartName = Literal["uniform", "scaled", "dense", "zeros"]


@dataclass(frozen=True)
class ProximalOptions:
    """Options that decide the result of T steps of the iteration, which is far from converged on all but tiny graphs.

    The paper draws the start at random and gives neither its range nor T. Here the random start is a function of
    `seed`, the head and the two nodes, and is the same in every layer and pass: a graph gets the same answer whatever
    else is in its batch.

    Args:
        num_steps: T.
        start: "uniform" on [0, 1), "scaled" uniform on [0, 2 / n), "dense" the flow without friction, or "zeros".
        step: "barzilai-borwein" or "constant"; see `sparse_flow_proximal`.
        seed: seed of the random starts.

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
        """Solve for `sparse_flow_attention`; arguments as in `sparse_flow_proximal`, shapes `[B, H, N, N]`."""
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
        """Return the flow before the first step, `[B, H, N, N]`; arguments as in `solve`, three unused."""
        return first_flow(self._start(resistance, mask), resistance, mask)

    def as_dict(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return asdict(self)

    def _start(self, resistance: Tensor, mask: Tensor | None) -> StartName | Tensor:
        if self.start not in ("uniform", "scaled"):
            return self.start
        heads, num_nodes = resistance.shape[-3], resistance.shape[-1]
        # N depends on padding; nested numbers give a pair of nodes the same start for every N.
        start = _nested_uniform(heads, num_nodes, self.seed).to(resistance)
        if self.start == "scaled":
            num_keys = num_nodes if mask is None else mask.sum(-1, keepdim=True).clamp_min(1)
            start = start * (2 / torch.as_tensor(num_keys, device=start.device))
        return start.expand(resistance.shape)


def _nested_uniform(heads: int, num_nodes: int, seed: int) -> Tensor:
    """Draw uniform numbers on [0, 1) `[H, n, n]`; those of a smaller n are the upper left corners.

    Entries are numbered so that those of the n x n corner are the first n^2: entry (i, j) has number
    m^2 + i if j = m, else m^2 + m + 1 + j, with m = max(i, j).
    """
    generator = torch.Generator().manual_seed(seed)
    # float32 whatever the default dtype, on which the numbers would depend.
    drawn = torch.rand(num_nodes**2, heads, generator=generator, dtype=torch.float32)
    row, column = torch.meshgrid(torch.arange(num_nodes), torch.arange(num_nodes), indexing="ij")
    shell = torch.maximum(row, column)
    number = shell**2 + torch.where(column == shell, row, shell + 1 + column)
    return drawn[number].permute(2, 0, 1)
