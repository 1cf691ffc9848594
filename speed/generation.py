"""Time the generation of the GNN benchmark: sampling and writing PATTERN and CLUSTER, and superpixels of images.

    python speed/generation.py [--images FOLDER] [--count 1000]

FOLDER contains the four IDX files of MNIST, Fashion-MNIST or a similar data set. Without it, scikit-learn's digits are
used, enlarged to 28 x 28 pixels; the table says which.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_digits

from graphbench.benchmarks.block_models.pattern_cluster import CLUSTER, PATTERN, BlockModelBenchmark
from graphbench.benchmarks.block_models.sampling import Chunk
from graphbench.benchmarks.superpixels.readers import read_idx_folder
from graphbench.benchmarks.superpixels.slic import ImageChunk, SlicSettings, segment, superpixel_graphs
from graphbench.data.worker_pool import available_cores, map_in_processes

SETTINGS = SlicSettings(num_segments=75, compactness=0.25, surplus=20)
CHUNK = 100


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of `work`."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def block_models(repeats: int) -> Table:
    """Time full data sets including writing, and only sampling in one process."""
    header = ("set", "graphs", "drawn and stored, s", "drawing alone, ms per graph", "on disk, MB")
    table = Table(*header, title=f"Block models, {available_cores()} processes", title_justify="left")
    for kind in (PATTERN, CLUSTER):
        with tempfile.TemporaryDirectory() as folder:
            whole = seconds(kind(store=folder).prepare_data)
            size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        drawing = statistics.median(seconds(partial(draw, kind)) for _ in range(repeats))
        graphs = sum(kind.spec.split_sizes or ())
        table.add_row(kind.__name__, f"{graphs:,}", f"{whole:.1f}", f"{drawing:.3f}", f"{size / 1e6:.0f}")
    return table


def draw(kind: type[BlockModelBenchmark], chunks: int = 10) -> None:
    """Draw 1,000 graphs: seconds are milliseconds per graph."""
    benchmark = kind()
    function, size = benchmark.draw(), chunks * CHUNK
    for number in range(chunks):
        function(Chunk((0, 1, number), CHUNK, benchmark.patterns(number * CHUNK, size)))


def load_images(folder: Path | None, count: int) -> tuple[str, np.ndarray]:
    """Return a description of the images, and the images, uint8 `[count, 28, 28]`."""
    if folder is not None:
        return f"training images of {folder.name}", np.asarray(read_idx_folder(folder)["train"].images[:count])
    small = np.kron(load_digits().images, np.ones((4, 4)))[:, 2:30, 2:30]
    rows = np.arange(count) % len(small)
    return "scikit-learn's digits, enlarged", np.round(small[rows] * 255 / 16).astype(np.uint8)


def superpixels(name: str, images: np.ndarray, repeats: int) -> Table:
    """Measure images per second on one core and on all, and the calls of SLIC that the search saves."""
    starts = range(0, len(images), CHUNK)
    jobs = [ImageChunk(images[start : start + CHUNK], SETTINGS, (0, start)) for start in starts]
    superpixel_graphs(ImageChunk(images[:2], SETTINGS, (0,)))  # imports scikit-image
    rates: dict[int, list[float]] = {1: [], available_cores(): []}
    for workers in [*rates] * repeats:  # alternately, so that a busy machine slows both
        start = time.perf_counter()
        for _ in map_in_processes(superpixel_graphs, jobs, len(jobs), name, workers=workers):
            pass
        rates[workers].append(len(images) / (time.perf_counter() - start))
    few = [image.astype(np.float32) / 255 for image in images[:100]]
    ours, plain = seconds(lambda: [segment(image, SETTINGS) for image in few]), seconds(lambda: count_down(few))
    header = ("images", "number", "a second, 1 process", f"{available_cores()} processes", "search, ratio to plain")
    table = Table(*header, title="Superpixels as MNIST's (at most 75)", title_justify="left")
    medians = [f"{statistics.median(found):,.0f}" for found in rates.values()]
    table.add_row(name, f"{len(images):,}", *medians, f"{plain / ours:.1f}")
    return table


def count_down(images: list[np.ndarray]) -> None:
    """Run the published search, with one call of SLIC per request."""
    from skimage.segmentation import slic

    for image in images:
        for request in range(SETTINGS.num_segments + SETTINGS.surplus, 0, -1):
            labels = slic(image, n_segments=request, compactness=SETTINGS.compactness, channel_axis=None)
            if len(np.unique(labels)) <= SETTINGS.num_segments:
                break


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=Path, help="folder with IDX files")
    parser.add_argument("--count", type=int, default=1000, help="images to convert")
    parser.add_argument("--repeats", type=int, default=5, help="repetitions; medians are shown")
    options = parser.parse_args()
    console = Console(width=120)
    console.print(block_models(options.repeats))
    console.print(superpixels(*load_images(options.images, options.count), options.repeats))


if __name__ == "__main__":
    main()
