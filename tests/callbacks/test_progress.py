"""What stands in and beside the progress bar of a fit."""

from __future__ import annotations

import re

from pytorch_lightning.callbacks import Timer

from graphbench.callbacks.progress import RunProgressBar


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
