"""Register the kernels of this package. `graphbench.contracts.kernels` calls `register` on the first operation.

Each kernel decides whether it supports its inputs, and otherwise passes them to the plain form. It is registered for a
device with and without autograd, so it is called before autograd and provides its own gradients. Modules are imported
when their kernel is first called; none of them imports Numba or Triton before it compiles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

#: Operations, the kernel of each, and its device.
KERNELS: tuple[tuple[str, str, str], ...] = (
    ("graphbench::edge_attention", "nn.card_messages:edge_attention_on_cards", "CUDA"),
    ("graphbench::gated_messages", "nn.messages:gated_messages", "CPU"),
    ("graphbench::gated_messages", "nn.card_messages:gated_messages_on_cards", "CUDA"),
    ("graphbench::laplacian_eigenvectors", "encodings.loops:laplacian_eigenvectors", "CPU"),
    ("graphbench::packed_attention", "nn.attention:packed_attention", "CPU"),
    ("graphbench::packed_attention", "nn.card_attention:packed_attention_on_cards", "CUDA"),
    ("graphbench::random_walks", "encodings.loops:random_walks", "CPU"),
    ("graphbench::shortest_paths", "encodings.loops:find_shortest_paths", "CPU"),
    ("graphbench::sum_neighbours", "nn.messages:sum_neighbours", "CPU"),
    ("graphbench::sum_rectified", "nn.messages:sum_rectified", "CPU"),
    ("graphbench::sum_rectified", "nn.card_messages:sum_rectified_on_cards", "CUDA"),
    ("graphbench_sfi_former::attend_rows", "sfi_former.operations:attend_rows", "CPU"),
    ("graphbench_sfi_former::water_level", "sfi_former.operations:water_level", "CUDA"),
    ("graphbench_sft::maxima", "models.maxout:maxima", "CPU"),
    ("graphbench_sft::maxima", "models.maxout:maxima_on_cards", "CUDA"),
    ("graphbench_sft::maxima_gradients", "models.maxout:maxima_gradients", "CPU"),
    ("graphbench_sft::maxima_gradients", "models.maxout:maxima_gradients_on_cards", "CUDA"),
    ("graphbench_sft::mixture", "models.mixture:mixture", "CPU"),
)


@cache  # torch rejects a second kernel for the same key
def register() -> None:
    """Register all of them with torch."""
    for name, place, device in KERNELS:
        namespace, _, operation = name.partition("::")
        kernel = _imported_when_called(place)
        for key in (device, f"Autograd{device}"):  # tensors of inference mode have no autograd
            _library(namespace).impl(operation, kernel, key)


@cache
def _library(namespace: str) -> torch.library.Library:
    return torch.library.Library(namespace, "IMPL")  # registrations last as long as this object


def _imported_when_called(place: str) -> Callable[..., Any]:
    module, _, name = place.partition(":")
    functions: list[Callable[..., Any]] = []

    def kernel(*args: Any, **kwargs: Any) -> Any:
        if not functions:
            functions.append(getattr(importlib.import_module(f"graphbench_kernels.{module}"), name))
        return functions[0](*args, **kwargs)

    return kernel
