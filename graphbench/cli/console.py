"""Show log lines, tables and measured numbers of commands on the terminal."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphbench.data.files.writing import no_room
from graphbench.errors import visible

if TYPE_CHECKING:
    import torch
    from torch import nn

#: Warnings that are right in general and wrong here, with the reason.
_NOISE = (
    ".*callbacks used to create the checkpoint need to be provided.*",  # scoring needs only the weights
    ".*LightningCLI's args parameter.*",  # we split the command line ourselves
    ".*is smaller than the logging interval.*",  # epochs are logged at any interval
    ".*does not have many workers.*",  # batches are cut from arrays in a fraction of a millisecond
    ".*recommended to use `self.log.*sync_dist=True.*",  # torchmetrics has already reduced what we log
    ".*exists and is not empty.*",  # the run folder contains config.yaml before the first checkpoint
    ".*Experiment logs directory.*",
    ".*You are using `weights_only=.*",
    ".*loading a checkpoint outside the 'fit' stage.*",  # its weights are the averages, which is what is scored
    ".*The `srun` command is available on your system but is not used.*",  # right on login nodes, and in launched jobs
    "\\s*Unable to serialize instance",  # `GraphbenchCLI.resolved_config` writes the value, or raises an error
    ".*`isinstance\\(treespec, LeafSpec\\)` is deprecated.*",  # Lightning 2.6 on torch 2.13
)


class _StandardError(logging.Handler):
    """Write to the current standard error, not to the one at the time when logging was set up."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line; a full disk must not stop a training."""
        try:
            print(visible(self.format(record)), file=sys.stderr)
        except OSError as error:
            if not no_room(error):
                raise


def _passes(record: logging.LogRecord) -> bool:
    """Pass errors from every process, and everything else only from the first: the others would repeat it."""
    lightning = sys.modules.get("lightning_utilities.core.rank_zero")  # commands without this module have one process
    rank = getattr(getattr(lightning, "rank_zero_only", None), "rank", None)
    return record.levelno >= logging.ERROR or not rank


def set_up_logging() -> None:
    """Log lines of graphbench and Lightning to standard error, one line each, without repeated noise."""
    handler = _StandardError()
    handler.addFilter(_passes)
    handler.setFormatter(logging.Formatter("%(message)s"))
    # Of Lightning's lines, those about measured profiles and the end of a run remain.
    for name in ("graphbench", "pytorch_lightning.profilers", "pytorch_lightning.callbacks.early_stopping"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    for name in ("pytorch_lightning", "lightning.pytorch", "pytorch_lightning.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in _NOISE:
        warnings.filterwarnings("ignore", message=message)


def in_terminal() -> bool:
    """Return whether standard output is a terminal that can move its cursor.

    `!graphbench fit` in a notebook gets a terminal whose every cursor movement becomes a line of the cell.
    """
    return sys.stdout.isatty() and "JPY_PARENT_PID" not in os.environ


class _Console(Console):
    """Console that escapes control characters in cells and titles."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the escaped text, without markup."""
        return super().render_str(visible(text), **options)


def console(width: int = 120) -> Console:
    """Return standard output with the terminal's width, or a fixed width for files and pipes."""
    return _Console(width=None if sys.stdout.isatty() else width, highlight=False, markup=False, emoji=False)


def show_line(text: object) -> None:
    """Print a line of a command's result; names and texts in it may come from a file that somebody sent."""
    print(visible(str(text)), flush=True)


def show_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]], corner: str | None = None) -> None:
    """Print a table; the first column is text, the others are numbers. Wide cells are folded, never cut.

    `corner` names the first column of the transposed table, which is shown if this one is wider than the terminal; with
    None the table is never transposed.
    """
    place, table = console(), _table(title, header, rows)
    if corner is not None and Console(width=10_000, markup=False).measure(table).maximum > place.width:
        first, *others = zip(header, *rows, strict=True)
        table = _table(title, [corner, *first[1:]], others)
        names = max(len(corner), *(len(row[0]) for row in others))
        table.columns[0].no_wrap = names <= place.width // 2  # several models would fold the names of scores first
    place.print(table)


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def plain_table(title: str, header: Sequence[str], numeric: Sequence[str] = ()) -> Table:
    """Return an empty table without lines, whose first column is never folded; `numeric` columns are right-aligned."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="right" if name in numeric else "left", no_wrap=number == 0, overflow="fold")
    return table


# -- measured numbers --------------------------------------------------------------------------------------------------


def count_parameters(module: nn.Module) -> int:
    """Count trainable parameters, shared ones once."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def peak_memory_mb(device: torch.device) -> float | None:
    """Return the peak memory in MB (1e6 bytes): of tensors if training on a CUDA device, else of the whole process.

    None for a process on Windows, where Python does not count it.
    """
    if device.type == "cuda":
        import torch

        return torch.cuda.max_memory_allocated(device) / 1e6
    # On Linux `ru_maxrss` includes the process that started this one; sandboxes such as gVisor have no `VmHWM`.
    with contextlib.suppress(OSError, StopIteration):
        status = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) * 1024 / 1e6
    if sys.platform == "win32":
        return None
    import resource

    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / 1e6 if sys.platform == "darwin" else kilobytes * 1024 / 1e6


def highest_memory_mb(device: torch.device) -> float | None:
    """Return the largest peak of all training processes in MB; all of them must call this."""
    from graphbench.training.distributed import gather_objects

    return max(gather_objects(peak_memory_mb(device) or 0.0)) or None


def scores_of(split: str, logged: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of a split from everything that was logged.

    Examples:
        >>> scores_of("val", {"val/MAE": 0.25, "capacity/layer_0": 0.5})
        {'val/MAE': 0.25}
    """
    return {key: value for key, value in logged.items() if key.startswith(f"{split}/")}
