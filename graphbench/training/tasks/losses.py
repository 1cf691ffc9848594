"""Losses that torch does not have under one name."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from graphbench.errors import BadInput


def weighted_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy weighted by how rare a class is in the batch (Dwivedi et al. 2020, section "SBM").

    With V labels of which n_c are of class c, `w_c = (V - n_c) / V`, and 0 for absent classes. Several classes: the
    weighted negative log likelihood divided by the sum of the chosen weights; one logit: binary cross-entropy with
    weight `w_y`, averaged over V.

    Args:
        logits: `[V, C]`, or `[V]` / `[V, 1]` for two classes.
        target: `[V]` integer classes.

    Examples:
        >>> weighted_cross_entropy(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1]))  # log 2 whatever the weights are
        tensor(0.6931)
    """
    binary = logits.dim() == 1 or logits.shape[1] == 1
    classes = 2 if binary else logits.shape[1]
    return combine_classes(*class_terms(logits, target, classes), divide_by_weights=not binary)


def class_terms(
    logits: Tensor,
    target: Tensor,
    classes: int,
    focus: float = 0.0,
    weight: Tensor | None = None,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Cross-entropies summed over the labels of each class `[C]`, and how many there are `[C]`.

    Args:
        logits: `[V, C]`, or `[V]` / `[V, 1]` for two classes.
        target: `[V]` integer classes; a negative one means that there is no label, and counts for nothing.
        classes: C.
        focus: gamma of the focal loss: the cross-entropy of a label that has the probability p counts `(1 - p)^gamma`.
        weight: of each row in the sums `[V]`; the numbers of labels stay what they are.
        smoothing: s of the truth that is trained on, `1 - s + s / C` for the label and `s / C` for every other class.

    Examples:
        >>> class_terms(torch.zeros(3, 2), torch.tensor([0, 0, 1]), 2)
        (tensor([1.3863, 0.6931]), tensor([2, 1]))
        >>> class_terms(torch.zeros(3, 2), torch.tensor([0, -1, 1]), 2)
        (tensor([0.6931, 0.6931]), tensor([1, 1]))
    """
    mask, target = target >= 0, target.clamp(min=0)
    if logits.dim() == 1 or logits.shape[1] == 1:
        truth = target.to(logits.dtype) * (1 - smoothing) + smoothing / 2
        values = F.binary_cross_entropy_with_logits(logits.reshape(-1), truth, reduction="none")
    else:
        values = F.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
    if focus:
        values = focal(values, focus)
    values = weighted(values, weight)
    member = (
        F.one_hot(target, classes) * mask[:, None]
    )  # no scatter: its sums come in another order every time on a GPU
    return (values[:, None] * member).sum(0), member.sum(0)


def focal(cross_entropies: Tensor, gamma: float = 2.0) -> Tensor:
    """`(1 - p)^gamma` times the cross-entropy `-log p`, entry by entry (Lin et al., ICCV 2017, equation 4).

    Examples:
        >>> focal(torch.tensor([0.6931]))  # p = 1/2
        tensor([0.1733])
    """
    return (-torch.expm1(-cross_entropies)) ** gamma * cross_entropies


def weighted(values: Tensor, weight: Tensor | None) -> Tensor:
    """Values `[rows, ...]` times the weight of their row `[rows]` or `[rows, 1]`, where there are weights.

    Examples:
        >>> weighted(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2.0, 0.0]))
        tensor([[2., 4.],
                [0., 0.]])
    """
    if weight is None:
        return values
    return values * weight.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))


def cell_weights(row: Tensor | None, target: Tensor | None, like: Tensor) -> Tensor | None:
    """Multiply the weights of rows `[rows]` or `[rows, 1]` and of targets `[T]`; None where all cells count alike.

    Args:
        row: of each row, or None.
        target: of each target, or None.
        like: `[rows, T]`, of the dtype to return.

    Examples:
        >>> cell_weights(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 1.5]), torch.zeros(2, 2))
        tensor([[0.5000, 1.5000],
                [1.0000, 3.0000]])
    """
    if row is None and target is None:
        return None
    weights = torch.ones_like(like) if target is None else target.to(like.dtype).expand_as(like)
    return weighted(weights, row)


def meet_bounds(target: Tensor, prediction: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Take as the target of a bounded cell the bound that the prediction misses, else the prediction itself.

    A loss of differences is then one-sided: it counts how far a prediction is from the bound, and is 0 with a gradient
    of 0 on the right side of it.

    Args:
        target: `[...]`.
        prediction: of the same shape; its gradients through both arguments of a difference cancel.
        lower: bounds that the truth is above, NaN where there is none.
        upper: bounds that the truth is below, NaN where there is none.

    Examples:
        >>> none = torch.tensor(float("nan"))
        >>> meet_bounds(torch.tensor(0.0), torch.tensor([8.0, 12.0]), lower=torch.tensor(10.0), upper=none)
        tensor([10., 12.])
    """
    target = torch.where(lower.isnan(), target, torch.maximum(prediction, lower))
    return torch.where(upper.isnan(), target, torch.minimum(prediction, upper))


