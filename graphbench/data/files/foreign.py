"""Read untrusted files, with a one-line error for whatever is wrong with them."""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import yaml

from graphbench.errors import CorruptData, GraphbenchError

FETCH_AGAIN = "Delete it to fetch it again."
#: Maximum number of values in a configuration; shipped ones have a few hundred.
MAX_VALUES = 100_000
_MAX_DEPTH = 100
#: Use libyaml if PyYAML was built with it: it reads a hundred files in hundredths of a second.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@contextlib.contextmanager
def foreign(what: str | Path, advice: str = "", is_not: str = "cannot be read") -> Iterator[None]:
    """Turn errors that readers raise on damaged content into a `CorruptData`; graphbench's errors pass unchanged.

    Altered bytes can make decoders raise anything, so no list of their errors is complete. The message consists of
    `what`, `is_not` and the sentence `advice`.

    Raises:
        CorruptData: one line with the type of the error and the first line of its message.
    """
    try:
        yield
    except GraphbenchError:
        raise
    except RecursionError as error:
        raise CorruptData(f"{what} {is_not}: it is nested too deep.{advice and ' '}{advice}") from error
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0]
        raise CorruptData(
            f"{what} {is_not} ({type(error).__name__}{message and ': '}{message}).{advice and ' '}{advice}"
        ) from error


def load_tensors(source: Path | IO[bytes], mmap: bool = False) -> Any:
    """Load tensors and plain containers saved by torch, without running code. Call it within `foreign`."""
    import torch  # commands that read only YAML and JSON start without it

    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as archive:
            check_stored(archive)
    if not isinstance(source, Path):
        source.seek(0)
    return torch.load(source, map_location="cpu", weights_only=True, mmap=mmap or None)


def check_stored(archive: zipfile.ZipFile) -> None:
    """Refuse an archive whose members are larger than itself: torch, which never compresses, would allocate them."""
    size = archive.fp.seek(0, io.SEEK_END) if archive.fp is not None else 0
    if (held := sum(info.file_size for info in archive.infolist())) > size:
        raise ValueError(f"its members have {held:,} bytes in a file of {size:,}, unlike torch's files")


def load_tensor_bytes(content: bytes) -> Any:
    """Load a tensor's storage as `torch.storage._load_from_bytes` does, but without running code."""
    return load_tensors(io.BytesIO(content))


class _RestrictedUnpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], allowed: Mapping[tuple[str, str], Any], **options: Any) -> None:
        super().__init__(file, **options)
        self._allowed = allowed

    def find_class(self, module: str, name: str) -> Any:
        # An allowlist: any name missing from a list of refused names could run code.
        if (module, name) not in self._allowed:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which might run code of the file")
        stand_in = self._allowed[module, name]
        return super().find_class(module, name) if stand_in is None else stand_in


def load_pickle(file: IO[bytes], allowed: Mapping[tuple[str, str], Any], **options: Any) -> Any:
    """Load a pickle that may use only the allowed globals.

    `allowed` maps module and name of a global to its replacement; None means the global itself.

    Raises:
        pickle.UnpicklingError: the file names another global.

    Examples:
        >>> load_pickle(io.BytesIO(pickle.dumps({"nodes": [1, 2]})), {})
        {'nodes': [1, 2]}
    """
    return _RestrictedUnpickler(file, allowed, **options).load()


def load_json(path: Path) -> Any:
    """Load a JSON file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not JSON or not UTF-8, or is nested too deep for recursive functions.
    """
    too_deep = f"it is nested more than {_MAX_DEPTH} deep"
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(too_deep) from error
    level, depth = [value], 0
    while level := [item for parent in level for item in _containers(parent)]:
        depth += 1
        if depth > _MAX_DEPTH:
            raise ValueError(too_deep)
    return value


def _containers(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [item for item in items if isinstance(item, dict | list)]


def load_yaml(text: str) -> Any:
    """Load a YAML text of plain values.

    Aliases may repeat values within limits: ten lines can represent a billion values, which take no memory until they
    are iterated over.

    Raises:
        yaml.YAMLError: it is not YAML, is nested too deep, represents more than `MAX_VALUES` values, or repeats a key
            within a mapping, where YAML would silently drop the first. The message names a line that is indented with a
            tab.

    Examples:
        >>> load_yaml("{a: &x [1, 2], b: *x}")
        {'a': [1, 2], 'b': [1, 2]}
    """
    try:
        _check_events(text)
    except yaml.MarkedYAMLError as error:
        if (line := _line_with_tab(text, error)) is None:
            raise
        raise yaml.YAMLError(f"line {line} is indented with a tab, but YAML accepts only spaces") from error
    try:
        content = yaml.load(text, _LOADER)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # such as a 13th month
        raise yaml.YAMLError(f"a value in it cannot be read: {error}") from error
    if _count_values(content, {}) > MAX_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {MAX_VALUES:,} values")
    return content


def _line_with_tab(text: str, error: yaml.MarkedYAMLError) -> int | None:
    """Return the number of the line on which parsing stopped, if its indentation has a tab."""
    if error.problem_mark is None:
        return None
    number: int = error.problem_mark.line
    line = dict(enumerate(text.splitlines())).get(number, "")  # none if the text ends too early
    return number + 1 if "\t" in line[: len(line) - len(line.lstrip(" \t"))] else None


class _Level:
    """Mapping or list around the current event, with the lines of the keys seen so far."""

    def __init__(self, is_mapping: bool) -> None:
        self.is_mapping = self.at_key = is_mapping
        self.lines: dict[str, int] = {}

    def add(self, event: yaml.NodeEvent) -> None:
        """Add a key or value, and refuse a repeated key."""
        if self.at_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
            line = event.start_mark.line + 1 if event.start_mark is not None else 0
            if event.value in self.lines:
                raise yaml.YAMLError(
                    f"{event.value} occurs twice, in line {self.lines[event.value]} and in line {line}"
                )
            self.lines[event.value] = line
        self.at_key = self.is_mapping and not self.at_key


def _check_events(text: str) -> None:
    """Check depth and keys before values are built: libyaml's parser recurses without limit and overflows the stack."""
    levels: list[_Level] = []
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
        elif isinstance(event, yaml.NodeEvent) and levels:
            levels[-1].add(event)
        if isinstance(event, yaml.CollectionStartEvent):
            levels.append(_Level(isinstance(event, yaml.MappingStartEvent)))
            if len(levels) > _MAX_DEPTH:
                raise yaml.YAMLError(f"it is nested more than {_MAX_DEPTH} deep")


def _count_values(value: Any, counts: dict[int, float]) -> float:
    """Count the values that a value expands to; infinity if a container contains itself."""
    if not isinstance(value, (dict, list)):
        return 1
    if id(value) not in counts:
        counts[id(value)] = float("inf")
        items = [part for pair in value.items() for part in pair] if isinstance(value, dict) else value
        counts[id(value)] = 1 + sum(_count_values(item, counts) for item in items)
    return counts[id(value)]
