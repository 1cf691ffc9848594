"""Losses that torch does not provide as one function."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from graphbench.errors import BadInput, check_choice, check_range

#: A value of `--model.class_weights`.
ClassWeights = Literal["balanced"] | Sequence[float]


def class_terms(
    logits: Tensor,
    target: Tensor,
    classes: int,
    focus: float = 0.0,
    weight: Tensor | None = None,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Sum cross-entropies over the labels of each class `[C]`, and count the labels `[C]`.

    Logits are `[V, C]`, or `[V]` / `[V, 1]` for two classes, targets integers `[V]`, negative if there is no label.
    `focus` is gamma of `focal`, `weight` `[V]` the weight of each row in the sums, not the counts, and `smoothing` is s
    in the target distribution, `1 - s + s / C` for the label and `s / C` for every other class.

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
    # No scatter: on a GPU the order of its sums differs every time.
    member = F.one_hot(target, classes) * mask[:, None]
    return (values[:, None] * member).sum(0), member.sum(0)


def focal(cross_entropies: Tensor, gamma: float = 2.0) -> Tensor:
    """Multiply the cross-entropy `-log p` by `(1 - p)^gamma`, element-wise (Lin et al., ICCV 2017, equation 4).

    Examples:
        >>> focal(torch.tensor([0.6931]))  # p = 1/2
        tensor([0.1733])
    """
    # `1 - p` by expm1, since p is near 1 for easy rows.
    return (-torch.expm1(-cross_entropies)) ** gamma * cross_entropies


def weighted(values: Tensor, weight: Tensor | None) -> Tensor:
    """Multiply values `[rows, ...]` by the weight of their row `[rows]` or `[rows, 1]`, if there are weights.

    Examples:
        >>> weighted(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([2.0, 0.0]))
        tensor([[2., 4.],
                [0., 0.]])
    """
    if weight is None:
        return values
    return values * weight.to(values.dtype).reshape(-1, *[1] * (values.dim() - 1))


def cell_weights(row: Tensor | None, target: Tensor | None, like: Tensor) -> Tensor | None:
    """Multiply weights of rows `[rows]` or `[rows, 1]` and of targets `[T]`, in the shape of `like`; None without both.

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
    """Replace the target of a bounded cell by the bound if the prediction violates it, else by the prediction.

    A loss of differences is then one-sided: it measures how far a prediction is beyond the bound. On the valid side
    the loss is 0, and so is its gradient, since those through both arguments cancel. The truth is above `lower` and
    below `upper`, NaN where there is no bound.

    Examples:
        >>> none = torch.tensor(float("nan"))
        >>> meet_bounds(torch.tensor(0.0), torch.tensor([8.0, 12.0]), lower=torch.tensor(10.0), upper=none)
        tensor([10., 12.])
    """
    target = torch.where(lower.isnan(), target, torch.maximum(prediction, lower))
    return torch.where(upper.isnan(), target, torch.minimum(prediction, upper))


def check_class_weights(wanted: ClassWeights, count: int, of: Literal["class", "label"]) -> list[float] | None:
    """Return the user's numbers, one for each of `count` classes or labels, or None for `balanced`.

    Examples:
        >>> check_class_weights([1, 5], 2, of="class")
        [1.0, 5.0]
    """
    if isinstance(wanted, str):
        check_choice("class_weights", wanted, ("balanced",))
        return None
    if len(wanted) != count:
        raise BadInput(
            f"class_weights: {len(wanted)} numbers for the {count} {'classes' if of == 'class' else 'labels'}."
        )
    for number, value in enumerate(wanted):
        check_range(f"class_weights of {of} {number}", value, above=0, below=math.inf)
    return [float(value) for value in wanted]


def balanced_class_weights(target: Tensor, classes: int) -> Tensor:
    """Return `n / (C n_c)` for each class c `[C]`, float64: n rows have a label, n_c of them c (King and Zeng 2001).

    Targets are classes `[rows]`, negative without a label.

    Examples:
        >>> balanced_class_weights(torch.tensor([0, 0, 0, 1]), 2)
        tensor([0.6667, 2.0000], dtype=torch.float64)
    """
    counts = torch.bincount(target[target >= 0], minlength=classes)
    if not bool((counts > 0).all()):
        absent = ", ".join(str(number) for number in (counts == 0).nonzero()[:, 0].tolist())
        raise BadInput(f"class_weights: no training row is of class {absent}, so classes cannot be balanced.")
    return counts.sum() / (classes * counts.double())


