"""Measure the share of the machine's roofline that a training step reaches.

An operation that performs F floating-point operations and moves B bytes takes at least `max(F / P, B / W)` seconds,
where P is the machine's peak rate of floating-point operations and W its peak bandwidth (Williams et al., "Roofline: an
insightful visual performance model", CACM 2009). The operations of a step (forward pass, loss, backward pass, fused
AdamW) are recorded once; the sum of these times is the bound, and the bound divided by the step's time the share.

P is that of a product of large matrices in the precision of the step, W the best over copies of 64 KiB to 256 MiB, so
caches are included; both are measured before each model. Every operand and every result counts once; for indexing only
the selected rows count, and views count as nothing. Repeated reads and internal buffers of an operation do not count.
So no step can be faster than its bound as long as it consists of these operations; a fused step has fewer. `of peak` is
the share of P only, known as MFU.

    python speed/roofline.py
    python speed/roofline.py --configs gps/zinc --rounds 15
    python speed/roofline.py --device cuda --batch-size 512 --precision bf16
    python speed/roofline.py --device cuda --batch-size 512 --compile
    python speed/roofline.py --device cuda --batch-size 512 --graph
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from limit import made, parser_of, prepare, unwaited_step_of, wait_for
from timing import in_turns, medians, note
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from graphbench.training.products import ATTENTION, Product, attention_products

#: Operations that only allocate memory, by the start of their names.
_ROOM = ("aten::empty", "aten::new_empty")
#: Operations that write without reading the old values.
_FILLS = ("aten::zero_", "aten::fill_", "aten::bernoulli_", "aten::random_", "aten::uniform_", "aten::normal_")
#: Operations that read, or change, some rows of their first operand.
_PICKS = ("aten::index", "aten::gather", "aten::embedding", "aten::scatter", "aten::take", "aten::_index")
_DTYPES = {"32": torch.float32, "bf16": torch.bfloat16}


def size_of(tensor: Tensor) -> int:
    """Return the bytes of a tensor: the stored ones if it is expanded, entries and indices if it is sparse."""
    if tensor.layout is torch.sparse_csr:
        return sum(size_of(part) for part in (tensor.values(), tensor.col_indices(), tensor.crow_indices()))
    if tensor.layout is not torch.strided:
        return size_of(tensor._values()) + size_of(tensor._indices())
    span = 1 + sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return min(tensor.numel(), max(span, 0)) * tensor.element_size()


class Operations(TorchDispatchMode):
    """Mode that records the computations and memory traffic of the operations inside it.

    Attributes:
        found: floating-point operations and bytes of each.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run and record an operation."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if moved := bytes_of(func, args, kwargs, out):
            self.found.append((flops_of(func, args, kwargs, out), moved))
        return out

    def least_seconds(self, peak: float, bandwidth: float) -> float:
        """Return the sum of the minimum times of all operations.

        Args:
            peak: floating-point operations per second.
            bandwidth: bytes per second.
        """
        return sum(max(flops / peak, moved / bandwidth) for flops, moved in self.found)


