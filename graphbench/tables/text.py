"""Open users' text files, plain or packed, in UTF-8 or UTF-16, with one message for other encodings."""

from __future__ import annotations

import contextlib
import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from graphbench.data.archives import open_gzip
from graphbench.errors import BadInput

PACKED = ".gz"
_MARKS = {b"\xff\xfe\0\0": "utf-32", b"\0\0\xfe\xff": "utf-32", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_HEAD = 64  # bytes from which an encoding without a mark is detected


def suffix_of(path: Path) -> str:
    """Return the suffix of a file in lower case, with the one before `.gz`.

    Examples:
        >>> suffix_of(Path("a.CSV")), suffix_of(Path("b.tsv.gz")), suffix_of(Path("c"))
        ('.csv', '.tsv.gz', '')
    """
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() + suffix if suffix == PACKED else suffix


def encoding_of(head: bytes) -> str:
    """Detect the encoding of a text: UTF-16 and UTF-32 by byte order mark, UTF-16 also by zero bytes, else UTF-8.

    Examples:
        >>> encoding_of("smiles".encode("utf-16")), encoding_of("smiles".encode("utf-16-be")), encoding_of(b"smiles")
        ('utf-16', 'utf-16-be', 'utf-8-sig')
    """
    marked = next((name for mark, name in _MARKS.items() if head.startswith(mark)), None)
    if marked is not None:
        return marked
    even, odd = head[:_HEAD:2], head[1:_HEAD:2]
    # Every second byte of ASCII in UTF-16 is 0, which does not occur in UTF-8 text.
    if odd and not any(odd) and all(even):
        return "utf-16-le"
    return "utf-16-be" if odd and not any(even) and all(odd) else "utf-8-sig"  # spreadsheets write a mark first


@contextlib.contextmanager
def open_text(path: Path, newline: str | None = "", errors: str = "strict") -> Iterator[IO[str]]:
    """Open a text file as `open` does; a packed one (`.gz`) within the limits of archives."""
    try:
        with open_gzip(path) if path.suffix.lower() == PACKED else path.open("rb") as raw:
            encoding = encoding_of(raw.peek(_HEAD)[:_HEAD])
            yield io.TextIOWrapper(raw, encoding=encoding, newline=newline, errors=errors)
    except UnicodeDecodeError as error:
        raise BadInput(undecodable(path, error)) from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BadInput(f"{path}: not a whole .gz file ({error}). Pack it again.") from error


def undecodable(path: Path, error: UnicodeDecodeError) -> str:
    r"""Describe a text in another encoding, and how to convert it.

    Examples:
        >>> undecodable(Path("a.csv"), UnicodeDecodeError("utf-8", b"caf\xe9", 3, 4, "invalid")).partition(";")[0]
        'a.csv: not UTF-8 text (byte 0xe9). Save it as UTF-8'
    """
    if not error.encoding.lower().startswith("utf-8"):
        return f"{path}: not {error.encoding.upper()} text to its end ({error.reason}). Save it as UTF-8."
    packed = path.suffix.lower() == PACKED
    plain = Path(path.stem if packed else path.name)
    convert = "iconv -f WINDOWS-1252 -t UTF-8"
    command = f"gunzip -c {path.name} | {convert}" if packed else f"{convert} {path.name}"
    return (
        f"{path}: not UTF-8 text (byte 0x{error.object[error.start]:02x}). Save it as UTF-8; from Windows-1252 or "
        f"Latin-1: {command} > {plain.stem}-utf8{plain.suffix}"
    )