def label_weights(targets: Tensor, yes: Sequence[float] | None = None, row: Tensor | None = None) -> Tensor:
    """Return weights of 0 and of 1 for each label `[2, T]`, float64, with mean 1 over the label's known rows.

    Targets are labels `[rows, T]`, NaN where unknown, and `row` weights of the rows `[rows]`. A 1 of label t has
    `yes[t]` times the weight of a 0, which is torch's `pos_weight`; by default 0s and 1s have equal total weight. A
    label with the same value in all its rows keeps the weight 1, since there is nothing to balance.

    Examples:
        >>> label_weights(torch.tensor([[0.0], [0.0], [0.0], [1.0]]))
        tensor([[0.6667],
                [2.0000]], dtype=torch.float64)
    """
    zeros, ones = (targets == 0).double(), (targets == 1).double()
    if yes is None:
        counts = torch.stack([zeros.sum(0), ones.sum(0)])
        weights = counts.flip(0)  # inversely proportional: the number of the other value
    else:
        weights = torch.stack([torch.ones(len(yes), dtype=torch.float64), torch.tensor(yes, dtype=torch.float64)])
    share = torch.ones(len(targets), 1, dtype=torch.float64) if row is None else row.reshape(-1, 1).double()
    sums = (weights[0] * zeros + weights[1] * ones).mul(share).sum(0)
    scale = sums / (zeros + ones).sum(0)
    return torch.where(scale > 0, weights / scale, 1.0)


def combine_classes(sums: Tensor, counts: Tensor, divide_by_weights: bool) -> Tensor:
    """Combine `class_terms`, of one batch or summed over several, into a cross-entropy weighted by rarity.

    With V labels, n_c of them of class c, `w_c = (V - n_c) / V`, and 0 for absent classes (Dwivedi et al. 2020,
    section "SBM"). The weighted sum is divided by the sum of the rows' weights, or by V if there is one logit.

    Examples:
        >>> combine_classes(torch.tensor([1.0, 3.0]), torch.tensor([1, 3]), divide_by_weights=False)
        tensor(0.3750)
    """
    count = counts.to(sums.dtype)
    total = count.sum().clamp(min=1)
    weight = (total - count) / total * (count > 0)
    # With two classes or more the weights sum to at least 1; with one they are 0, and so is the loss
    denominator = (weight * count).sum().clamp(min=0.5) if divide_by_weights else total
    return (weight * sums).sum() / denominator


