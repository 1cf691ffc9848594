"""Compute an encoding for many graphs on all cores, and cache it in the store.

The table is cut into chunks that depend only on the graphs, and each chunk is computed with one thread. The result
therefore does not depend on the number of cores.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from graphbench.contracts import Encoded, Encoding, GraphTable
from graphbench.contracts.table import PAIR, pointer
from graphbench.data.mapped import trim_mapped
from graphbench.data.parts.kept import PART_ROWS, KeptParts
from graphbench.data.parts.shares import Share
from graphbench.data.progress import progress
from graphbench.data.store import Store
from graphbench.data.tables import expected_rows, read_encoded, widen, write_encoded
from graphbench.data.worker_pool import available_cores, ordered_map
from graphbench.errors import BadInput, GraphbenchError

#: Maximum work (sum of nodes squared plus edges) of a chunk with several graphs, and maximum number of graphs.
CHUNK_WORK, CHUNK_GRAPHS = 1 << 22, 512
#: Maximum number of pairs of nodes with encodings in memory, unless one graph has more: 1.4 GB of 21 steps of RRWP.
MOST_PAIRS = 1 << 24
#: Seconds of remaining work above which processes are started.
POOL_FROM = 3.0

Span = tuple[int, int]


def encode(
    table: GraphTable, encoding: Encoding, store: Store, key: str, describe: str = "data", workers: int | None = None
) -> Encoded:
    """Load an encoding of all graphs of `table` from the store, or compute and store it.

    Args:
        table: the graphs, without other encodings.
        encoding: the encoding to compute.
        store: store of the result.
        key: identifies the content of `table` (`tables.content_key`).
        describe: name of the graphs ("ZINC train"), for messages.
        workers: processes at most; all cores by default.

    Returns:
        The encoding's columns and pointers, memory-mapped when large; read-only.

    Raises:
        GraphbenchError: the encoding fails; the message names the graph.
    """
    identity = _key(encoding, key)
    parts = KeptParts(store, identity)
    entry = store.open_or_build(
        identity,
        lambda writer: write_encoded(writer, _joined(table, encoding, parts, describe, workers)),
        f"{encoding!r} of {describe}",
    )
    parts.remove()
    return read_encoded(entry)


def encode_share(
    table: GraphTable,
    encoding: Encoding,
    store: Store,
    key: str,
    share: Share,
    describe: str = "data",
    workers: int | None = None,
) -> int:
    """Compute a share of the parts from which `encode` later writes the encoding, bit for bit as without parts.

    Arguments are those of `encode`.

    Returns:
        Number of parts, of all shares, that are still missing.
    """
    identity = _key(encoding, key)
    if store.folder(identity).is_dir():
        return 0
    spans = {(part[0][0], part[-1][1]): part for part in part_spans(table)}
    missing = KeptParts(store, identity).fill(
        list(spans),
        share,
        lambda span, writer: write_encoded(writer, compute_chunks(table, encoding, describe, workers, spans[span])),
        f"{encoding!r} of {describe}",
    )
    return 0 if store.folder(identity).is_dir() else missing  # another process may have joined and removed them


def _key(encoding: Encoding, content: str) -> dict[str, Any]:
    identity = {"name": encoding.name, "version": encoding.version, "parameters": encoding.parameters()}
    return {"kind": "encoding", "content": content, **identity}


def _joined(
    table: GraphTable, encoding: Encoding, kept: KeptParts, describe: str, workers: int | None
) -> Iterator[Encoded]:
    """Read the stored parts, and compute the others."""
    if not kept.exist():
        yield from compute_chunks(table, encoding, describe, workers)
        return
    for spans in part_spans(table):
        entry = kept.open((spans[0][0], spans[-1][1]))
        if entry is None:
            yield from compute_chunks(table, encoding, describe, workers, spans)
        else:
            yield read_encoded(entry)


def with_encoding(table: GraphTable, encoding: Encoding, encoded: Encoded) -> GraphTable:
    """Return the table with the encoding's columns added; nothing is copied."""
    taken = sorted(set(encoding.layout) & set(table.layout))
    if taken:
        raise BadInput(f"{encoding!r} gives the fields {', '.join(taken)}, which the graphs already have.")
    return table.with_columns(encoded.columns, encoding.layout, encoded.ptr)


