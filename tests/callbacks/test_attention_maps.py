"""Attention maps are drawn at the chosen epochs, for the chosen graphs, and reach TensorBoard."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from matplotlib.figure import Figure
from PIL import Image
from pytorch_lightning.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from graphbench import diagnostics as D
from graphbench.callbacks import attention_maps
from graphbench.callbacks.attention_maps import AttentionMaps
from graphbench.diagnostics.figures import graphs as figures
from graphbench.diagnostics.figures.attention import drawing_figure, matrix_figure
from graphbench.diagnostics.figures.graphs import PlainDrawing
from graphbench.errors import BadInput
from graphbench.training.module import BenchmarkModule

Fit = Callable[..., tuple[BenchmarkModule, pl.Trainer]]


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "run" / "diagnostics" / "attention_maps").iterdir())


@pytest.mark.slow
def test_chosen_graphs_are_drawn_once_at_the_end(fit: Fit, tmp_path: Path) -> None:
    fit(AttentionMaps(graphs=[7, 2]))
    assert names(tmp_path) == [
        f"val-{graph}_epoch-002_{kind}.png" for graph in (2, 7) for kind in ("drawing", "matrices")
    ]
    for name in names(tmp_path):
        with Image.open(tmp_path / "run" / "diagnostics" / "attention_maps" / name) as picture:
            assert 200 < picture.width < 1500
            assert len(picture.convert("RGB").getcolors(1 << 24)) > 20  # not an empty page


def test_every_n_epochs_and_the_end_without_doing_it_twice(fit: Fit, tmp_path: Path) -> None:
    callback = AttentionMaps(num_graphs=1, every_n_epochs=2, heads=[1], layers=[0])
    kept: list[int] = []
    callback._keep = lambda trainer, figure, graph, kind: kept.append(callback._finished)  # type: ignore[method-assign]
    fit(callback, max_epochs=4)
    assert kept == [2, 2, 4, 4]
    kept.clear()
    fit(callback, max_epochs=3)
    assert kept == [2, 2, 3, 3]


@pytest.mark.slow
def test_figures_reach_tensorboard(fit: Fit, tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path / "board"), name="", version="")
    fit(AttentionMaps(graphs=[3], split="train", file_format="svg"), logger=logger, max_epochs=1)
    logger.experiment.flush()
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert sorted(events.Tags()["images"]) == ["attention_maps/train-3/drawing", "attention_maps/train-3/matrices"]
    assert names(tmp_path) == ["train-3_epoch-001_drawing.svg", "train-3_epoch-001_matrices.svg"]


def panels(figure: Figure) -> list:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def test_panels_show_the_weights_with_entropy_zeros_and_row_sums(fit: Fit) -> None:
    module, trainer = fit(max_epochs=1)
    table = trainer.datamodule.tables["val"]
    batch = table.batch([4])
    module.eval()
    with torch.no_grad(), D.record(module.architecture) as recording:
        module.represent(batch)
    (maps,) = D.attention_maps(recording)
    shown = panels(matrix_figure(maps, [str(node) for node in range(batch.num_nodes)], "title"))
    assert len(shown) == 4  # two layers with two heads
    assert shown[3].images[0].get_array().tolist() == recording[1].attention[0][1].tolist()
    assert shown[3].get_title() == f"entropy {maps[1].entropy[1]:.2f}   zeros 0%   sum 1.00"
    drawn = panels(drawing_figure(maps, PlainDrawing.of(batch.edge_index, batch.num_nodes), "title"))
    assert len(drawn) == 4


def test_a_model_without_attention_is_told(fit: Fit, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        fit(AttentionMaps(), attention=False, max_epochs=1)
    assert "ToyTransformer has no attention matrices" in caplog.text
    assert not (tmp_path / "run" / "diagnostics").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_graphs": 0}, "AttentionMaps: num_graphs must be an integer of at least 1"),
        ({"every_n_epochs": -1}, "AttentionMaps: every_n_epochs must be an integer of at least 0"),
        ({"graphs": []}, "graphs of AttentionMaps must be numbers from 0 on"),
        ({"heads": [-1]}, "heads of AttentionMaps must be numbers from 0 on"),
        ({"file_format": "gif"}, "AttentionMaps: file_format must be one of png, svg"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        AttentionMaps(**options)


def test_rows_that_the_split_lacks_are_refused_before_training(fit: Fit) -> None:
    with pytest.raises(BadInput, match=r"rows of the val split, 0 \.\. 9, got \[10\]"):
        fit(AttentionMaps(graphs=[10]))


def test_graphs_too_large_to_draw_are_refused_before_training(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_maps, "LARGEST_MATRIX", 2)
    with pytest.raises(BadInput, match=r"at most 2 nodes each, got \[0\]"):
        fit(AttentionMaps(graphs=[0]))


def test_graphs_too_large_to_draw_are_left_out_if_nobody_named_them(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The callback is part of a configuration that is also used with large graphs."""
    monkeypatch.setattr(attention_maps, "LARGEST_MATRIX", 2)
    fit(AttentionMaps(num_graphs=3))
    assert not list(tmp_path.rglob("*_matrices.png"))
    assert "leaves out 3 of 3 graphs of the val split" in caplog.text


def test_graphs_too_large_for_a_layout_are_shown_by_their_matrices(
    fit: Fit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(figures, "MOST_LAID_OUT", 2)
    fit(AttentionMaps(num_graphs=1))
    assert len(list(tmp_path.rglob("*_matrices.png"))) == 1
    assert not list(tmp_path.rglob("*_drawing.png"))


@pytest.mark.parametrize(("option", "numbers"), [("layers", [0, 2]), ("heads", [2])])
def test_layers_and_heads_that_the_model_lacks_are_refused_before_training(
    fit: Fit, option: str, numbers: list[int]
) -> None:
    callback = AttentionMaps(**{option: numbers})
    with pytest.raises(BadInput, match=rf"{option} must be among 0 \.\. 1"):
        fit(callback)
    assert callback._finished == 0
