"""A small entry of the store, and a count of its builds."""

from __future__ import annotations

import numpy as np

KEY = {"kind": "numbers", "size": 1000, "parameters": {"b": 2.5, "a": [1, None]}}


class Builder:
    """Counts its calls and writes one array in two appends."""

    def __init__(self, size=1000):
        self.size, self.calls = size, 0

    def __call__(self, writer):
        self.calls += 1
        values = np.arange(self.size, dtype=np.float32).reshape(-1, 2)
        writer.append("values", values[:100])
        writer.append("values", values[100:])
        writer.append("flags", np.array([True, False]))
        writer.meta["note"] = "hello"