def encoded_here(
    table: GraphTable, encodings: Sequence[Encoding], describe: str = "input", workers: int | None = None
) -> tuple[GraphTable, list[int], dict[int, str]]:
    """Encode graphs that are used once, in memory, without the store.

    Args:
        table: the graphs, without encodings.
        encodings: the encodings to compute; the results equal those of `encode`.
        describe: name of the graphs, for messages.
        workers: processes at most; all cores by default.

    Returns:
        `(table, valid, problems)`: the graphs that could be encoded, their numbers in the given table, and the reason
        for each of the others.
    """
    valid, problems = list(range(len(table))), {}
    try:
        computed = [encode_in_memory(table, e, describe, workers) for e in encodings if valid]
    except GraphbenchError:  # some graphs fail: encode each one separately, to keep the others
        for graph in valid:
            try:
                for encoding in encodings:
                    list(compute_chunks(table.slice(graph, graph + 1), encoding, describe, 1))
            except GraphbenchError as error:
                problems[graph] = str(error.__cause__ or error)
        if not problems:
            raise
        valid = [graph for graph in valid if graph not in problems]
        table = table.select(torch.tensor(valid, dtype=torch.int64))
        table.graph_ids = None
        computed = [encode_in_memory(table, e, describe, workers) for e in encodings if valid]
    for encoding, encoded in zip(encodings, computed, strict=False):
        table = with_encoding(table, encoding, encoded)
    return table, valid, problems


def encode_in_memory(
    table: GraphTable, encoding: Encoding, describe: str = "input", workers: int | None = None
) -> Encoded:
    """Encode all graphs of a table, one or more; see `encoded_here` for graphs that may fail."""
    parts = list(compute_chunks(table, encoding, describe, workers))
    columns = {name: torch.cat([part.columns[name] for part in parts]) for name in parts[0].columns}
    ptr = {axis: pointer(torch.cat([part.ptr[axis].diff() for part in parts])) for axis in parts[0].ptr}
    return Encoded(columns, ptr)


def spans_in_memory(table: GraphTable, encodings: Sequence[Encoding]) -> list[Span]:
    """Cut a table into spans whose encodings of pairs of nodes fit into memory; others need one span."""
    of_pairs = any(column.axis == PAIR for encoding in encodings for column in encoding.layout.values())
    if not of_pairs or int((table.num_nodes**2).sum()) <= MOST_PAIRS:
        return [(0, len(table))]
    return chunk_spans(table, MOST_PAIRS)


def chunk_spans(table: GraphTable, most: int | None = None) -> list[Span]:
    """Cut a table into spans `(start, stop)` of about equal work, which grows with the square of the nodes."""
    work, most = (table.num_nodes**2 + table.num_edges).cumsum(0), most or CHUNK_WORK
    spans, start = [], 0
    while start < len(table):
        before = int(work[start - 1]) if start else 0
        stop = int(torch.searchsorted(work, before + most, right=True))
        stop = min(max(stop, start + 1), start + CHUNK_GRAPHS)
        spans.append((start, stop))
        start = stop
    return spans


def part_spans(table: GraphTable) -> list[list[Span]]:
    """Group the spans of a table into parts of about `PART_ROWS` graphs, fewer if graphs are large."""
    spans, size = chunk_spans(table), PART_ROWS // CHUNK_GRAPHS
    return [spans[start : start + size] for start in range(0, len(spans), size)]


def compute_chunks(
    table: GraphTable,
    encoding: Encoding,
    describe: str = "data",
    workers: int | None = None,
    spans: list[Span] | None = None,
) -> Iterator[Encoded]:
    """Encode chunk after chunk, in the order of the graphs; with `spans`, only those chunks.

    The first chunk is computed and timed in this process. If the rest would take longer than `POOL_FROM` seconds, it is
    distributed over processes.
    """
    spans = chunk_spans(table) if spans is None else spans
    workers = min(workers or available_cores(), len(spans) - 1)
    with progress(f"{encoding.name} of {describe}", spans[-1][1] - spans[0][0], "graphs") as advance:
        started = time.monotonic()
        with _one_thread():
            first = _compute(table, encoding, describe, spans[0])
        left = (time.monotonic() - started) * (len(spans) - 1)
        yield first
        # Report the first chunk with the second: a bar has a thread, and must not start before the processes do.
        reported = spans[0][0]
        is_worth_it = workers > 1 and left > POOL_FROM
        # In a daemon, such as a worker of `multiprocessing.Pool`, nothing would set the job: it has no children.
        run = _in_processes if is_worth_it and not multiprocessing.current_process().daemon else _in_process
        with closing(run(table, encoding, describe, spans[1:], workers)) as rest:
            for (_, stop), encoded in zip(spans[1:], rest, strict=True):
                yield encoded
                advance(stop - reported)
                reported = stop


