"""Wait for what another process or thread does, but not for ever if it fails."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(happens: Callable[[], object], seconds: float = 300) -> None:
    """Return once `happens()` is true; fail after so many seconds, which allow for a busy machine."""
    deadline = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.02)
