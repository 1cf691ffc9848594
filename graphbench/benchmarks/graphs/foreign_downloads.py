"""Downloads of PyG's and OGB's data sets by graphbench's own `fetch`, in place of theirs, which believe any server.

PyG's `download_url` takes no look at certificates, and both packages take plain http. While `checked_downloads` is
open, their functions fetch over verified https, and `SHA256SUMS` in the data set's folder has the checksum of each
first download. A data set that opens a connection in another way is refused it.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import torch_geometric.data.download as pyg_download
from torch_geometric.io import fs

from graphbench.data.download import fetch

#: The thread in which fsspec talks to servers.
_OF_FSSPEC = "fsspecIO"


@contextlib.contextmanager
def checked_downloads(what: str, base: Path) -> Iterator[None]:
    """Within the block, data sets of PyG and OGB download through `fetch`, and open no other connections.

    Args:
        what: the data set, for messages.
        base: its folder, which keeps the checksums of what lies below; another folder keeps its own.
    """
    fetching = threading.local()

    def download(url: str, folder: str, log: bool = True, filename: str | None = None) -> str:
        """What PyG and OGB call `download_url`."""
        place, name = Path(folder), filename or _file_of(url)
        place.mkdir(parents=True, exist_ok=True)
        keeper = base if place.is_relative_to(base) else place
        fetching.on = True
        try:
            return str(fetch(url, keeper, (place / name).relative_to(keeper).as_posix(), what=what))
        finally:
            fetching.on = False

    copy = fs.cp

    def cp(path1: str, path2: str, extract: bool = False, *args: Any, **options: Any) -> None:
        """What PyG calls `fs.cp`, whose source may be an address."""
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


def _file_of(url: str) -> str:
    """The name of a downloaded file, as PyG makes it of an address."""
    last = url.rpartition("/")[2]
    return last if last.startswith("?") else last.partition("?")[0]


@contextlib.contextmanager
def _replaced(package: str, function: Callable[..., Any], by: Callable[..., Any]) -> Iterator[None]:
    """A function is another one, wherever a module of the package has imported it by name."""
    places = [
        (module, name)
        for title, module in list(sys.modules.items())
        if module is not None and PurePosixPath(title.replace(".", "/")).parts[:1] == (package,)
        for name, value in list(vars(module).items())
        if value is function
    ]
    for module, name in places:
        setattr(module, name, by)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, function)


@contextlib.contextmanager
def _no_connections(what: str, fetching: Callable[[], bool]) -> Iterator[None]:
    """Let this thread, and that of fsspec, connect to nobody but to fetch; other threads do as they like."""
    here, before = threading.get_ident(), socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        thread = threading.current_thread()
        ours = thread.ident == here or thread.name == _OF_FSSPEC
        if ours and not fetching() and self.family in (socket.AF_INET, socket.AF_INET6):
            raise OSError(
                f"{what} connects to {address[0]} by itself, where neither the server's certificate nor a checksum is "
                "looked at"
            )
        before(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        connect(self, address)
        return 0

    saved = {name: vars(socket.socket).get(name) for name in ("connect", "connect_ex")}
    socket.socket.connect, socket.socket.connect_ex = connect, connect_ex  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                delattr(socket.socket, name)
            else:
                setattr(socket.socket, name, value)
