"""Files as OGB publishes them: compressed tables of numbers and texts, and splits saved by PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch.serialization import safe_globals

from graphbench.data.archives import open_gzip
from graphbench.data.files.foreign import FETCH_AGAIN, foreign, load_tensors
from graphbench.errors import CorruptData

#: What a pickled NumPy array of whole numbers is made of, under NumPy's old and new names.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ARRAY_PARTS: list[Any] = [
    (_RECONSTRUCT, "numpy.core.multiarray._reconstruct"),
    (_RECONSTRUCT, "numpy._core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.int64)),
    type(np.dtype(np.int32)),
]


def read_table_file(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Some columns of a compressed CSV file with a header.

    Raises:
        CorruptData: the file is damaged or lacks a column.
    """
    with foreign(path, FETCH_AGAIN), open_gzip(path) as file:
        return pd.read_csv(file, usecols=list(columns))


def read_numbers(path: Path, num_columns: int, dtype: type[np.generic]) -> np.ndarray:
    """A compressed CSV file of numbers without a header, `[rows, num_columns]`.

    Raises:
        CorruptData: the file is damaged, or has other columns or numbers.
    """
    with foreign(path, FETCH_AGAIN):
        with open_gzip(path) as file:
            table = pd.read_csv(file, header=None).to_numpy()
        values = table.astype(dtype)
        same = values == table
    if values.shape[1] != num_columns or not (same | (table != table)).all():
        raise CorruptData(
            f"{path} should hold {num_columns} columns of {np.dtype(dtype).name}, but holds other numbers."
        )
    return values


def load_split_dict(path: Path, names: Sequence[str], num_rows: int) -> dict[str, np.ndarray]:
    """Row numbers of some splits out of a saved dictionary of arrays; nothing in the file is run.

    Args:
        path: `split_dict.pt`.
        names: splits to take.
        num_rows: rows that exist.

    Raises:
        CorruptData: the file is damaged, holds something else, or has rows twice or out of range.
    """
    with foreign(path, FETCH_AGAIN, "holds no splits"):
        with safe_globals(_ARRAY_PARTS):
            content = load_tensors(path)
        found = {name: np.asarray(content[name]).astype(np.int64, casting="safe") for name in names}
    every = np.concatenate(list(found.values()))
    if len(every) == 0 or every.min() < 0 or every.max() >= num_rows or len(np.unique(every)) != len(every):
        raise CorruptData(
            f"{path}: splits must hold distinct rows from 0 to {num_rows - 1:,}. Delete it to fetch it again."
        )
    return found