def _in_process(
    table: GraphTable, encoding: Encoding, describe: str, spans: list[Span], _: int
) -> Generator[Encoded, None, None]:
    for span in spans:
        with _one_thread():
            encoded = _compute(table, encoding, describe, span)
        yield encoded


def _in_processes(
    table: GraphTable, encoding: Encoding, describe: str, spans: list[Span], workers: int
) -> Generator[Encoded, None, None]:
    """Yield the results of `_in_process`, computed on several cores at most a few chunks ahead of the reader."""
    start = partial(_start_worker, table, encoding, describe)
    with closing(ordered_map(_work, spans, workers, f"{encoding!r} of {describe}", start)) as results:
        for columns, ptr in results:
            yield Encoded(_as_tensors(columns), _as_tensors(ptr))


_job: tuple[GraphTable, Encoding, str] | None = None


def _start_worker(table: GraphTable, encoding: Encoding, describe: str) -> None:
    """Set the job of a worker process, and limit torch to one thread there."""
    global _job
    _job = (table, encoding, describe)
    torch.set_num_threads(1)


def _work(span: Span) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Encode the graphs `span`: columns and pointers as arrays, since each tensor sent would take a file descriptor."""
    assert _job is not None
    encoded = _compute(*_job, span)
    columns = {name: values.numpy() for name, values in encoded.columns.items()}
    return columns, {axis: values.numpy() for axis, values in encoded.ptr.items()}


def _as_tensors(arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(values) for name, values in arrays.items()}


def _compute(table: GraphTable, encoding: Encoding, describe: str, span: Span) -> Encoded:
    """Encode the graphs `span` and check the result.

    Raises:
        GraphbenchError: the encoding fails; the error has no attributes, so that it can be pickled.
    """
    try:
        with torch.no_grad():
            return _checked(table, encoding, span)
    except Exception as error:
        where = _locate(table, encoding, span)
        raise GraphbenchError(
            f"{encoding!r} cannot be computed for {where} of {describe}: {type(error).__name__}: {error}"
        ) from error


def _checked(table: GraphTable, encoding: Encoding, span: Span) -> Encoded:
    """Encode some graphs; raise `ValueError` if the result does not match them."""
    trim_mapped()
    # Tables are stored in narrow dtypes, in which the sums of an encoding would overflow.
    part = widen(table.slice(*span))
    encoded = encoding.compute(part)
    if set(encoded.columns) != set(encoding.layout):
        raise ValueError(f"compute gave fields {sorted(encoded.columns)}, but its layout has {sorted(encoding.layout)}")
    for axis, ptr in encoded.ptr.items():
        if len(ptr) != len(part) + 1 or int(ptr[0]) != 0:
            raise ValueError(f"the pointers of axis {axis!r} must be {len(part) + 1} numbers from 0, got {len(ptr)}")
    for name, column in encoding.layout.items():
        rows = expected_rows(part, column, encoded.ptr)
        if len(encoded.columns[name]) != rows:
            raise ValueError(
                f"field {name!r} has {len(encoded.columns[name])} rows, but its axis {column.axis!r} has {rows}"
            )
    pointers = {axis: values.to(torch.int64) for axis, values in encoded.ptr.items()}
    return Encoded({name: values.cpu().contiguous() for name, values in encoded.columns.items()}, pointers)


def _locate(table: GraphTable, encoding: Encoding, span: Span) -> str:
    """Describe the first graph of `span` that fails by itself; the whole span if none does."""
    for graph in range(*span):
        try:
            with torch.no_grad():
                _checked(table, encoding, (graph, graph + 1))
        except Exception:  # the caller reports the reason
            nodes, edges = int(table.num_nodes[graph]), int(table.num_edges[graph])
            return f"graph {graph} ({nodes} nodes, {edges} directed edges)"
    return f"graphs {span[0]} to {span[1] - 1} together"


@contextmanager
def _one_thread() -> Iterator[None]:
    """Limit torch and the BLAS of NumPy and SciPy to one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)
