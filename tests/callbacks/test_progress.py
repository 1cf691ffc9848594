"""What a fit shows in its progress bar, and its line for each epoch."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from pytorch_lightning.callbacks import GradientAccumulationScheduler, Timer
from pytorch_lightning.loggers import TensorBoardLogger
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

from graphbench.callbacks import TrainTestGap
from graphbench.callbacks.progress import EpochLines, FirstBoard, RunProgressBar


class Kept(RunProgressBar):
    """Keeps what it shows."""

    def __init__(self):
        super().__init__()
        self.shown, self.described = [], []

    def get_metrics(self, trainer, pl_module):
        items = super().get_metrics(trainer, pl_module)
        self.shown.append(items)
        return items

    def _get_train_description(self, current_epoch):
        self.described.append(super()._get_train_description(current_epoch))
        return self.described[-1]


def test_the_bar_counts_from_one_and_shows_loss_and_time(fit):
    bar = Kept()
    _, trainer = fit(bar, Timer(), enable_progress_bar=True, max_epochs=2)
    assert [text.strip() for text in dict.fromkeys(bar.described)] == ["Epoch 1/2", "Epoch 2/2"]
    during = [items for items in bar.shown if {"loss", "left"} <= items.keys()]
    assert len(during) >= trainer.global_step
    assert all(re.fullmatch(r"\d:\d\d:\d\d", items["left"]) for items in during)
    assert all(items.keys() <= {"loss", "left"} for items in bar.shown)


def test_a_run_without_a_timer_has_a_clock(fit):
    bar = Kept()
    fit(bar, enable_progress_bar=True, max_epochs=1)
    assert any("left" in items for items in bar.shown)


def test_the_time_left_counts_batches_where_accumulation_changes(fit, monkeypatch):
    bar, timer = Kept(), Timer()
    seen = []
    monkeypatch.setattr(timer, "setup", lambda trainer, *args, **options: seen.append(trainer))
    monkeypatch.setattr(timer, "time_elapsed", lambda: 600.0 * (seen[0].fit_loop.total_batch_idx + 1))
    accumulation = GradientAccumulationScheduler({0: 1, 1: 4})
    _, trainer = fit(bar, timer, accumulation, enable_progress_bar=True, max_epochs=3)
    batches = 3 * trainer.num_training_batches
    left = [items["left"] for items in bar.shown if "left" in items]
    wanted = [f"{10 * n // 60}:{10 * n % 60:02}:00" for n in range(batches - 1, -1, -1)]
    assert list(dict.fromkeys(left)) == wanted


def test_a_clock_of_a_continued_run_counts_what_it_trains(fit, tmp_path, monkeypatch):
    _, trainer = fit(max_epochs=2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    bar, clock = Kept(), SimpleNamespace(now=0.0)
    monkeypatch.setattr("graphbench.callbacks.progress.time.monotonic", lambda: clock.now)

    def minute(*arguments):
        clock.now += 60.0

    monkeypatch.setattr(bar, "on_train_batch_start", minute)
    _, trainer = fit(bar, enable_progress_bar=True, max_epochs=3, resume=str(tmp_path / "two.ckpt"))
    left = [items["left"] for items in bar.shown if "left" in items]
    wanted = [f"{n // 60}:{n % 60:02}:00" for n in range(trainer.num_training_batches - 1, -1, -1)]
    assert list(dict.fromkeys(left)) == wanted


class Drawn(Kept):
    """Draws the bar of a long run in terminals of several widths."""

    def __init__(self, widths):
        super().__init__()
        self.drawn = {width: set() for width in widths}

    def get_metrics(self, trainer, pl_module):
        return {"loss": "0.001234", "left": "120:00:00"}

    def _get_train_description(self, current_epoch):
        return "Epoch 1000/1000"

    def on_train_batch_end(self, *arguments):
        super().on_train_batch_end(*arguments)
        self.progress.update(self.train_progress_bar_id, total=12345, completed=12344)
        for width, drawn in self.drawn.items():
            console = Console(width=width, file=io.StringIO())
            console.print(self.progress.make_tasks_table(self.progress.tasks))
            drawn.add(console.file.getvalue())


def test_only_the_bar_gives_way_in_a_narrow_terminal(fit):
    bar = Drawn((80, 120))
    fit(bar, enable_progress_bar=True, max_epochs=1)
    for width, drawn in bar.drawn.items():
        assert drawn
        for text in drawn:
            (line,) = text.splitlines()
            assert len(line) <= width
            assert re.search(r"^Epoch 1000/1000 ━+.* 12344/12345 .*it/s loss: 0.001234 left: 120:00:00", line)


class Logged:
    """Provides what `EpochLines` reads from a trainer in the last epoch of a thousand."""

    is_global_zero, current_epoch, max_epochs = True, 999, 1000

    def __init__(self, **scores):
        self.callback_metrics = {name.replace("_", "/", 1): value for name, value in scores.items()}


@pytest.mark.parametrize(
    ("scores", "monitor", "there"),
    [
        ({"val_loss": 0.51951, "val_MAE": 0.51952}, "val/MAE", ["train/loss", "val/MAE", "graphs/s"]),  # one number
        ({"val_loss": 0.5195}, "val/loss", ["train/loss", "val/loss", "graphs/s"]),
        ({"val_loss": 0.5195, "val_AP": 0.61}, "val/AP", ["train/loss", "val/loss", "val/AP"]),
        ({"val_loss": 0.5195, "val_accuracy_by_class": 0.8683}, "val/accuracy_by_class",
         ["train/loss", "val/accuracy_by_class"]),
    ],
)  # fmt: skip
def test_an_epoch_is_one_line_of_eighty_columns(scores, monitor, there, caplog):
    lines = EpochLines()
    lines.on_fit_start(None, None)
    lines.on_validation_end(SimpleNamespace(sanity_checking=False), None)
    lines._start -= 123_456
    logged = Logged(train_loss=0.001234, time_graphs_per_s=12345.6, **scores)
    with caplog.at_level("INFO"):
        lines.on_train_epoch_end(logged, SimpleNamespace(monitor=monitor))
    (line,) = caplog.messages
    assert len(line) <= 80
    assert line.startswith("epoch 1000/1000  ")
    assert line.endswith("  123456 s")
    assert re.findall(r"(?:train|val)/\w+|graphs/s", line) == there


def test_each_chart_of_the_first_board_has_what_it_is_to_compare(fit, tmp_path):
    fit(FirstBoard(), TrainTestGap(), logger=TensorBoardLogger(tmp_path / "board", name="", version=""), max_epochs=1)
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    (event,) = events.Tensors("custom_scalars__config__")
    layout = Layout.FromString(event.tensor_proto.string_val[0])
    (category,) = layout.category
    shown = {
        chart.title: {
            tag for pattern in chart.multiline.tag for tag in events.Tags()["scalars"] if re.match(pattern, tag)
        }
        for chart in category.chart
    }
    assert shown == {
        "loss": {"train/loss", "val/loss"},
        "MAE": {"train/MAE", "val/MAE"},
        "gap": {"train_test_gap/MAE", "train_test_gap/loss"},
    }


def test_an_epoch_without_validation_shows_no_earlier_score(fit, caplog):
    with caplog.at_level("INFO"):
        fit(EpochLines(), max_epochs=3, check_val_every_n_epoch=2, enable_checkpointing=True)
    lines = [text for text in caplog.messages if text.startswith("epoch ")]
    assert ["val/" in line for line in lines] == [False, True, False]
