"""What the commands write to the terminal: log lines and result tables."""

from __future__ import annotations

import contextlib
import logging
import resource
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

#: Warnings that are right in general and wrong here, with the reason.
_NOISE = (
    ".*callbacks used to create the checkpoint need to be provided.*",  # scoring needs the weights alone
    ".*LightningCLI's args parameter.*",  # we split the command line ourselves
    ".*is smaller than the logging interval.*",  # epochs are logged whatever the interval
    ".*does not have many workers.*",  # batches are cut from arrays in a fraction of a millisecond
    ".*recommended to use `self.log.*sync_dist=True.*",  # torchmetrics has already reduced what we log
    ".*exists and is not empty.*",  # the run folder holds config.yaml before the first checkpoint
    ".*Experiment logs directory.*",
    ".*You are using `weights_only=.*",
    ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",  # Lightning 2.6 on torch 2.13
)


#: Columns of a line that is never full.
_ENDLESS = 10_000


class _StandardError(logging.Handler):
    """Writes to what standard error is now, not to what it was when logging began."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        print(self.format(record), file=sys.stderr)


class _FirstProcess(logging.Filter):
    """Lets errors of every process pass, and everything else of the first: the others would say the same."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to print."""
        lightning = sys.modules.get("lightning_utilities.core.rank_zero")  # commands without it have one process
        rank = getattr(getattr(lightning, "rank_zero_only", None), "rank", None)
        return record.levelno >= logging.ERROR or not rank


def set_up_logging() -> None:
    """Log lines of graphbench and Lightning to standard error, one line each, without repeated noise."""
    handler = _StandardError()
    handler.addFilter(_FirstProcess())
    handler.setFormatter(logging.Formatter("%(message)s"))
    root = logging.getLogger("graphbench")
    root.handlers, root.propagate = [handler], False
    root.setLevel(logging.INFO)
    for name in ("pytorch_lightning", "lightning.pytorch", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("pytorch_lightning.profilers", "pytorch_lightning.callbacks.early_stopping"):
        told = logging.getLogger(name)  # what a profiler measured, and why a run ends early
        told.handlers, told.propagate = [handler], False
        told.setLevel(logging.INFO)
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)


def console() -> Console:
    """Standard output; as wide as the terminal, and never narrower than a table needs when it is a file."""
    return Console(width=None if sys.stdout.isatty() else 120, highlight=False)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], corner: str | None = None) -> None:
    """Print a table; the first column is text, the others are numbers. What is too wide is folded, never cut.

    Args:
        title: above it.
        header: names of the columns.
        rows: cells of each.
        corner: name of the first column where rows and columns change places, as they then do if this table is wider
            than the terminal; None to leave them.
    """
    place, table = console(), _table(title, header, rows)
    if corner is not None and Console(width=_ENDLESS).measure(table).maximum > place.width:
        first, *others = zip(header, *rows, strict=True)
        table = _table(title, [corner, *first[1:]], others)
    place.print(table)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def count_parameters(module: nn.Module) -> int:
    """Trainable parameters, shared ones once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def peak_memory_mb() -> float:
    """Most memory in use so far: of the GPU where there is one, else resident memory of the process, in MB (1e6)."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e6
    with contextlib.suppress(OSError):  # as far as Linux tells: `ru_maxrss` counts the process that started this one
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 1e6 if sys.platform == "darwin" else kilobytes * 1024 / 1e6


def scores_of(split: str, logged: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a split (`val/MAE`) among all that was logged, callbacks included.

    Examples:
        >>> scores_of("val", {"val/MAE": 0.25, "capacity/layer_0": 0.5})
        {'val/MAE': 0.25}
    """
    return {key: value for key, value in logged.items() if key.startswith(f"{split}/")}
