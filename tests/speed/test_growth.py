"""Formulas in docstrings, the exponents that they allow, and the exponents that speed/growth.py measures."""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest
from torch_geometric.utils import contains_self_loops, is_undirected

from graphbench import registry

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def growth(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("growth")


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("B N d", [{"B": 1, "N": 1, "d": 1}]),
        ("L (N d^2 + N^2)", [{"L": 1, "N": 1, "d": 2}, {"L": 1, "N": 2}]),
        ("(N + E) (d + H)", [{"N": 1, "d": 1}, {"N": 1, "H": 1}, {"E": 1, "d": 1}, {"E": 1, "H": 1}]),
        ("B (m + k (N + D))^2 + L", None),
        ("N d log N", [{"N": 1, "d": 1, "log N": 1}]),
        ("(N + L)^2", [{"N": 2}, {"N": 1, "L": 1}, {"L": 1, "N": 1}, {"L": 2}]),
    ],
)
def test_brackets_are_resolved(growth: ModuleType, formula: str, terms: list[dict[str, int]] | None) -> None:
    found = growth.terms_of(formula)
    if terms is not None:
        assert found == [Counter(term) for term in terms]
    # An independent reading: Python's own, with the operators that the formula leaves out.
    sizes = dict(zip("BNELHDdmk", (2, 3, 5, 7, 11, 13, 17, 19, 23), strict=True))
    python = formula.replace("log N", "(log_N)").replace("^", "**").replace(" + ", "+").replace(" ", "*")
    expected = eval(python, sizes | {"log_N": math.log(3)})  # formulas of this file
    values = sizes | {"log N": math.log(3)}
    assert math.isclose(
        sum(math.prod(values[name] ** power for name, power in term.items()) for term in found), expected
    )


@pytest.mark.parametrize("formula", ["N + X", "2 N", "N +", "(N", "N)", "^2 N", "N^d", "", "log (N)", "N ()"])
def test_other_formulas_are_refused(growth: ModuleType, formula: str) -> None:
    with pytest.raises(ValueError, match=r"letters|bracket|parts|power"):
        growth.terms_of(formula)


def test_a_line_is_read_once_and_from_the_class_itself(growth: ModuleType) -> None:
    class Both:
        """Sums.

        Time and memory: `B N d`. The rest is `free`.
        """

    class Two(Both):
        """Time and memory: `B N^2`, `B N`."""

    class Silent(Both):
        """Time and memory grow with `N`."""

    assert growth.formulas_of(Both) == ("B N d", "B N d")
    assert growth.formulas_of(Two) == ("B N^2", "B N")
    for wrong in (
        Silent,
        type("Nothing", (Both,), {}),
        type("Twice", (), {"__doc__": f"{Two.__doc__}\n{Two.__doc__}"}),
    ):
        with pytest.raises(ValueError, match=f"docstring of {wrong.__name__} needs one line"):
            growth.formulas_of(wrong)


def test_the_largest_exponent_of_the_terms_is_allowed(growth: ModuleType) -> None:
    small, large = ({"N": n, "E": 4 * n, "L": 3} for n in (64, 128))
    assert growth.allowed("L (N + E)", small, large) == 1
    assert growth.allowed("N^2 + N E^2", small, large) == 3
    assert growth.allowed("L^4", small, large) == 0
    assert math.isclose(growth.allowed("N log N", small, large), 1 + math.log2(math.log(128) / math.log(64)))


@pytest.mark.parametrize("name", sorted(registry.architectures()))
def test_every_architecture_says_what_it_costs(growth: ModuleType, name: str) -> None:
    small, large = growth.sizes_with("N", 64), growth.sizes_with("N", 128)
    for formula in growth.formulas_of(registry.load("architectures", name)):
        assert 1 <= growth.allowed(formula, small, large) <= 3
        assert growth.allowed(formula, growth.sizes_with("B", 1), growth.sizes_with("B", 2)) == 1


