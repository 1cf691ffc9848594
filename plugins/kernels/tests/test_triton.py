"""Every kernel in Triton, compiled as it is launched for cards that are not here: what it takes of them.

That each computes what it should is tested beside its module, by Triton's interpreter where there is no card.
"""

import json
from pathlib import Path

import pytest

from graphbench.testing import run_with_triton

PROGRAM = Path(__file__).with_name("compiled_kernels.py")
#: Types of kernels that are launched with others than float32 and float64.
KINDS = {
    "graphbench_kernels.probe_triton._fill": set(),
    "graphbench_kernels.nn.attention_triton._attend": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._query_gradients": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._key_gradients": {"*fp32", "*bf16", "*fp16"},
    "graphbench_kernels.nn.attention_triton._draw_factors": {"*fp32"},
}
#: Bytes of shared memory that every card gives a program without being asked for more.
MOST_SHARED = 48 * 1024


@pytest.fixture(scope="module")
def printed():
    """Names of all kernels, and what each launch of them takes."""
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
