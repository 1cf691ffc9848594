"""Small pictures of one graph of each benchmark that can be generated quickly, drawn when the site is built."""

from __future__ import annotations

import io
import logging
import tempfile
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from rdkit import Chem, RDConfig
from rdkit.Chem.Draw import MolToImage

from graphbench import registry
from graphbench.contracts import GraphBatch
from graphbench.diagnostics.figures.graphs import PlainDrawing

#: Benchmark -> options with which it is generated quickly.
FEW: dict[str, dict[str, Any]] = {
    "CLUSTER": {"sizes": (1, 1, 1)},
    "CSL": {},
    "CYCLES": {"sizes": (2, 2, 2)},
    "ECHOSynth": {"sizes": (3, 1, 1)},
    "ElectricFlow": {"sizes": (1, 1, 1)},
    "PATTERN": {"sizes": (1, 1, 1)},
    "Pathfinder": {"sizes": (2, 2, 2)},
    "Solids": {"sizes": (36, 36, 36), "num_points": 512},
    "TSP": {"sizes": (1, 1, 1), "num_nodes": (30, 30)},
}
#: Maximum number of lines in a picture; a denser graph, which would become a grey disc, is drawn without some of them.
_MAX_LINES = 200
_COLOURS = mpl.colormaps["viridis"]


def names() -> list[str]:
    """Return the benchmarks that have a picture."""
    return sorted([*FEW, "NCI"])


def pictures() -> dict[str, bytes]:
    """Map each benchmark to a PNG of its first training graph."""
    logging.getLogger("graphbench").setLevel(logging.WARNING)  # the build shows only what is wrong
    found = {"NCI": _molecule()}
    with tempfile.TemporaryDirectory() as folder:
        for name, options in FEW.items():
            data = registry.load("benchmarks", name)(root=folder, **options)
            data.prepare_data()
            data.setup()
            batch = data.tables["train"].batch([0])
            found[name] = _image(batch) if name == "Pathfinder" else _graph(batch)
    return found


def _molecule() -> bytes:
    """Draw the first molecule of NCI's file that fits into a small picture."""
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text(encoding="utf-8").splitlines()
    smiles = (line.split()[0] for line in lines)
    read = (Chem.MolFromSmiles(one) for one in smiles if 20 <= len(one) <= 30)
    content = io.BytesIO()
    MolToImage(next(molecule for molecule in read if molecule is not None), (220, 160)).save(content, "PNG")
    return content.getvalue()


def _graph(batch: GraphBatch) -> bytes:
    """Draw nodes in the colours of their class, their first feature or their height."""
    places = batch.pos if "pos" in batch else None
    if not batch.edge_index.shape[1]:
        assert places is not None
        drawing = PlainDrawing.of(batch.edge_index, batch.num_nodes, places[:, [0, 2]])
    else:
        whole = PlainDrawing.of(batch.edge_index, batch.num_nodes, places)
        some = whole.pairs[:, :: 1 + whole.pairs.shape[1] // _MAX_LINES]
        drawing = PlainDrawing(batch.num_nodes, some, whole.positions)
    figure, axes = _panel()
    faint = [(0.7, 0.7, 0.7)] * drawing.pairs.shape[1]
    drawing.paint(axes, _painted(_values(batch, places)), faint)
    return _png(figure)


def _values(batch: GraphBatch, places: torch.Tensor | None) -> np.ndarray:
    """Return a number for each node."""
    for column in (batch.get("y"), batch.get("x"), batch.get("x_dense") if places is None else None, places):
        if column is not None and len(column) == batch.num_nodes and column.numel():
            return column.reshape(len(column), -1)[:, -1 if column is places else 0].double().numpy()
    return np.zeros(batch.num_nodes)


def _painted(values: np.ndarray) -> list[tuple[float, float, float]]:
    extent = float(np.ptp(values)) or 1.0
    return [tuple(map(float, colour[:3])) for colour in _COLOURS((values - values.min()) / extent)]  # type: ignore[misc]


def _image(batch: GraphBatch) -> bytes:
    """Draw a sequence that is an image row by row."""
    values = next(batch[name] for name in ("x", "x_dense") if name in batch and batch[name].numel())
    side = round(batch.num_nodes**0.5)
    figure, axes = _panel()
    axes.imshow(values[:, 0].reshape(side, side).numpy(), cmap="gray")
    return _png(figure)


def _panel() -> tuple[Figure, Any]:
    figure = Figure(figsize=(1.6, 1.6), dpi=110, layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    return figure, axes


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", metadata={"Software": None})
    return content.getvalue()
