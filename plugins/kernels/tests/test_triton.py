"""Resources of every Triton kernel, compiled as it is launched, for GPUs that this machine need not have.

Their results are tested next to each module, by Triton's interpreter if there is no GPU.
"""

import json
from pathlib import Path

import pytest

from graphbench.testing import run_with_triton

PROGRAM = Path(__file__).with_name("compiled_kernels.py")
#: Types of kernels that are launched with types other than float32 and float64.
KINDS = {
    "graphbench_kernels.probe_triton._fill": set(),
    "graphbench_kernels.nn.attention_triton._attend": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._query_gradients": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._key_gradients": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._draw_factors": {"*fp32"},
}
#: Bytes of shared memory that every GPU gives a program by default.
MOST_SHARED = 48 * 1024


@pytest.fixture(scope="module")
def printed():
    """Return the names of all kernels, and the resources of each launch."""
    names, *launches = map(json.loads, run_with_triton(PROGRAM.read_text(), interpreted=False).splitlines())
    return names, launches


def test_every_kernel_is_compiled_for_every_card_and_type(printed):
    names, launches = printed
    assert {launch["kernel"] for launch in launches} == set(names)
    assert {launch["capability"] for launch in launches} == {80, 90}
    for name in names:
        kinds = {kind for launch in launches if launch["kernel"] == name for kind in launch["types"]}
        assert KINDS.get(name, {"*fp32", "*fp64"}) <= kinds, name


def test_none_spills_registers_or_takes_more_memory_than_any_card_has(printed):
    beyond = [launch for launch in printed[1] if launch["stack"] or launch["shared"] > MOST_SHARED]
    assert not beyond, "\n".join(map(str, beyond))
