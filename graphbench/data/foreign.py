"""The one place where a file that somebody else wrote is opened: whatever is wrong with it, one line says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch

from graphbench.errors import CorruptData, GraphbenchError

FETCH_AGAIN = "Delete it to fetch it again."


@contextlib.contextmanager
def foreign(what: str | Path, advice: str = "", is_not: str = "cannot be read") -> Iterator[None]:
    """Turn what readers raise on damaged content into a `CorruptData`; errors of ours pass.

    A decoder raises whatever the altered bytes lead it to: a list of its errors is never complete.

    Args:
        what: the file, or a part of it.
        advice: what to do, as a whole sentence.
        is_not: what is wrong with it, in words.

    Raises:
        CorruptData: in one line, with the kind of the error and the first line of what it says.
    """
    try:
        yield
    except GraphbenchError:
        raise
    except RecursionError as error:
        raise CorruptData(f"{what} {is_not}: it is nested too deep.{advice and ' '}{advice}") from error
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        raise CorruptData(
            f"{what} {is_not} ({type(error).__name__}{said and ': '}{said}).{advice and ' '}{advice}"
        ) from error


def load_tensors(source: Path | IO[bytes], mmap: bool = False) -> Any:
    """Tensors and plain containers that torch saved; nothing in the file is run. Call it within `foreign`."""
    return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap or None)
