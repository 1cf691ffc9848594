"""Raw files of published data sets that are pickles, read without running what they may hold."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Iterator
from typing import IO, Any

from scipy.sparse import csr_matrix

_BUILTINS = ("__builtin__", "builtins")  # of Python 2 and 3
#: What published raw files are made of: arrays, sparse matrices and containers, by the names that NumPy and SciPy had
#: for them when they were written, and have now.
_PLAIN = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    *((f"numpy.{core}.multiarray", name) for core in ("core", "_core") for name in ("_reconstruct", "scalar")),
    *((f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")),
    *((f"scipy.sparse.{module}", "csr_matrix") for module in ("csr", "_csr")),
    *((module, name) for module in _BUILTINS for name in ("list", "dict", "set", "int", "bytes", "object")),
    *((module, "_reconstructor") for module in ("copy_reg", "copyreg")),
    ("collections", "defaultdict"),
    ("collections", "OrderedDict"),
    ("_codecs", "encode"),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PLAIN:
            raise pickle.UnpicklingError(f"a pickle names {module}.{name}, which might run code of the file")
        return csr_matrix if name == "csr_matrix" else super().find_class(module, name)  # its old module goes away


def load_plain(file: IO[bytes], **options: Any) -> Any:
    """As `pickle.load`, for arrays, sparse matrices and containers of them.

    Raises:
        pickle.UnpicklingError: the file holds anything else.

    Examples:
        >>> import io
        >>> load_plain(io.BytesIO(pickle.dumps({"nodes": [1, 2]})))
        {'nodes': [1, 2]}
    """
    return _PlainUnpickler(file, **options).load()


@contextlib.contextmanager
def plain_pickles() -> Iterator[None]:
    """Whoever calls `pickle.load` meanwhile reads plain values only."""
    before = pickle.load
    pickle.load = load_plain  # type: ignore[assignment]
    try:
        yield
    finally:
        pickle.load = before
