"""The seam between operations and kernel packages: none is needed, none is loaded before it is used."""

import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphbench.contracts import kernels
from graphbench.contracts.kernels import VARIABLE, kernels_run, operation, plain_form, runs_numba, runs_triton
from graphbench.errors import BadInput
from graphbench.testing import computed_by


@operation("graphbench_test")
def thrice(x: Tensor, times: float = 3.0) -> Tensor:
    """Plain."""
    return times * x


@pytest.fixture
def registered(monkeypatch):
    """Register a kernel that replaces the operation on the CPU; yield the inputs of its calls."""
    library = torch.library.Library("graphbench_test", "IMPL")
    seen = []

    def kernel(x, times=3.0):
        seen.append(x)
        return plain_form("graphbench_test::thrice")(x, times)

    library.impl("thrice", kernel, "AutogradCPU")
    monkeypatch.setattr(kernels, "register_kernels", lambda: ("made",))
    monkeypatch.setattr(kernels, "_are_wanted", lambda: True)
    yield seen
    library._destroy()


def test_a_kernel_takes_the_place_of_the_plain_form(registered):
    x = torch.ones(2, requires_grad=True)
    assert torch.equal(thrice(x), 3 * x)
    assert torch.equal(thrice(x, times=2.0), 2 * x)
    assert len(registered) == 2
    with computed_by("torch"):
        assert torch.equal(thrice(x), 3 * x)
    with computed_by("torch", "graphbench_test::thrice"):
        assert torch.equal(thrice(x), 3 * x)
    assert len(registered) == 2
    with computed_by("torch", "graphbench_test::another"):
        assert torch.equal(thrice(x), 3 * x)
    assert len(registered) == 3


def test_programs_hold_the_plain_form(registered):
    class Layer(torch.nn.Module):
        def forward(self, x):
            return thrice(x)

    program = torch.export.export(Layer(), (torch.ones(2),))
    assert not [node for node in program.graph.nodes if "graphbench" in str(node.target)]
    assert not registered


def test_an_unknown_operation_has_no_plain_form():
    with pytest.raises(KeyError, match="graphbench::nothing"):
        plain_form("graphbench::nothing")


@pytest.fixture
def asked_anew():
    asked = (kernels._are_wanted, kernels._entry_points, kernels.register_kernels)
    for one in asked:
        one.cache_clear()
    yield
    for one in asked:
        one.cache_clear()


@pytest.mark.usefixtures("asked_anew")
def test_the_environment_turns_kernels_off_before_any_is_looked_for(monkeypatch):
    monkeypatch.setenv(VARIABLE, "torch")
    monkeypatch.setattr(metadata, "entry_points", lambda **given: pytest.fail("looked for kernels"))
    assert not kernels_run()
    assert not runs_numba(torch.zeros(1))
    assert not runs_triton(torch.device("cpu"))


@pytest.mark.usefixtures("asked_anew")
def test_without_a_package_there_are_none(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(metadata, "entry_points", lambda **given: [])
    assert not kernels_run()
    assert torch.equal(thrice(torch.ones(1)), torch.full((1,), 3.0))


@pytest.mark.usefixtures("asked_anew")
def test_another_value_of_the_variable_is_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "cuda")
    with pytest.raises(BadInput, match=r"GRAPHBENCH_KERNELS must be one of .*'cuda'"):
        kernels_run()


#: Imports every module of the core and of the plug-ins except kernels, without Numba, LLVM and Triton.
_WITHOUT = """
    import importlib
    import pkgutil
    import sys
    from importlib import metadata

    MISSING = {"numba", "llvmlite", "triton", "graphbench_kernels"}

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in MISSING:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Missing())
    found = metadata.entry_points
    metadata.entry_points = lambda **given: [] if given.get("group") == "graphbench.kernels" else found(**given)
    import graphbench

    skipped = ("graphbench.__main__", "graphbench.cli.__main__")
    for package in PACKAGES:
        for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
            if module.name not in skipped and not module.name.rpartition(".")[2].endswith(("_numba", "_triton")):
                importlib.import_module(module.name)
    import torch
    from graphbench.nn import DenseLayout, attend_within_graphs

    layout = DenseLayout.from_batch(torch.tensor([0, 0, 1]))
    qkv = torch.ones(3, 6, requires_grad=True)
    attend_within_graphs(qkv, layout, 1, dropout=0.1).sum().backward()
    assert qkv.grad is not None
    assert not MISSING & sys.modules.keys()
    print("imported")
"""


def test_everything_imports_where_no_kernels_are_installed():
    folders = sorted(Path(__file__).parents[2].glob("plugins/*/src/graphbench_*"))
    plugins = [folder.name for folder in folders if folder.name != "graphbench_kernels"]
    script = textwrap.dedent(_WITHOUT).replace("PACKAGES", repr(["graphbench", *plugins]))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n", done.stderr
