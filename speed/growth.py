"""Compare the growth of time and memory of a training step with the docstrings of the architectures.

The docstring of every architecture gives the cost of a step in one line, up to constants, with the letters that
`graphbench.Architecture` explains:

    Time and memory: `B L (N d^2 + N^2 d)`, `B L (N d + H N^2)`.

Here one quantity at a time is doubled while the others are fixed: nodes of a graph (of constant degree), graphs,
layers, heads, samples, neighbours, if the constructor has them as arguments. A step is forward pass, mean square of the
output, and backward pass; inputs, weights, gradients and encodings exist before it, and there is no head. Sizes double
until a step takes `--seconds`; the last four are timed alternately in processor time on one thread (medians), and
memory is the peak of the memory allocated by torch.

The exponent is log2 of the ratio for the two largest sizes, where constant costs matter least. A formula allows the
largest exponent of any of its terms between the same sizes. A curve that exceeds it by more than 0.25 is FASTER: a
factor of 1.19 per doubling is more than timing noise or cache effects of such steps, and far below the factor of 2 of
an additional power; an additional logarithm is not detected. Small steps grow more slowly than their formula, since
function calls cost as much as large products: this finds broken promises, not loose ones. A curve that seems too fast
is measured again with three times as many rounds, to rule out a busy moment, and with nodes, graphs and layers doubled
again: a step outgrows a cache once, but a power shows at every size.

    python speed/growth.py                                     # all, which takes a long time
    python speed/growth.py --architectures GPS SFT --quantities nodes heads
    python speed/growth.py --json growth.json                  # with all points of the curves
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import get_args

import torch
from timing import in_turns, medians, note, peak_bytes, provenance

from graphbench import Architecture, BenchmarkSpec, GraphBatch, registry
from graphbench.cli.process import keep_memory
from graphbench.contracts import GraphTable
from graphbench.contracts.spec import TaskName
from graphbench.errors import BadInput
from graphbench.testing import FEATURE_KINDS, encode, tiny_spec

#: Letter -> quantity to double, and the options that set it; nodes and graphs are those of the data.
QUANTITIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "N": ("nodes", ()),
    "B": ("graphs", ()),
    "L": ("layers", ("num_layers",)),
    "H": ("heads", ("num_heads",)),
    "m": ("samples", ("num_samples", "num_points", "num_inducing", "num_packed", "num_states", "num_clusters")),
    "k": ("neighbours", ("num_neighbors", "num_hops", "order")),
}
#: Smallest and largest value of the doubled quantity. Heads divide the width.
RANGES = {"N": (16, 1 << 14), "B": (1, 1 << 11), "L": (1, 64), "H": (1, 32), "m": (4, 256), "k": (2, 64)}
#: Fixed values of the others; samples and neighbours are doubled on larger graphs, which have enough nodes.
OTHERS = {"N": 64, "B": 8, "L": 2, "H": 4, "m": 16, "k": 4, "d": 32}
LARGE = {"N": 256, "B": 2}
#: Graphs are circles in which every fourth node has an edge to the third node after it: chains of squares, as sparse as
#: molecules. Directed edges per node on average, and at most.
EDGES, DEGREE = 2.5, 3
TOLERANCE = 0.25
QUICK = ("GCN", "GPS", "SFT", "SGFormer")
_LINE = re.compile(r"^\s*Time and memory: `([^`]+)`(?:, `([^`]+)`)?\.", re.MULTILINE)
_TOKEN = re.compile(r"log [BNELHDdmk]|[BNELHDdmk]|\^\d|[+()]")

#: A product: letter, or "log " and letter -> power.
Term = Counter[str]
Sizes = Mapping[str, int]


# -- formulas ----------------------------------------------------------------------------------------------------


def formulas_of(architecture: type) -> tuple[str, str]:
    """Return the formulas for time and memory in its docstring; a single formula is for both.

    Raises:
        ValueError: there is no such line, or more than one.
    """
    lines = _LINE.findall(architecture.__doc__ or "")
    if len(lines) != 1:
        raise ValueError(f"The docstring of {architecture.__name__} needs one line `Time and memory: ...`.")
    return lines[0][0], lines[0][1] or lines[0][0]


def terms_of(formula: str) -> list[Term]:
    """Return the products that a formula sums, with brackets expanded.

    Raises:
        ValueError: it contains anything other than the letters, `log`, powers, sums and brackets.
    """
    tokens = _TOKEN.findall(formula)
    if "".join(tokens).replace(" ", "") != formula.replace(" ", ""):
        raise ValueError(f"{formula!r} has more than letters of BNELHDdmk, log, powers of one digit, + and brackets.")
    terms = _sum(tokens)
    if tokens:
        raise ValueError(f"{formula!r} closes a bracket that it does not open.")
    return terms


def _sum(tokens: list[str]) -> list[Term]:
    terms = _product(tokens)
    while tokens and tokens[0] == "+":
        del tokens[0]
        terms += _product(tokens)
    return terms


def _product(tokens: list[str]) -> list[Term]:
    found, empty = [Term()], True
    while tokens and tokens[0] not in ("+", ")"):
        token, empty = tokens.pop(0), False
        factor = [Term({token: 1})]
        if token == "(":
            factor = _sum(tokens)
            if not tokens:
                raise ValueError("A bracket stays open.")
            del tokens[0]
        if token[0] == "^":
            raise ValueError(f"{token} is the power of nothing.")
        power = int(tokens.pop(0)[1:]) if tokens and tokens[0][0] == "^" else 1
        for _ in range(power):
            found = [left + right for left in found for right in factor]
    if empty:
        raise ValueError("A sum lacks one of its parts.")
    return found


def allowed(formula: str, small: Sizes, large: Sizes) -> float:
    """Return the largest exponent of its terms between two sizes, one twice the other."""

    def value(term: Term, sizes: Sizes) -> float:
        return math.prod(
            (math.log(sizes[name[-1]]) if name.startswith("log") else sizes[name]) ** power
            for name, power in term.items()
        )

    return max(math.log2(value(term, large) / value(term, small)) for term in terms_of(formula))


def exponent(values: Sequence[float]) -> float:
    """Return the exponent between the last two values, for sizes that differ by a factor of 2."""
    return math.log2(values[-1] / values[-2])


# -- steps -------------------------------------------------------------------------------------------------------


def sizes_with(letter: str, size: int) -> dict[str, int]:
    """Return all sizes if this one is doubled."""
    sizes = OTHERS | (LARGE if letter in "mk" else {}) | {letter: size}
    return sizes | {"E": int(EDGES * sizes["N"]), "D": DEGREE}


def batch_of(model: Architecture, sizes: Sizes) -> GraphBatch:
    """Return graphs with the features and encodings that the model reads."""
    spec, nodes = model.spec, torch.arange(sizes["N"])
    half = torch.stack([torch.cat([nodes, nodes[::4]]), torch.cat([nodes.roll(-1), nodes[3::4]])])
    kinds = ((spec.node, sizes["N"], "x", "x_dense"), (spec.edge, sizes["E"], "edge_attr", "edge_dense"))
    graphs = []
    for _ in range(sizes["B"]):
        graph = {"num_nodes": sizes["N"], "edge_index": torch.cat([half, half.flip(0)], dim=1)}
        for features, rows, codes, dense in kinds:
            if features.vocabularies:
                graph[codes] = torch.stack([torch.randint(most, (rows,)) for most in features.vocabularies], dim=1)
            if features.dense:
                graph[dense] = torch.randn(rows, features.dense)
        if spec.coordinates:
            graph["pos"] = torch.randn(sizes["N"], spec.coordinates)
        graphs.append(graph)
    return encode(GraphTable.from_graphs(graphs), model.required_encodings()).batch(range(sizes["B"]))


def model_of(architecture: type[Architecture], sizes: Sizes) -> Architecture:
    """Create a model of these sizes in training mode, for the first task and kind of features that it supports.

    Raises:
        BadInput: it supports none.
    """
    options = {"hidden_dim": sizes["d"], "ffn_dim": sizes["d"], "num_edges": sizes["E"] // 2}
    if "num_towers" in inspect.signature(architecture).parameters:  # PNA's towers divide all its widths
        options |= {"num_towers": 4, "out_dim": sizes["d"], "mean_log_degree": 1.0}
    options |= {name: sizes[letter] for letter, (_, names) in QUANTITIES.items() for name in names}
    known = inspect.signature(architecture).parameters
    refusal = BadInput("no task")
    for task in get_args(TaskName):
        for kind in FEATURE_KINDS:
            spec: BenchmarkSpec = replace(tiny_spec(task, kind), max_nodes=sizes["N"], mean_nodes=float(sizes["N"]))
            try:
                return architecture(spec, **{key: value for key, value in options.items() if key in known}).train()
            except BadInput as error:
                refusal = error
    raise refusal


def step_of(architecture: type[Architecture], sizes: Sizes) -> Callable[[], None]:
    """Return a training step that accumulates gradients."""
    torch.manual_seed(0)
    model = model_of(architecture, sizes)
    batch = batch_of(model, sizes)

    def step() -> None:
        out = model(batch)
        parts = [part for part in (out.node, out.edge, out.graph, out.tokens) if part is not None and part.numel()]
        loss = torch.stack([part.square().mean() for part in parts]).sum()
        if out.penalty is not None:
            loss = loss + out.penalty
        if loss.requires_grad:  # an architecture may have no weights
            loss.backward()

    return step


# -- curves ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """The effect of doubling one quantity on a step.

    Args:
        architecture: its name.
        quantity: the doubled quantity.
        sizes: its values, each twice the previous one.
        seconds: median of a step at each of them.
        peaks: peak of its memory in bytes at each of them.
        time_allowed: exponent that the formula allows.
        memory_allowed: the same for memory.
    """

    architecture: str
    quantity: str
    sizes: list[int]
    seconds: list[float]
    peaks: list[int]
    time_allowed: float
    memory_allowed: float

    @property
    def exponents(self) -> tuple[float, float]:
        """Return the exponents of time and memory."""
        return exponent(self.seconds), exponent(self.peaks)

    @property
    def is_ok(self) -> bool:
        """Return whether neither grows faster than allowed."""
        pairs = zip(self.exponents, (self.time_allowed, self.memory_allowed), strict=True)
        return all(found <= most + TOLERANCE for found, most in pairs)


def steps_of(
    make: Callable[[int], Callable[[], None]], smallest: int, largest: int, seconds: float, count: int
) -> dict[int, Callable[[], None]]:
    """Return steps of the last `count` sizes, doubled until one takes `seconds` or the largest size is reached."""
    steps: dict[int, Callable[[], None]] = {}
    size = smallest
    while size <= largest:
        steps[size] = make(size)
        taken = in_turns({"step": steps[size]}, 1, time.process_time)["step"][0]
        if len(steps) > count:
            del steps[min(steps)]
        if taken >= seconds and len(steps) >= count:
            break
        size *= 2
    return steps


def curve_of(architecture: type[Architecture], letter: str, rounds: int, seconds: float, count: int) -> Curve:
    """Double one quantity, and measure.

    Args:
        architecture: the class.
        letter: key of `QUANTITIES`.
        rounds: timed steps of each size.
        seconds: duration of a step at which doubling stops.
        count: number of sizes, at least 2.
    """
    name, (quantity, _) = architecture.__name__, QUANTITIES[letter]
    time_formula, memory_formula = formulas_of(architecture)
    steps = steps_of(lambda size: step_of(architecture, sizes_with(letter, size)), *RANGES[letter], seconds, count)

    def most(formula: str) -> float:
        return allowed(formula, *(sizes_with(letter, size) for size in list(steps)[-2:]))

    def measured(rounds: int) -> dict[str, list[float]]:
        return in_turns({f"{size} {quantity}": step for size, step in steps.items()}, rounds, time.process_time)

    taken = measured(rounds)
    if exponent(list(medians(taken).values())) > most(time_formula) + TOLERANCE:
        if letter in "NBL":  # more heads would not divide the width, and graphs have no more samples
            further = 2 * max(steps)
            steps[further] = step_of(architecture, sizes_with(letter, further))
            del steps[min(steps)]
        taken = measured(3 * rounds)
    note(f"{name}, {quantity} doubled", *list(taken)[:-3:-1], taken)
    peaks = [peak_bytes(step) for step in steps.values()]
    middle = list(medians(taken).values())
    return Curve(name, quantity, list(steps), middle, peaks, most(time_formula), most(memory_formula))


def main() -> None:
    """Measure, print a line per curve, and fail if something grows faster than its docstring says."""
    named = {quantity: letter for letter, (quantity, _) in QUANTITIES.items()}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", nargs="+", metavar="NAME", help="registered names; all by default")
    parser.add_argument("--quantities", nargs="+", choices=named, default=list(named), help="what to double")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each size")
    parser.add_argument("--seconds", type=float, default=0.3, help="duration of a step at which doubling stops")
    parser.add_argument("--sizes", type=int, default=4, help="sizes of a curve")
    parser.add_argument("--quick", action="store_true", help=f"{', '.join(QUICK)}, with shorter steps")
    parser.add_argument("--json", type=Path, help="file to write")
    options = parser.parse_args()
    if options.sizes < 2:
        parser.error(f"--sizes {options.sizes}: an exponent needs at least 2.")
    if options.quick:
        options.architectures, options.seconds = options.architectures or QUICK, 0.05
    keep_memory()
    torch.set_num_threads(1)
    where, curves = provenance(), []
    print(", ".join(f"{key} {value}" for key, value in where.items() if value))
    columns = ("architecture", "quantity", "sizes", "time exponent", "memory exponent", "allowed by the docstring")
    row = "{:<20} {:<11} {:<17} {:>13} {:>16} {:>25}  {}"
    print(row.format(*columns, "ok"))
    names = options.architectures or sorted(registry.architectures())
    classes = [registry.load("architectures", name) for name in names]
    for architecture in classes:  # report a docstring without its line before anything is measured
        formulas_of(architecture)
    for architecture in classes:
        known = inspect.signature(architecture).parameters
        for letter in (named[quantity] for quantity in options.quantities):
            counted = QUANTITIES[letter][1]
            if counted and not any(option in known for option in counted):
                continue
            curve = curve_of(architecture, letter, options.rounds, options.seconds, options.sizes)
            curves.append(curve)
            most = f"{curve.time_allowed:.2f}, {curve.memory_allowed:.2f}"
            found = (f"{value:.2f}" for value in curve.exponents)
            sizes = f"{curve.sizes[0]} to {curve.sizes[-1]}"
            ok = "yes" if curve.is_ok else "FASTER"
            print(row.format(curve.architecture, curve.quantity, sizes, *found, most, ok), flush=True)
    if options.json:
        rows = [asdict(curve) | {"exponents": curve.exponents} for curve in curves]
        options.json.write_text(json.dumps({"provenance": where, "rows": rows}, indent=1) + "\n")
    if not all(curve.is_ok for curve in curves):
        raise SystemExit("Something grows faster than its docstring says.")


if __name__ == "__main__":
    main()
