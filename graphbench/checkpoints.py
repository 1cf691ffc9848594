"""Reading checkpoints without running code from them."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from graphbench.errors import BadInput, CorruptData

log = logging.getLogger(__name__)


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint file, on the CPU.

    Raises:
        BadInput: there is no such file.
        CorruptData: it is truncated, or holds more than tensors and plain values.
    """
    if not Path(path).is_file():
        raise BadInput(f"There is no checkpoint {path}.")
    try:
        loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, OSError) as error:
        raise CorruptData(f"The checkpoint {path} cannot be read: {str(error).splitlines()[0]}") from error
    return loaded


def load_matching(module: nn.Module, path: str | Path) -> dict[str, list[str]]:
    """Copy the weights of a checkpoint into `module` where name and shape agree, and log what did not.

    Options that modules keep beside their weights (PyTorch's extra state) belong to the trained model and stay there.

    Returns:
        Names by what became of them: `loaded`, `missing` (kept as initialised), `unused` (not in the module) and
        `reshaped` (in both, with different shapes; kept as initialised).

    Raises:
        BadInput: no file, or nothing in it fits.
        CorruptData: the file cannot be read.
    """
    content = load_checkpoint(path)
    source, own = _tensors(content.get("state_dict", content)), _tensors(module.state_dict())
    outcome: dict[str, list[str]] = {"loaded": [], "missing": [], "unused": [], "reshaped": []}
    for name, value in own.items():
        if name not in source:
            outcome["missing"].append(name)
        elif source[name].shape != value.shape:
            outcome["reshaped"].append(name)
        else:
            outcome["loaded"].append(name)
    outcome["unused"] = [name for name in source if name not in own]
    if not outcome["loaded"]:
        raise BadInput(f"init_from: no weight of {path} fits this model by name and shape.")
    module.load_state_dict({name: source[name] for name in outcome["loaded"]}, strict=False)
    log.info("init_from %s: %d tensors loaded", path, len(outcome["loaded"]))
    for kind, every in (("missing", own), ("unused", source), ("reshaped", own)):
        if outcome[kind]:
            log.warning("init_from %s: %s: %s", path, kind, ", ".join(folded(outcome[kind], every)))
    return outcome


def folded(names: Collection[str], every: Iterable[str], above: str = "") -> list[str]:
    """Dotted names in short: a part of the model all of whose n > 1 tensors are named becomes `part.* (n)`.

    Args:
        names: what to say.
        every: all names there are, in order.
        above: the part that `every` belongs to; for the recursion.
    """
    parts: dict[str, list[str]] = {}
    for name in every:
        parts.setdefault(above + name.removeprefix(above).partition(".")[0], []).append(name)
    said: list[str] = []
    for part, inside in parts.items():
        named = [name for name in inside if name in names]
        if len(named) == len(inside) > 1:
            said.append(f"{part}.* ({len(inside)})")
        elif len(inside) > 1 and named:
            said += folded(named, inside, f"{part}.")
        else:
            said += named
    return said


def _tensors(state: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
