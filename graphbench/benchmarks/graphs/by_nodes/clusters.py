"""Cut one graph into clusters of about equal size with few edges between them, by METIS.

Legend: N nodes, E directed edges.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from graphbench.benchmarks.graphs.by_nodes.incoming import IncomingEdges
from graphbench.data.entry import EntryWriter
from graphbench.errors import BadInput


def check_metis() -> None:
    """Refuse clusters if METIS is missing."""
    try:
        import pymetis  # noqa: F401 - only checks that it exists
    except ImportError as error:
        raise BadInput(
            "data.sampler clusters: METIS is missing here (pip install "
            "'graphbench-lightning[clusters]'). Or use data.sampler random or neighbors, which need nothing more."
        ) from error


def write_clusters(writer: EntryWriter, edges: IncomingEdges, num_parts: int) -> None:
    """Find clusters (Karypis and Kumar, SIAM J. Sci. Comput. 1998) and store the nodes of each.

    Stores `nodes [N]`, starting with those of cluster 0, and `ptr [num_parts + 1]`, the first one of each cluster.

    Raises:
        BadInput: METIS is missing, or an edge lacks its reverse, which METIS needs.
    """
    check_metis()
    import pymetis

    neighbours, ptr = _symmetric(edges)
    _, cluster = pymetis.part_graph(num_parts, pymetis.CSRAdjacency(ptr, neighbours))
    writer.append("nodes", np.argsort(cluster, kind="stable"))
    writer.append("ptr", np.concatenate([[0], np.cumsum(np.bincount(cluster, minlength=num_parts))]))


def _symmetric(edges: IncomingEdges) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbours of each node except itself `[<= E]`, and the position of the first of each node `[N + 1]`.

    Raises:
        BadInput: an edge lacks its reverse.
    """
    nodes, ones = edges.num_nodes, np.ones(len(edges.sources), dtype=np.int8)
    by_target = scipy.sparse.csr_array((ones, edges.sources, edges.ptr), shape=(nodes, nodes))
    # Each conversion sorts by the other end, also within a row, so the same edges give the same arrays.
    by_source = by_target.tocsc()
    by_target = by_source.tocsr()
    if not (
        np.array_equal(by_source.indptr, by_target.indptr) and np.array_equal(by_source.indices, by_target.indices)
    ):
        raise BadInput(
            "data.sampler clusters: METIS needs edges in both directions (--data.to_undirected true). Or use "
            "data.sampler random or neighbors."
        )
    degree = np.diff(by_target.indptr)
    other = by_target.indices != np.repeat(np.arange(nodes, dtype=by_target.indices.dtype), degree)
    ptr = np.concatenate([[0], np.cumsum(other)])[by_target.indptr]  # METIS does not accept loops
    return by_target.indices[other], ptr.astype(by_target.indptr.dtype)