def flops_of(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return the floating-point operations of products, attention and convolutions; 0 for everything else."""
    name, tensors = func._schema.name, [one for one in args if isinstance(one, Tensor)]
    if name.startswith(ATTENTION):
        return sum(product.flops for product in attention_products(tensors, "backward" in name))
    if len(tensors) > 1 and tensors[-2].layout is not torch.strided:
        return Product.of(*tensors[-2:]).flops if name.endswith("mm") else 0
    count = flop_registry.get(func._overloadpacket)
    return int(count(*args, **kwargs, out_val=out)) if count else 0


def bytes_of(func: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Return the minimum bytes that an operation reads and writes; 0 for a view."""
    schema = func._schema
    aliases = [result.alias_info for result in schema.returns]
    if schema.name.startswith(_ROOM) or (aliases and all(one and not one.is_write for one in aliases)):
        return 0
    results = [one for one in tree_leaves(out) if isinstance(one, Tensor)]
    read = [size_of(one) for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    named = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
    changed = [
        size_of(one)
        for argument in schema.arguments
        if argument.alias_info and argument.alias_info.is_write
        for one in tree_leaves(named.get(argument.name))
        if isinstance(one, Tensor)
    ]
    written = sum(changed) if changed else sum(map(size_of, results))
    if schema.name.startswith(_FILLS):
        return written
    if schema.name.startswith(_PICKS) and read:
        touched = max(read[1:], default=written) if changed else written
        read[0], written = min(read[0], touched), min(written, touched)
    return sum(read) + written


def peak_rate(device: str, dtype: torch.dtype, size: int, seconds: float = 0.5) -> float:
    """Measure the peak rate of floating-point operations in products of square matrices, the best of several.

    Args:
        device: cpu or cuda.
        dtype: dtype of the matrices.
        size: rows of a matrix.
        seconds: how long to try.
    """
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / _best(lambda: left @ right, device, seconds)


def bandwidth(device: str, seconds: float = 0.1) -> float:
    """Measure the peak rate of bytes read and written by copies of 64 KiB to 256 MiB.

    Args:
        device: cpu or cuda.
        seconds: how long to try each size.
    """
    found = []
    for power in range(16, 29, 2):
        source, target = (torch.ones(2**power // 4, device=device) for _ in range(2))
        found.append(2 * 2**power / _best(lambda: target.copy_(source), device, seconds))  # noqa: B023 - called here
    return max(found)


def _best(call: Callable[[], object], device: str, seconds: float, calls: int = 20) -> float:
    """Return the seconds of a call, the minimum over several batches of `calls` calls."""
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - start) / calls)
    return best


def graphed(step: Callable[[], None]) -> Callable[[], None]:
    """Return the step as one CUDA graph, captured on its batch, which removes the cost of launches."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):  # as PyTorch requires, so that nothing is created while the graph is captured
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


@dataclass(frozen=True)
class Share:
    """The measurements of a model.

    Args:
        operations: number of operations.
        flops: floating-point operations of all.
        moved: bytes that they move.
        peak: floating-point operations per second of the machine.
        rate: bytes per second of the machine.
        seconds: median of a step.
        bound: lower bound of a step of these operations.
    """

    operations: int
    flops: int
    moved: int
    peak: float
    rate: float
    seconds: float
    bound: float

    HEADS: ClassVar = ("operations", "GFLOP", "MB", "GFLOP/s", "GB/s", "step ms", "bound ms", "of peak", "share")

    def cells(self) -> tuple[str, ...]:
        """Return the printed cells, under `HEADS`."""
        amounts = (f"{self.operations:,}", f"{self.flops / 1e9:.2f}", f"{self.moved / 1e6:.0f}")
        rates = (f"{self.peak / 1e9:.0f}", f"{self.rate / 1e9:.0f}")
        times = (f"{1e3 * self.seconds:.1f}", f"{1e3 * self.bound:.1f}")
        return (
            *amounts,
            *rates,
            *times,
            f"{self.flops / self.peak / self.seconds:.1%}",
            f"{self.bound / self.seconds:.1%}",
        )


def share_of(configuration: str, options: argparse.Namespace) -> Share:
    """Measure the model of a configuration."""
    torch.manual_seed(0)
    dtype = _DTYPES[options.precision]
    model, batch = made(configuration, options.batch_size, options.device)
    step = unwaited_step_of(model, batch, dtype)
    step()
    with Operations() as operations:
        step()
    if options.compile:
        model.architecture.compile()
        step()
    if options.graph:
        step = graphed(step)

    def waited() -> None:
        step()
        wait_for(batch)

    peak = peak_rate(options.device, dtype, 1024 if options.device == "cpu" else 8192)
    rate = bandwidth(options.device)
    bound = operations.least_seconds(peak, rate)
    seconds = in_turns({"step": waited}, options.rounds, warm_up=3)
    ways = [options.precision, *(["compiled"] if options.compile else []), *(["graph"] if options.graph else [])]
    note(", ".join([configuration, *ways]), "step", "roofline", seconds | {"roofline": [bound] * options.rounds})
    flops, moved = map(sum, zip(*operations.found, strict=True))
    return Share(len(operations.found), flops, moved, peak, rate, medians(seconds)["step"], bound)


def main() -> None:
    """Print one line per model."""
    parser = parser_of(__doc__)
    parser.add_argument("--precision", choices=tuple(_DTYPES), default="32")
    parser.add_argument("--compile", action="store_true", help="time the compiled architecture")
    parser.add_argument("--graph", action="store_true", help="time the step as one CUDA graph")
    options = parser.parse_args()
    if options.graph and options.device != "cuda":
        parser.error("--graph needs --device cuda.")
    prepare()
    print(f"{'configuration':<28}" + "".join(f"{head:>12}" for head in Share.HEADS))
    for configuration in options.configs:
        cells = share_of(configuration, options).cells()
        print(f"{configuration:<28}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
