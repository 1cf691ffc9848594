"""Compile all Triton kernels for GPUs that this machine need not have, and print their resources, a JSON line each.

    python plugins/kernels/tests/compiled_kernels.py

Kernels are compiled as their modules launch them: the launching functions are called with tensors of several sizes and
types, and a stand-in records arguments and options. The resources are read from the cubin.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import graphbench_kernels
from graphbench_kernels import probe_triton
from graphbench_kernels.models import maxout_triton
from graphbench_kernels.nn import attention_triton, edge_attention_triton, messages_triton
from graphbench_kernels.sfi_former import operations, water_level_triton

#: Compute capabilities: A100, and H100 and H200.
CAPABILITIES = (80, 90)
TYPES = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.uint8: "*u8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}


class Launch(NamedTuple):
    """Launch of a kernel: its arguments by name, and options such as `num_warps`."""

    kernel: JITFunction
    arguments: dict[str, Any]
    options: dict[str, Any]

    @property
    def signature(self) -> dict[str, str]:
        """Return the type of each argument in Triton's notation."""
        numbers = {float: "fp32", int: "i32", bool: "i1"}
        found = {}
        for parameter in self.kernel.params:
            value = self.arguments[parameter.name]
            if parameter.is_constexpr or value is None:
                found[parameter.name] = "constexpr"
            else:
                found[parameter.name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else numbers[type(value)]
        return found

    @property
    def constants(self) -> dict[str, Any]:
        """Return the arguments that a kernel is compiled for."""
        return {name: self.arguments[name] for name, kind in self.signature.items() if kind == "constexpr"}

    @property
    def attributes(self) -> dict[tuple[int], list[list[object]]]:
        """Mark the arguments that are divisible by 16, as Triton does at a launch; torch aligns its memory to that."""
        general = (p.is_constexpr or p.do_not_specialize for p in self.kernel.params)
        values = [None if skip else self.arguments[p.name] for p, skip in zip(self.kernel.params, general, strict=True)]
        even = [i for i, x in enumerate(values) if isinstance(x, torch.Tensor) or (type(x) is int and x % 16 == 0)]
        return {(i,): [["tt.divisibility", 16]] for i in even}


class StandIn:
    """Stand-in for a kernel that records its launches."""

    def __init__(self, kernel: JITFunction, launches: list[Launch]) -> None:
        self.kernel, self.launches = kernel, launches

    def __getitem__(self, grid: object) -> Callable[..., None]:
        """Return the function that launches on a grid, as a kernel does."""
        return self.note

    def note(self, *values: Any, **named: Any) -> None:
        """Record one launch."""
        options = {name: value for name, value in named.items() if name not in self.kernel.arg_names}
        arguments = dict(zip(self.kernel.arg_names, values, strict=False)) | named
        self.launches.append(Launch(self.kernel, arguments, options))


def replace_kernels(launches: list[Launch]) -> Iterator[str]:
    """Replace all kernels with stand-ins, and yield the names of the kernels."""
    for found in pkgutil.walk_packages(graphbench_kernels.__path__, "graphbench_kernels."):
        if found.name.endswith("_triton"):
            module = importlib.import_module(found.name)
            functions = {name: x for name, x in vars(module).items() if isinstance(x, JITFunction)}
            called = {name for function in functions.values() for name in function.fn.__code__.co_names}
            for name in functions.keys() - called:  # the others are called by these
                setattr(module, name, StandIn(functions[name], launches))
                yield f"{found.name}.{name}"


def launch_all() -> None:
    """Call every function that launches a kernel, with sizes below, at and above those of tiles."""
    probe_triton.launch(torch.device("cpu"))
    launch_attention()
    launch_messages()
    for dtype in (torch.float32, torch.float64):
        for rows, keys, channels in ((5, 3, 4), (30, 17, 20), (300, 70, 20), (1024, 256, 64)):
            a, b = torch.zeros(1, rows, channels, dtype=dtype), torch.zeros(1, keys, channels, dtype=dtype)
            maxout_triton.scores(a, b)
            maxout_triton.gradients(a, b, torch.zeros(1, rows, keys, dtype=dtype))
        most = operations.MOST_BYTES // dtype.itemsize
        for keys in (3, 600, 4096, most - 1, most):
            weight = torch.zeros(1, keys, dtype=dtype)
            water_level_triton.water_level(weight, weight, weight[:, :1])


def launch_attention() -> None:
    """Launch attention in small and large tiles, of narrow and wide heads, with and without a bias."""
    cases = [(torch.float16, 64, 1000, True)]
    for dtype in (torch.float32, torch.bfloat16):
        cases += [(dtype, width, 1000, True) for width in (8, 32, 64, 128)] + [(dtype, 20, 16, False)]
    for dtype, width, length, biased in cases:
        qkv, ptr = torch.zeros(length, 3 * 2 * width, dtype=dtype), torch.tensor([0, length])
        bias = torch.zeros(1, 2, length, length, dtype=dtype) if biased else None
        options = ptr, bias, length, 2, attention_triton.Dropout(0.1, 5)
        mixed, sums = attention_triton.attend(qkv, *options)
        attention_triton.gradients(qkv, *options, mixed, sums, mixed, biased)
        attention_triton.kept_factors(ptr, length, 2, options[-1])


def launch_messages() -> None:
    """Launch messages of few and many channels."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for width in (20, 256):
            x, edge = torch.zeros(3, width, dtype=dtype), torch.zeros(5, width, dtype=dtype)
            ends = torch.zeros(2, 5, dtype=torch.int64)
            edges = messages_triton.Edges(*ends, *messages_triton.group(ends, 3))
            messages_triton.sum_rectified(x, edges, edge, 1.0)
            messages_triton.sum_rectified_gradients(x, edges, edge, x, 1.0)
            nodes = torch.zeros(3, 4 * width, dtype=dtype)
            out, raw, *sums = messages_triton.gated_messages(nodes, edges, edge, 1e-6)
            messages_triton.gated_gradients(nodes, edges, raw, *sums, out, raw)
            for heads, steer in ((1, edge), (2, None)):
                options = edge_attention_triton.Options(heads, 5.0)
                qkv, scored = nodes[:, : 3 * width].contiguous(), steer is not None
                mixed, scores, weights = edge_attention_triton.attend(qkv, edges, steer, options, scored)
                above = mixed, scores if scored else None
                edge_attention_triton.gradients(qkv, edges, steer, options, mixed, weights, *above)


def compile_for(launch: Launch, capability: int) -> dict[str, object]:
    """Return the resources of a launch for a compute capability; bytes of stack are those of spilled registers."""
    source = ASTSource(launch.kernel, launch.signature, launch.constants, launch.attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=launch.options)
    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernel.cubin")
        cubin.write_bytes(made.asm["cubin"])
        words = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)]
        used = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    numbers = {word: int(re.findall(rf"\b{word}:(\d+)", used)[-1]) for word in ("REG", "STACK")}
    return {
        "kernel": f"{launch.kernel.fn.__module__}.{launch.kernel.fn.__name__}",
        "types": sorted(set(launch.signature.values()) & set(TYPES.values())),
        "launched": {name: str(value) for name, value in (launch.constants | launch.options).items()},
        "capability": capability,
        "registers": numbers["REG"],
        "stack": numbers["STACK"],
        "shared": made.metadata.shared,
    }


def main() -> None:
    """Print all kernels, then the resources of every distinct launch."""
    launches: list[Launch] = []
    print(json.dumps(list(replace_kernels(launches))))
    launch_all()
    different = {repr((x.kernel.fn, x.signature, x.constants, x.attributes, x.options)): x for x in launches}
    for launch in different.values():
        for capability in CAPABILITIES:
            print(json.dumps(compile_for(launch, capability)))


if __name__ == "__main__":
    main()
