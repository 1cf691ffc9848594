"""Data sets that other packages make, without their prints, their random numbers, or pickles in their files."""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.serialization import safe_globals

from graphbench.benchmarks.graphs.foreign_downloads import checked_downloads
from graphbench.benchmarks.graphs.plain_pickles import plain_pickles
from graphbench.benchmarks.graphs.saved import PARTS_OF_DATA
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, MissingData


@dataclass(frozen=True)
class Named:
    """A source that is named.

    Args:
        name: as the user gave it.
        kind: of source.
        load: makes the graphs.
        key: JSON values that name the content; nothing where only the content itself can tell.
        splits: rows of each split where the set publishes them; none otherwise.
        hints: what is known of the task.
        local: whether it needs no network.
    """

    name: str
    kind: str
    load: Callable[[], Any]
    key: Callable[[], dict[str, Any]] = dict
    splits: Callable[[], dict[str, np.ndarray] | None] = lambda: None
    hints: dict[str, str] = field(default_factory=dict)
    local: bool = True


def raw_files(base: Path) -> list[Path]:
    """Published files below the folder of a data set: those in its folders `raw`, `raw_cleaned`, ..."""
    return sorted(
        file for folder in base.rglob("raw*") if folder.is_dir() for file in folder.rglob("*") if file.is_file()
    )


def raw_key(base: Path) -> dict[str, str]:
    """Checksums of the published files below the folder of a data set."""
    return {file.relative_to(base).as_posix(): file_sha256(file) for file in raw_files(base)}


def made(source: str, folder: Path, make: Callable[[], Any]) -> Any:
    """A data set of another package, made without its prints, its effect on random numbers, or pickles of its files.

    What it downloads comes through `graphbench.data.download.fetch`.

    Raises:
        MissingData: its files could not be fetched.
        CorruptData: one is not what was first downloaded.
        BadInput: it could not be made for another reason.
    """
    try:
        with _quietly(), checked_downloads(source, folder):
            return make()
    except GraphbenchError:
        raise
    except (OSError, ConnectionError) as error:
        raise MissingData(
            f"--data.source {source}: its files are not in {folder} and could not be fetched "
            f"({type(error).__name__}: {error}). Without a network put the published ones into a folder raw there, as "
            "the package does itself."
        ) from error
    except (Exception, SystemExit) as error:  # foreign code can fail in any way
        if type(error).__module__.partition(".")[0] in ("aiohttp", "requests", "urllib3", "fsspec"):
            raise MissingData(
                f"--data.source {source}: its files are not in {folder} and could not be fetched "
                f"({type(error).__name__}: {error})."
            ) from error
        raise BadInput(f"--data.source {source} could not be made: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Prints go to standard error, pickles that hold code are refused, and random numbers are the same every time."""
    forced = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before, states = os.environ.get(forced), (random.getstate(), np.random.get_state())
    os.environ[forced] = "1"
    try:
        with (
            torch.random.fork_rng(devices=[]),
            contextlib.redirect_stdout(sys.stderr),
            safe_globals(PARTS_OF_DATA),
            plain_pickles(),
        ):
            torch.manual_seed(0)
            random.seed(0)
            np.random.seed(0)
            yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        if before is None:
            del os.environ[forced]
        else:
            os.environ[forced] = before