def test_a_square_is_found_and_is_faster_than_a_line(growth: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a simulated clock, steps take n^2 seconds and n bytes; one docstring allows this, the other does not."""
    now = [0.0]

    class Clock:
        perf_counter = process_time = staticmethod(lambda: now[0])

    def make(architecture: type, sizes: dict[str, int]):
        def step() -> int:
            now[0] += sizes["N"] ** 2
            return sizes["N"]

        return step

    def turns(calls, rounds, clock=Clock.perf_counter):
        return {name: [-(clock() - (call(), clock())[1])] * rounds for name, call in calls.items()}

    monkeypatch.setattr(growth, "time", Clock)
    monkeypatch.setattr(growth, "in_turns", turns)
    monkeypatch.setattr(growth, "step_of", make)
    monkeypatch.setattr(growth, "peak_bytes", lambda step: step())
    found = {}
    for formula in ("N^2", "N"):
        kind = type("Square", (), {"__doc__": f"Time and memory: `{formula}`, `N`."})
        found[formula] = growth.curve_of(kind, "N", rounds=2, seconds=1000.0, count=3)
    ended = "a step of 64^2 seconds ends the doubling, unless growth seems too fast"
    assert [curve.sizes for curve in found.values()] == [[16, 32, 64], [32, 64, 128]], ended
    assert [curve.exponents for curve in found.values()] == [(2.0, 1.0)] * 2
    assert [curve.is_ok for curve in found.values()] == [True, False]


def test_graphs_have_the_size_and_the_degree_that_formulas_are_given(growth: ModuleType) -> None:
    sizes = growth.sizes_with("N", 32)
    batch = growth.batch_of(growth.model_of(registry.load("architectures", "GCN"), sizes), sizes)
    assert (batch.num_graphs, batch.num_nodes, batch.num_edges) == (8, 8 * 32, 8 * sizes["E"])
    assert int(batch.edge_index[0].bincount().max()) == sizes["D"]
    assert is_undirected(batch.edge_index)
    assert not contains_self_loops(batch.edge_index)
    assert len(batch.edge_index.unique(dim=1)[0]) == batch.num_edges


def test_memory_of_a_step_is_its_largest_sum(growth: ModuleType) -> None:
    import torch

    def step() -> None:
        first = torch.empty(1 << 20)
        second = torch.empty(1 << 19)
        del first
        del second
        torch.empty(1 << 18)

    assert growth.peak_bytes(step) == 4 * ((1 << 20) + (1 << 19))


def test_a_model_is_measured_from_the_command_line(
    growth: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "keep_memory", lambda: False)  # this process runs other tests later
    path = tmp_path / "growth.json"
    command = "growth --architectures GCN --quantities nodes heads --rounds 1 --seconds 0 --sizes 2 --json"
    monkeypatch.setattr(sys, "argv", [*command.split(), str(path)])
    monkeypatch.setattr(growth, "TOLERANCE", 10.0)  # one step of such sizes is too short to time
    growth.main()
    (row,) = json.loads(path.read_text())["rows"]  # GCN has no heads
    assert (row["architecture"], row["quantity"], row["sizes"]) == ("GCN", "nodes", [16, 32])
    assert row["time_allowed"] == row["memory_allowed"] == 1
    assert 1.5 < row["peaks"][1] / row["peaks"][0] < 2.1, "twice the nodes and edges"
    assert all(seconds > 0 for seconds in row["seconds"])
    assert capsys.readouterr().out.splitlines()[-1].split()[:5] == ["GCN", "nodes", "16", "to", "32"]


def test_the_kept_curves_are_of_all_architectures_and_keep_what_docstrings_promise_now(growth: ModuleType) -> None:
    kept = json.loads((SPEED / "results" / "growth" / "cpu-1-thread.json").read_text())["rows"]
    assert {row["architecture"] for row in kept} >= set(registry.architectures())
    letters = {quantity: letter for letter, (quantity, _) in growth.QUANTITIES.items()}
    for row in kept:
        case = (row["architecture"], row["quantity"])
        small, large = (growth.sizes_with(letters[row["quantity"]], size) for size in row["sizes"][-2:])
        formulas = growth.formulas_of(registry.load("architectures", row["architecture"]))
        for formula, found, measured in zip(formulas, row["exponents"], (row["seconds"], row["peaks"]), strict=True):
            assert found == pytest.approx(math.log2(measured[-1] / measured[-2])), case
            assert found <= growth.allowed(formula, small, large) + growth.TOLERANCE, case
