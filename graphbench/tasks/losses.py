"""Losses that torch does not have under one name."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def weighted_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Cross-entropy weighted by how rare a class is in the batch (Dwivedi et al. 2020, section "SBM").

    With V labels of which n_c are of class c, `w_c = (V - n_c) / V`, and 0 for absent classes. Several classes: the
    weighted negative log likelihood divided by the sum of the chosen weights; one logit: binary cross-entropy with
    weight `w_y`, averaged over V.

    Args:
        logits: `[V, C]`, or `[V]` / `[V, 1]` for two classes.
        target: `[V]` integer classes.
    """
    binary = logits.dim() == 1 or logits.shape[1] == 1
    classes = 2 if binary else logits.shape[1]
    count = torch.bincount(target, minlength=classes)
    weight = (len(target) - count).to(logits.dtype) / len(target) * (count > 0)
    if not binary:
        return F.cross_entropy(logits, target, weight=weight)
    return F.binary_cross_entropy_with_logits(logits.reshape(-1), target.to(logits.dtype), weight=weight[target])


def masked_mean(values: Tensor, valid: Tensor) -> Tensor:
    """Mean of the entries where `valid`; 0 (with gradients) when there are none. Both `[...]` of one shape."""
    return torch.where(valid, values, 0.0).sum() / valid.sum().clamp(min=1)
