"""Build data sets of PyG and OGB in isolation: verified downloads, no pickles with code, no prints.

PyG's `download_url` does not verify certificates, and both packages accept plain http. Within `checked_downloads`,
their functions fetch over verified https, and `SHA256SUMS` in the data set's folder records the checksum of each first
download. Any other connection of a data set is refused.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import numpy as np
import torch
import torch_geometric.data.download as pyg_download
from torch.serialization import safe_globals
from torch_geometric.io import fs

from graphbench.benchmarks.graphs.readers.saved import PARTS_OF_DATA, plain_pickles
from graphbench.data.download import fetch
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput, GraphbenchError, MissingData

_FSSPEC_THREAD = "fsspecIO"  # connects to servers for fsspec
_NETWORK = ("aiohttp", "requests", "urllib3", "fsspec")  # packages with errors that are not an OSError


@dataclass(frozen=True)
class Named:
    """A source given by name.

    Args:
        name: name given by the user.
        kind: kind of source.
        load: builds the graphs.
        key: JSON values that identify the content; empty if only the content itself can.
        splits: rows of each published split, or None.
        hints: see `RawGraphs`.
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
    """Return the published files of a data set, in its folders `raw`, `raw_cleaned`, ..."""
    return sorted(
        file for folder in base.rglob("raw*") if folder.is_dir() for file in folder.rglob("*") if file.is_file()
    )


def raw_key(base: Path) -> dict[str, str]:
    """Return the checksums of the published files of a data set."""
    return {file.relative_to(base).as_posix(): file_sha256(file) for file in raw_files(base)}


def made(source: str, folder: Path, make: Callable[[], Any]) -> Any:
    """Build a data set of another package without its prints, effects on random numbers, or pickles with code.

    Raises:
        MissingData: its files could not be fetched.
        CorruptData: a file differs from the first download.
        BadInput: it could not be built for any other reason.
    """
    try:
        with _isolated(), checked_downloads(source, folder):
            return make()
    except GraphbenchError:
        raise
    except (Exception, SystemExit) as error:  # code of other packages may raise anything
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _NETWORK:
            raise MissingData(
                f"--data.source {source}: its files are not in {folder} and could not be fetched ({reason}). Without a "
                "network, put the published files into its folder raw."
            ) from error
        raise BadInput(f"--data.source {source} could not be made: {reason}") from error


@contextlib.contextmanager
def _isolated() -> Iterator[None]:
    """Redirect prints to standard error, refuse pickles with code, and seed the random numbers."""
    states = random.getstate(), np.random.get_state()  # for torch there is `fork_rng`
    try:
        with (
            mock.patch.dict(os.environ, TORCH_FORCE_WEIGHTS_ONLY_LOAD="1"),
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


@contextlib.contextmanager
def checked_downloads(what: str, base: Path) -> Iterator[None]:
    """Make data sets of PyG and OGB download through `fetch` within the block, and refuse other connections.

    The folder `base` of the data set has the checksums of downloads below it; other folders have their own.
    """
    fetching = threading.local()

    def download(url: str, folder: str, log: bool = True, filename: str | None = None) -> str:
        """Replace `download_url` of PyG and OGB."""
        # The same file name as PyG derives from an address.
        last = url.rpartition("/")[2]
        place, name = Path(folder), filename or (last if last.startswith("?") else last.partition("?")[0])
        place.mkdir(parents=True, exist_ok=True)
        top = base if place.is_relative_to(base) else place
        fetching.on = True
        try:
            return str(fetch(url, top, (place / name).relative_to(top).as_posix(), what=what))
        finally:
            fetching.on = False

    copy = fs.cp

    def cp(path1: str, path2: str, extract: bool = False, *args: Any, **options: Any) -> None:
        """Replace PyG's `fs.cp`, whose source may be an address."""
        if urlsplit(path1).scheme not in ("http", "https"):
            copy(path1, path2, extract, *args, **options)
        elif extract:
            archive = download(path1, str(base))
            copy(archive, path2, extract, *args, **options)
            Path(archive).unlink()
        elif Path(path2).is_dir():
            download(path1, path2)
        else:
            download(path1, str(Path(path2).parent), filename=Path(path2).name)

    with contextlib.ExitStack() as stack:
        stack.enter_context(_replaced("torch_geometric", pyg_download.download_url, download))
        if (ogb := sys.modules.get("ogb.utils.url")) is not None:
            stack.enter_context(_replaced("ogb", ogb.download_url, download))
            stack.enter_context(_replaced("ogb", ogb.decide_download, lambda url: True))  # asks at the terminal
        stack.enter_context(_replaced("torch_geometric", copy, cp))
        stack.enter_context(_no_connections(what, lambda: getattr(fetching, "on", False)))
        yield


@contextlib.contextmanager
def _replaced(package: str, function: Callable[..., Any], by: Callable[..., Any]) -> Iterator[None]:
    """Replace a function in all modules of the package that imported it by name."""
    with contextlib.ExitStack() as stack:
        for title, module in list(sys.modules.items()):
            if module is None or title.partition(".")[0] != package:
                continue
            for name, value in list(vars(module).items()):
                if value is function:
                    stack.enter_context(mock.patch.object(module, name, by))
        yield


@contextlib.contextmanager
def _no_connections(what: str, fetching: Callable[[], bool]) -> Iterator[None]:
    """Refuse connections of this thread and that of fsspec, except while fetching; other threads are not affected."""
    # Patch `connect`, below every network library that a data set may use.
    here, before = threading.get_ident(), socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        thread = threading.current_thread()
        ours = thread.ident == here or thread.name == _FSSPEC_THREAD
        if ours and not fetching() and self.family in (socket.AF_INET, socket.AF_INET6):
            raise OSError(
                f"{what} connects to {address[0]} by itself, without a check of the server's certificate or of a "
                "checksum"
            )
        before(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        connect(self, address)
        return 0

    with mock.patch.multiple(socket.socket, connect=connect, connect_ex=connect_ex):
        yield
