"""Text formats of chemistry as rows of cells: lines of SMILES, and records of structures with properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: Column with a molecule's own name in SMILES and SDF files (RDKit's word for it).
NAME = "_Name"
#: The line that ends a record of an SDF file.
RECORD_END = "$$$$"
#: A SMILES, its CXSMILES extension, and what stands behind.
EXTENDED = re.compile(r"(\S+)\s+(\|.*\|)(?:\s+(.*))?")
_PROPERTY = re.compile(r"^>.*?<(.+?)>")


def smiles_and_name(line: str) -> tuple[str, str]:
    """A line of a SMILES file: the SMILES with its CXSMILES extension, if any, and what stands behind.

    Args:
        line: text with blanks or tabs between its parts; not blank.

    Examples:
        >>> smiles_and_name("C[C@H](N)O |&1:1| one or the other"), smiles_and_name("CCO")
        (('C[C@H](N)O |&1:1|', 'one or the other'), ('CCO', ''))
    """
    if extended := EXTENDED.fullmatch(line.strip()):
        return f"{extended[1]} {extended[2]}", " ".join((extended[3] or "").split())
    first, *rest = line.split()
    return first, " ".join(rest)


def smiles_rows(lines: Iterable[str], key: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of a SMILES file, its header first: the one that it has, or `key` and `NAME`.

    Args:
        lines: of the file; blank ones are left out.
        key: first word of a header.

    Examples:
        >>> list(smiles_rows(["CCO the spirit", "", "CC"], "smiles"))
        [(1, ['smiles', '_Name']), (1, ['CCO', 'the spirit']), (3, ['CC', ''])]
        >>> list(smiles_rows(["SMILES y", "CCO 1.5"], "smiles"))
        [(1, ['SMILES', 'y']), (2, ['CCO', '1.5'])]
    """
    headed: bool | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        first, rest = smiles_and_name(line)
        if headed is None:
            headed = first.casefold() == key.casefold()
            if not headed:
                yield number, [key, NAME]
        yield number, [first, *rest.split()] if headed else [first, rest]


def records(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """(first line, lines) of each record of an SDF file, or of the one of a MOL file, without the line that ends it."""
    first = 1
    found: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(RECORD_END):
            yield first, found or [""]
            first, found = number + 1, []
        else:
            found.append(line.rstrip("\r\n"))
    if any(map(str.strip, found)):
        yield first, found


def property_names(lines: Iterable[str]) -> list[str]:
    """Names of the properties in an SDF file, in their order.

    Examples:
        >>> property_names(["mol", "M  END", ">  <logS>  (1)", "-3.3", "", "$$$$"])
        ['logS']
    """
    return list(dict.fromkeys(match[1] for line in lines if (match := _PROPERTY.match(line))))


def properties(lines: Sequence[str]) -> dict[str, str]:
    """Properties of a record as text; those of several lines keep them."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := _PROPERTY.match(line):
            current = found.setdefault(match[1], [])
        elif current is not None and line.strip():
            current.append(line)
        else:
            current = None
    return {name: "\n".join(text).strip() for name, text in found.items()}