def masked_terms(values: Tensor, valid: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum `[1]` and number `[1]` of the entries where `valid`; both arguments have the same shape `[...]`.

    Examples:
        >>> masked_terms(torch.tensor([1.0, 5.0, 9.0]), torch.tensor([True, False, True]))
        (tensor([10.]), tensor([2]))
    """
    return torch.where(valid, values, 0.0).sum().reshape(1), valid.sum().reshape(1)


def log10_mse(prediction: Tensor, target: Tensor) -> Tensor:
    """Compute `log10(mean (prediction - target)^2)` over all entries, the loss of ECHO (Miglior et al., ICLR 2026).

    Use it as `--model.loss graphbench.training.tasks.losses.log10_mse`. Its gradient is that of the mean squared error
    divided by ln(10) times that error, so batches with small errors count as much as others; -inf if the error is 0.

    Examples:
        >>> log10_mse(torch.tensor([0.0, 10.0]), torch.tensor([10.0, 0.0]))
        tensor(2.)
    """
    return F.mse_loss(prediction, target).log10()


def at_least_single(values: Tensor) -> Tensor:
    """Convert values to float32 unless they are float64: a lower precision would be visible in a small loss."""
    return values if values.dtype == torch.float64 else values.float()


def chosen_terms(
    loss: Callable[[Tensor, Tensor], Tensor], prediction: Tensor, target: Tensor, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Compute the terms `[1]` of a user's loss, which is called like torch's: `loss(prediction, target)`.

    It returns one value per row, or their mean. Rows are those with a target; predictions are `[rows]` or `[rows, C]`.

    Examples:
        >>> chosen_terms(torch.nn.L1Loss(), torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]), None)
        (tensor([4.]), tensor([2]))
    """
    count = torch.tensor([len(target)], device=target.device)
    if not len(target):  # the user's loss may divide by the number of rows
        return prediction.sum().reshape(1) * 0, count
    values = loss(prediction, target)
    if not isinstance(values, Tensor):
        raise BadInput(f"--model.loss gives {type(values).__name__}; expected a tensor, a mean or one value per row.")
    if prediction.requires_grad and not values.requires_grad:
        raise BadInput("--model.loss gives values without a gradient; expected a function of torch's operations.")
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


def normalise_map(matrix: Tensor, graph_of: Tensor, num_graphs: int, by_column: bool) -> Tensor:
    """Scale each graph's columns, or its whole block, to Euclidean length 1 `[num_nodes, c]`; zeros stay zero.

    Here and in the errors below, a map is `[num_nodes, c]` with the nodes of all graphs one after the other;
    `graph_of [num_nodes]` is the graph of each node.

    Examples:
        >>> normalise_map(torch.tensor([[3.0], [4.0], [2.0]]), torch.tensor([0, 0, 1]), 2, by_column=True).T
        tensor([[0.6000, 0.8000, 1.0000]])
    """
    squares = matrix.square() if by_column else matrix.square().sum(1, keepdim=True)
    total = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares)
    return matrix / total.clamp(min=torch.finfo(total.dtype).tiny).sqrt()[graph_of]


def normalised_map_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Compute `‖ Φ / ‖Φ‖_F - T / ‖T‖_F ‖²_F` of each graph `[num_graphs]` (arXiv 2410.16699, section 3.5).

    Examples:
        >>> map_ = torch.tensor([[3.0], [4.0]])
        >>> normalised_map_errors(2 * map_, map_, torch.tensor([0, 0]), 1)  # right up to scale
        tensor([0.])
    """
    unit, true = (normalise_map(matrix, graph_of, num_graphs, by_column=False) for matrix in (output, target))
    squares = (unit - true).square().sum(1)
    return squares.new_zeros(num_graphs).index_add(0, graph_of, squares)


def column_map_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Compute `‖ φ_i / ‖φ_i‖ - t_i / ‖t_i‖ ‖²` of each graph and column `[num_graphs, c]` (section 3.5 as printed).

    Examples:
        >>> map_ = torch.tensor([[3.0, 1.0], [4.0, 0.0]])
        >>> column_map_errors(map_ * torch.tensor([2.0, -1.0]), map_, torch.tensor([0, 0]), 1)  # each up to scale
        tensor([[0., 4.]])
    """
    unit, true = (normalise_map(matrix, graph_of, num_graphs, by_column=True) for matrix in (output, target))
    squares = (unit - true).square()
    return squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares)


def sign_invariant_errors(output: Tensor, target: Tensor, graph_of: Tensor, num_graphs: int) -> Tensor:
    """Compute `min(‖φ_i - v_i‖², ‖φ_i + v_i‖²)` by graph and column `[num_graphs, c]` (arXiv 2410.16699, section 4.1).

    Columns are first scaled to unit length.

    Examples:
        >>> vector = torch.tensor([[3.0], [4.0]])
        >>> sign_invariant_errors(-vector, vector, torch.tensor([0, 0]), 1)
        tensor([[0.]])
    """
    unit, true = (normalise_map(matrix, graph_of, num_graphs, by_column=True) for matrix in (output, target))
    squares = torch.cat([(unit - true).square(), (unit + true).square()], dim=1)
    same, opposite = squares.new_zeros(num_graphs, squares.shape[1]).index_add(0, graph_of, squares).chunk(2, dim=1)
    return torch.minimum(same, opposite)