def balanced_class_weights(target: Tensor, classes: int) -> Tensor:
    """`n / (C n_c)` of each class c `[C]` float64: n rows have a label, n_c of them this one (King and Zeng 2001).

    Args:
        target: classes `[rows]`; negative where there is no label.
        classes: C.

    Raises:
        BadInput: a class has no row.

    Examples:
        >>> balanced_class_weights(torch.tensor([0, 0, 0, 1]), 2)
        tensor([0.6667, 2.0000], dtype=torch.float64)
    """
    counts = torch.bincount(target[target >= 0], minlength=classes)
    if not bool((counts > 0).all()):
        absent = ", ".join(str(number) for number in (counts == 0).nonzero()[:, 0].tolist())
        raise BadInput(f"class_weights: no training row is of class {absent}, so classes cannot be balanced.")
    return counts.sum() / (classes * counts.double())


def combine_classes(sums: Tensor, counts: Tensor, divide_by_weights: bool) -> Tensor:
    """Combine `class_terms`, of one batch or added up over several, to the weighted cross-entropy.

    Args:
        sums: `[C]`.
        counts: `[C]`.
        divide_by_weights: divide by the sum of the labels' weights, not by their number.

    Examples:
        >>> combine_classes(torch.tensor([1.0, 3.0]), torch.tensor([1, 3]), divide_by_weights=False)
        tensor(0.3750)
    """
    count = counts.to(sums.dtype)
    total = count.sum().clamp(min=1)
    weight = (total - count) / total * (count > 0)
    # With two classes or more the weights add up to 1 at least; with one they are 0, and so is the loss
    denominator = (weight * count).sum().clamp(min=0.5) if divide_by_weights else total
    return (weight * sums).sum() / denominator


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of the entries where `valid`; 0 (with gradients) when there are none. Both `[...]` of one shape.

    Examples:
        >>> masked_mean(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([True, False, True]))
        tensor(5.)
    """
    sums, counts = masked_terms(values, valid)
    return (sums / counts.clamp(min=1)).sum()


def masked_terms(values: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Sum `[1]` and number `[1]` of the entries where `valid`. Both `[...]` of one shape.

    Examples:
        >>> masked_terms(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([True, False, True]))
        (tensor([10.]), tensor([2]))
    """
    return torch.where(valid, values, 0.0).sum().reshape(1), valid.sum().reshape(1)


def log10_mse(prediction: Tensor, target: Tensor) -> Tensor:
    """`log10(mean (prediction - target)^2)` over all entries, the loss of ECHO (Miglior et al., ICLR 2026).

    For `--model.loss graphbench.training.tasks.losses.log10_mse`. Its gradient is that of the mean squared error over
    ln(10) times that error, so that batches with small errors count as much as others; -inf where all is right.

    Examples:
        >>> log10_mse(torch.tensor([0.0, 10.0]), torch.tensor([10.0, 0.0]))
        tensor(2.)
    """
    return F.mse_loss(prediction, target).log10()


def at_least_single(values: Tensor) -> Tensor:
    """In float32, or in float64 where they are: lower precision would show in a small loss."""
    return values if values.dtype == torch.float64 else values.float()


