"""Registrations with torch: a kernel for each named operation, and nothing is imported before it runs."""

import importlib
import subprocess
import sys

import pytest
import torch

from graphbench.contracts import kernels
from graphbench_kernels.register import KERNELS, register

DEFINED_IN = (
    "graphbench.encodings.lap_pe",
    "graphbench.encodings.rwse",
    "graphbench.encodings.shortest_paths",
    "graphbench.nn.ops",
    "graphbench_sfi_former.blocks",
    "graphbench_sfi_former.sparse_flow",
    "graphbench_sft.ops",
)

REGISTERED = """
import sys
import graphbench_kernels.register
graphbench_kernels.register.register()
graphbench_kernels.register.register()
print(sorted({"numba", "llvmlite", "triton", "graphbench"} & sys.modules.keys()))
"""


def test_registering_imports_neither_numba_nor_triton_nor_graphbench():
    done = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(("operation", "place", "device"), KERNELS)
def test_every_kernel_stands_where_it_is_said_to_be_and_replaces_an_operation(operation, place, device):
    for module in DEFINED_IN:
        importlib.import_module(module)
    register()
    assert callable(kernels.plain_form(operation))
    module, _, name = place.partition(":")
    assert callable(getattr(importlib.import_module(f"graphbench_kernels.{module}"), name))
    for key in (device, f"Autograd{device}"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(operation, key)


def test_registered_once_however_often_it_is_asked_for():
    register()
    register()
