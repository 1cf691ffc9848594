"""`graphbench params`: trainable parameters, without data."""

from __future__ import annotations

import json
from collections.abc import Sequence

from graphbench.cli.console import show_table
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.measures import count_parameters
from graphbench.cli.options import OWN, own_parser, split


def params(arguments: Sequence[str]) -> int:
    """Print the count by part and in total (`--json` for machines)."""
    request = split(own_parser("params", **OWN["params"]), arguments)
    model = GraphbenchCLI(request.arguments).model
    parts = {f"architecture.{name}": count_parameters(child) for name, child in model.architecture.named_children()}
    loose = count_parameters(model.architecture) - sum(parts.values())
    if loose:
        parts["architecture (own)"] = loose
    if model.positional_encoding is not None:
        parts = {"positional_encoding": count_parameters(model.positional_encoding), **parts}
    parts["head"] = count_parameters(model.task)
    parts = {name: number for name, number in parts.items() if number}
    total = count_parameters(model)
    name = type(model.architecture).__name__
    if request.own.json:
        record = {"architecture": name, "benchmark": model.spec.name, "parameters": total, "parts": parts}
        print(json.dumps(record))
    else:
        rows = [[part, f"{number:,}"] for part, number in parts.items()]
        show_table(f"{name} on {model.spec.name}", ["part", "parameters"], [*rows, ["total", f"{total:,}"]])
    return 0