def chosen_terms(
    loss: Callable[[Tensor, Tensor], Tensor], prediction: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute the terms `[1]` of a loss that a user chose, in the form of torch's: `loss(prediction, target)`.

    Args:
        loss: gives one value per row, or their mean.
        prediction: rows whose targets are known, `[rows]` or `[rows, C]`.
        target: `[rows]`.
        weight: of each row; None for all alike.

    Raises:
        BadInput: it gives something else, or a mean where rows have weights.

    Examples:
        >>> chosen_terms(torch.nn.L1Loss(), torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]), None)
        (tensor([4.]), tensor([2]))
    """
    count = torch.tensor([len(target)], device=target.device)
    if not len(target):
        return prediction.sum().reshape(1) * 0, count
    values = loss(prediction, target)
    if values.dim() == 0:
        if weight is not None:
            raise BadInput("--model.loss gives a mean, but the rows have weights: give one value per row (reduction).")
        return values.reshape(1) * len(target), count
    if values.shape != target.shape:
        raise BadInput(
            f"--model.loss gives values of shape {list(values.shape)} for {len(target)} rows; expected a mean or one "
            "value per row."
        )
    return (values if weight is None else values * weight).sum().reshape(1), count


def column_norms(matrix: Tensor, graph_of: Tensor, num_graphs: int, by_column: bool) -> Tensor:
    """Euclidean length of each graph's columns `[num_graphs, c]`, or of its whole block `[num_graphs, 1]`; never 0.

    Args:
        matrix: `[num_nodes, c]`, the nodes of all graphs one after the other.
        graph_of: graph of each node `[num_nodes]`.
        num_graphs: how many there are.
        by_column: lengths of columns, not of blocks.

    Examples:
        >>> column_norms(torch.tensor([[3.0], [4.0], [2.0]]), torch.tensor([0, 0, 1]), 2, by_column=True)
        tensor([[5.],
                [2.]])
    """
    squares = matrix.square() if by_column else matrix.square().sum(1, keepdim=True)
    total = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares)
    return total.clamp(min=torch.finfo(total.dtype).tiny).sqrt()


def normalised_map_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """`‖ Φ / ‖Φ‖_F - T / ‖T‖_F ‖²_F` of each graph `[num_graphs]` (arXiv 2410.16699, section 3.5).

    Args:
        output: Φ `[num_nodes, c]`, the nodes of all graphs one after the other.
        target: T `[num_nodes, c]`.
        graph_of: graph of each node `[num_nodes]`.
        num_graphs: how many there are.

    Examples:
        >>> map_ = torch.tensor([[3.0], [4.0]])
        >>> normalised_map_errors(2 * map_, map_, torch.tensor([0, 0]), 1)  # right up to scale
        tensor([0.])
    """
    norms = [column_norms(matrix, graph_of, num_graphs, by_column=False) for matrix in (output, target)]
    squares = (output / norms[0][graph_of] - target / norms[1][graph_of]).square().sum(1)
    return squares.new_zeros(num_graphs).index_add(0, graph_of, squares)


def column_map_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """`‖ φ_i / ‖φ_i‖ - t_i / ‖t_i‖ ‖²` of each graph and column `[num_graphs, c]` (section 3.5 as printed).

    `output`, `target`, `graph_of`, `num_graphs` as above.

    Examples:
        >>> map_ = torch.tensor([[3.0, 1.0], [4.0, 0.0]])
        >>> column_map_errors(map_ * torch.tensor([2.0, -1.0]), map_, torch.tensor([0, 0]), 1)  # each up to scale
        tensor([[0., 4.]])
    """
    norms = [column_norms(matrix, graph_of, num_graphs, by_column=True) for matrix in (output, target)]
    squares = (output / norms[0][graph_of] - target / norms[1][graph_of]).square()
    return squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares)


def sign_invariant_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """`min(‖φ_i - v_i‖², ‖φ_i + v_i‖²)` of each graph and column `[num_graphs, c]` (arXiv 2410.16699, section 4.1).

    Columns are brought to unit length first; `output`, `target`, `graph_of`, `num_graphs` as above.

    Examples:
        >>> vector = torch.tensor([[3.0], [4.0]])
        >>> sign_invariant_errors(-vector, vector, torch.tensor([0, 0]), 1)
        tensor([[0.]])
    """
    norms = [column_norms(matrix, graph_of, num_graphs, by_column=True) for matrix in (output, target)]
    unit, true = output / norms[0][graph_of], target / norms[1][graph_of]
    squares = torch.cat([(unit - true).square(), (unit + true).square()], dim=1)
    same, opposite = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares).chunk(2, dim=1)
    return torch.minimum(same, opposite)
