"""Sum the rows of many graphs in one tensor by graph, and pad them to matrices if needed.

Legend: T rows of all graphs, G graphs, B graphs of one bucket, N rows of the largest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from graphbench.contracts.devices import as_double
from graphbench.errors import BadInput

#: Elements of the largest padded tensor; 32 MB in double precision.
_CELLS = 1 << 22
#: A spread below this multiple of the rows' machine epsilon is zero: equal tokens differ by this much after a matrix
#: product, whose kernels sum in another order at the end of a block.
_ROUNDINGS = 8


def result_dtype(tensor: Tensor) -> torch.dtype:
    """Return the type of measurements on a tensor: float64 for float64, else float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def single_graph(rows: Tensor) -> Tensor:
    """Return the graph of each row `[T]`, for rows of one graph."""
    return torch.zeros(rows.shape[:1], dtype=torch.int64, device=rows.device)


def checked_rows(
    rows: Tensor, batch: Tensor, num_graphs: int | None, name: str = "tokens"
) -> tuple[Tensor, Tensor, int]:
    """Return rows in double precision, the graph of each on their device, and the number of graphs."""
    if rows.dim() < 2 or not rows.is_floating_point():
        raise BadInput(f"{name} must be floating point [rows, dim], got {rows.dtype} {list(rows.shape)}.")
    if batch.shape != rows.shape[:1] or batch.is_floating_point():
        raise BadInput(
            f"batch must contain the graph of each of the {len(rows)} rows of {name}, got {batch.dtype} "
            f"{list(batch.shape)}."
        )
    used = int(batch.max()) + 1 if len(batch) else 0
    if num_graphs is not None and used > num_graphs:
        raise BadInput(f"batch names graph {used - 1}, but num_graphs is {num_graphs}.")
    doubles = as_double(rows)
    return doubles, batch.to(doubles.device, torch.int64), used if num_graphs is None else num_graphs


def sum_per_graph(rows: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Sum the rows of each graph: `[T, ...]` -> `[G, ...]`."""
    return rows.new_zeros(num_graphs, *rows.shape[1:]).index_add_(0, batch, rows)


def centred(rows: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Return `P X` of each graph: every row minus the mean row of its graph, `P = I - 1 1^T / n`."""
    return rows - mean_per_graph(rows, batch, num_graphs)[batch]


def mean_per_graph(rows: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Average the rows of each graph: `[T, ...]` -> `[G, ...]`, 0 for a graph without rows."""
    sizes = torch.bincount(batch, minlength=num_graphs).clamp(min=1)
    return sum_per_graph(rows, batch, num_graphs) / sizes.reshape(-1, *[1] * (rows.dim() - 1))


def norm_per_graph(rows: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
    """Compute the Frobenius norm of the rows of each graph: `[T, ..., dim]` -> `[G, ...]`."""
    return sum_per_graph(rows.square().sum(-1), batch, num_graphs).sqrt()


def spread_per_graph(rows: Tensor, batch: Tensor, num_graphs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return centred rows `P X` of each graph `[T, ..., dim]`, and their norm `[G, ...]`, exactly 0 for equal rows.

    Equal means equal up to rounding, `||P X|| <= 8 eps ||X||`: what remains of equal rows is noise, and a ratio of two
    such numbers is meaningless. `eps` is that of the type in which the rows, here in double precision, were computed;
    float32's for coarser types.

    Examples:
        >>> rows = torch.tensor([[0.1], [0.1], [0.1], [1.0], [3.0]]).double()
        >>> spread_per_graph(rows, torch.tensor([0, 0, 0, 1, 1]), 2, torch.float32)[1]
        tensor([0.0000, 1.4142], dtype=torch.float64)
    """
    centre = centred(rows, batch, num_graphs)
    spread, size = norm_per_graph(centre, batch, num_graphs), norm_per_graph(rows, batch, num_graphs)
    equal = spread <= _ROUNDINGS * max(torch.finfo(dtype).eps, torch.finfo(rows.dtype).eps) * size
    return torch.where(equal[batch].unsqueeze(-1), 0.0, centre), torch.where(equal, 0.0, spread)


def ratio(part: Tensor, whole: Tensor) -> Tensor:
    """Return `part / whole`, and NaN (never infinity) where `whole` is zero.

    Examples:
        >>> ratio(torch.tensor([1.0, 0.0, 3.0]), torch.tensor([2.0, 0.0, 0.0]))
        tensor([0.5000,    nan,    nan])
    """
    return torch.where(whole > 0, part / whole, torch.nan)


class Ragged:
    """Ranges of rows, one for each graph."""

    def __init__(self, batch: Tensor, num_graphs: int) -> None:
        self.order = torch.argsort(batch, stable=True)
        self.sizes = torch.bincount(batch, minlength=num_graphs)
        self.starts = self.sizes.cumsum(0) - self.sizes

    def buckets(self, cells: Callable[[int], int], budget: int = _CELLS) -> Iterator[tuple[Tensor, int]]:
        """Yield graphs of similar size, within a factor of sqrt(2): their numbers `[B]` and the largest size.

        `cells` returns the number of elements of a padded graph by its size, and `budget` bounds the total of B graphs;
        a larger graph gets its own bucket.
        """
        # Steps of sqrt(2) pad matrices to at most twice the cells, with few buckets.
        sizes = self.sizes.cpu()
        step = (2.0 * sizes.double().log2()).ceil()
        for value in step[sizes > 0].unique().tolist():
            graphs = (step == value).nonzero().flatten()
            width = int(sizes[graphs].max())
            for part in graphs.split(max(1, budget // max(1, cells(width)))):
                yield part.to(self.sizes.device), width

    def padded(self, graphs: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return row numbers `[B, width]` of the graphs, and a mask of real rows; padding repeats the last row."""
        position = torch.arange(width, device=graphs.device)
        size = self.sizes[graphs].unsqueeze(1)
        index = self.order[self.starts[graphs].unsqueeze(1) + torch.minimum(position, size - 1)]
        return index, position < size

    def position(self) -> Tensor:
        """Return the number of each row within its graph, in the order of the rows `[T]`."""
        within = torch.empty_like(self.order)
        numbers = torch.arange(len(self.order), device=self.order.device)
        within[self.order] = numbers - torch.repeat_interleave(self.starts, self.sizes)
        return within
