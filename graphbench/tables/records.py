"""Parse chemical text formats into rows of cells: lines of SMILES, and records of structures with properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

#: Column with the name of a molecule in SMILES and SDF files (RDKit's word for it).
NAME = "_Name"
#: The line that ends a record of an SDF file.
RECORD_END = "$$$$"
#: A SMILES, its CXSMILES extension, and the rest of the line.
EXTENDED = re.compile(r"(\S+)\s+(\|.*\|)(?:\s+(.*))?")
_PROPERTY = re.compile(r"^>.*?<(.+?)>")


def smiles_and_name(line: str) -> tuple[str, str]:
    """Split a line of a SMILES file into the SMILES, with its CXSMILES extension if any, and the rest.

    Examples:
        >>> smiles_and_name("C[C@H](N)O |&1:1| one or the other"), smiles_and_name("CCO")
        (('C[C@H](N)O |&1:1|', 'one or the other'), ('CCO', ''))
    """
    if extended := EXTENDED.fullmatch(line.strip()):
        return f"{extended[1]} {extended[2]}", " ".join((extended[3] or "").split())
    first, *rest = line.split()
    return first, " ".join(rest)


def smiles_rows(lines: Iterable[str], key: str) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, cells) of a SMILES file, starting with the header: that of the file, or `key` and `NAME`.

    A header has `key` as its first word; blank lines are skipped.

    Examples:
        >>> list(smiles_rows(["CCO the spirit", "", "CC"], "smiles"))
        [(1, ['smiles', '_Name']), (1, ['CCO', 'the spirit']), (3, ['CC', ''])]
        >>> list(smiles_rows(["SMILES y", "CCO 1.5"], "smiles"))
        [(1, ['SMILES', 'y']), (2, ['CCO', '1.5'])]
    """
    has_header: bool | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        first, rest = smiles_and_name(line)
        if has_header is None:
            has_header = first.casefold() == key.casefold()
            if not has_header:
                yield number, [key, NAME]
        yield number, [first, *rest.split()] if has_header else [first, rest]


def records(lines: Iterable[str], all_end: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yield (first line, lines) of each record of an SDF or MOL file, without the line that ends it.

    Raises:
        ValueError: with `all_end`, the last record has no such line; MOL files never have one.
    """
    first = 1
    record: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(RECORD_END):
            yield first, record or [""]
            first, record = number + 1, []
        else:
            record.append(line.rstrip("\r\n"))
    if any(map(str.strip, record)):
        if all_end:
            raise ValueError(f"it ends inside the record of line {first:,}")
        yield first, record


def property_names(lines: Iterable[str]) -> list[str]:
    """List the names of the properties in an SDF file, in file order.

    Examples:
        >>> property_names(["mol", "M  END", ">  <logS>  (1)", "-3.3", "", "$$$$"])
        ['logS']
    """
    return list(dict.fromkeys(match[1] for line in lines if (match := _PROPERTY.match(line))))


def properties(lines: Sequence[str]) -> dict[str, str]:
    """Parse the properties of a record as text, which may have several lines."""
    values: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := _PROPERTY.match(line):
            current = values.setdefault(match[1], [])
        elif current is not None and line.strip():
            current.append(line)
        else:  # a blank line ends a value; text after it without a header is not part of any value
            current = None
    return {name: "\n".join(text).strip() for name, text in values.items()}
