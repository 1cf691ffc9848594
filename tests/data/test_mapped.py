from __future__ import annotations

import sys

import numpy as np
import pytest
from graphbench.data.mapped import map_array, resident_file_bytes, trim_mapped

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells resident pages")


def test_pages_are_handed_back_and_read_again(tmp_path):
    path = tmp_path / "big.npy"
    np.save(path, np.arange(16 << 20, dtype=np.int32))  # 64 MiB
    array = map_array(path)
    before = resident_file_bytes()
    total = int(array.astype(np.int64).sum())
    read = resident_file_bytes()
    assert read - before > 48 << 20
    assert not trim_mapped(limit=read + (1 << 30))
    assert trim_mapped(limit=0)
    assert read - resident_file_bytes() > 48 << 20
    assert int(array.astype(np.int64).sum()) == total
