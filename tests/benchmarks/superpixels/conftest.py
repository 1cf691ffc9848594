"""Grey and coloured pictures with structure."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter


def smooth(seed, shape, width):
    """Return random blobs as uint8."""
    axes = (width, width, 0)[: len(shape)]
    values = gaussian_filter(np.random.RandomState(seed).random_sample(shape), axes)
    return np.round(255 * (values - values.min()) / np.ptp(values)).astype(np.uint8)


@pytest.fixture(scope="session")
def grey():
    """Return eight images of 28 x 28: blobs on black, like digits."""
    images = np.stack([smooth(seed, (28, 28), 2.5) for seed in range(8)])
    return np.where(images > 128, images, 0).astype(np.uint8)


@pytest.fixture(scope="session")
def coloured():
    """Return four images of 32 x 32 x 3."""
    return np.stack([smooth(seed, (32, 32, 3), 2.0) for seed in range(4)])
