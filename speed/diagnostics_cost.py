"""What watching a run costs, on the quickstart: time of each diagnostic callback as a share of the epoch.

The model and the data are those of `configs/quickstart.yaml` (GPS of width 64 with 4 layers on NCI, 3,769 training
graphs, batches of 32), and the callbacks have their defaults. All are measured in one run, within the same epochs, so
that a busy machine slows both sides of a ratio; epochs in which they look alternate with epochs in which they do not,
and both kinds are timed as a whole too. The look before training is printed apart: it happens once per run. Medians.

The last lines say what traces cost while nobody listens: attention layers that are `Traced` against layers with the
same weights that never call `trace`, and what a single such call takes.

    python speed/diagnostics_cost.py --epochs 8 --threads 1
"""

from __future__ import annotations

import argparse
import logging
import platform
import statistics
import time
import timeit
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytorch_lightning as pl
import torch
import yaml

from graphbench import BenchmarkModule, Traced, build
from graphbench.callbacks.attention_capacity import AttentionCapacity
from graphbench.callbacks.rank_progression import GradientFlow, InfluenceRange, RankProgression
from graphbench.callbacks.train_test_gap import TrainTestGap
from graphbench.contracts import Benchmark
from graphbench.nn import HeadConfig
from graphbench.nn.positional import RWSEEncoder

ROOT = Path(__file__).parents[1]
WATCHERS = (AttentionCapacity, RankProgression, InfluenceRange, GradientFlow, TrainTestGap)
#: Hooks in which the callbacks look.
HOOKS = ("on_train_start", "on_validation_end", "on_train_epoch_end")


def quickstart(root: str) -> tuple[BenchmarkModule, Benchmark]:
    """Model and data of the quickstart, read from its file."""
    config = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text(encoding="utf-8"))
    model = config["model"]
    options = dict(model["architecture"]["init_args"])
    encoder = options.pop("positional_encoders")[0]["init_args"]
    options["positional_encoders"] = [RWSEEncoder(**encoder)]
    return build(
        model["architecture"]["class_path"],
        config["data"]["class_path"],
        model_options=options,
        data_options=config["data"]["init_args"] | {"root": root},
        head=HeadConfig(**model["head"]),
    )


class Stopwatch(pl.Callback):
    """Seconds of the watchers' hooks and of whole epochs; all watchers look in every second epoch."""

    def __init__(self, watchers: list[Any]) -> None:
        self.every_n_epochs = {type(watcher).__name__: watcher.every_n_epochs for watcher in watchers}
        self.before: dict[str, float] = {}
        self.looks: dict[str, list[float]] = defaultdict(list)
        self.epochs: dict[bool, list[float]] = {True: [], False: []}
        self.looking = False
        self._spent: dict[str, float] = defaultdict(float)
        for watcher in watchers:
            watcher.every_n_epochs = 1  # this stopwatch decides when they look
            for hook in HOOKS:
                if hook in {name for cls in type(watcher).__mro__[:-1] for name in vars(cls)}:
                    setattr(watcher, hook, self._timed(type(watcher).__name__, hook, getattr(watcher, hook)))

    def _timed(self, name: str, hook: str, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            if hook != "on_train_start" and not self.looking:
                return
            start = time.perf_counter()
            call(*arguments)
            self._spent[name] += time.perf_counter() - start

        return timed

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """An epoch begins; the first of all is a warm-up and does not count."""
        now = time.perf_counter()
        if trainer.current_epoch == 0:
            self.before = dict(self._spent)
        elif trainer.current_epoch > 1:
            self.epochs[self.looking].append(now - self._start)
            for name, seconds in self._spent.items() if self.looking else ():
                self.looks[name].append(seconds)
        self._spent.clear()
        self._start, self.looking = now, trainer.current_epoch % 2 == 1


def watch(epochs: int) -> Stopwatch:
    """Train the quickstart for some epochs with all watchers."""
    pl.seed_everything(0, verbose=False)
    module, data = quickstart(str(ROOT / "data"))
    watchers = [watcher() for watcher in WATCHERS]
    stopwatch = Stopwatch(watchers)
    with TemporaryDirectory() as folder:
        pl.Trainer(
            max_epochs=epochs + 2, callbacks=[stopwatch, *watchers], logger=False, default_root_dir=folder,
            accelerator="cpu", gradient_clip_val=1.0, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0, use_distributed_sampler=False,
        ).fit(module, data)  # fmt: skip
    return stopwatch


def silent_forward(repeats: int) -> tuple[float, float, float]:
    """Seconds of a forward pass with traced layers, without any trace, and of one call that nobody hears."""
    torch.manual_seed(0)
    module, data = quickstart(str(ROOT / "data"))
    data.prepare_data()
    data.setup()
    batch = data.tables["train"].batch(range(32))
    module.eval()
    layers = [part for part in module.modules() if isinstance(part, Traced)]

    def seconds() -> float:
        start = time.perf_counter()
        with torch.no_grad():
            module(batch)
        return time.perf_counter() - start

    times: dict[bool, list[float]] = {True: [], False: []}
    for repeat in range(2 * repeats):
        traced = repeat % 4 in (0, 3)  # neither kind always follows the other
        for layer in layers:
            if traced:
                layer.__dict__.pop("trace", None)
            else:
                layer.__dict__["trace"] = _nothing
        times[traced].append(seconds())
    call = min(timeit.repeat(lambda: Traced.trace(layers[0], _nothing), number=10_000, repeat=5)) / 10_000
    return statistics.median(times[True]), statistics.median(times[False]), call


def _nothing(*_: Any) -> None:
    """In place of `Traced.trace`."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8, help="epochs after two of warm-up; half of them watched")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=100, help="forward passes of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    print(f"{platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}\n")
    stopwatch = watch(arguments.epochs)
    without, with_them = (statistics.median(stopwatch.epochs[kind]) for kind in (False, True))
    print("| callback | ms a look | epochs between looks | share of training | once, before training |")
    print("|---|--:|--:|--:|--:|")
    together = 0.0
    for name, looks in stopwatch.looks.items():
        seconds, every = statistics.median(looks), stopwatch.every_n_epochs[name]
        together += seconds / every / without
        print(f"| {name} | {seconds * 1e3:.0f} | {every} | {seconds / every / without:.2%} | "
              f"{stopwatch.before.get(name, 0.0):.2f} s |")  # fmt: skip
    print(f"| together | | | {together:.2%} | {sum(stopwatch.before.values()):.2f} s |")
    print(f"\nEpochs in which nobody looks take {without:.2f} s, those in which all look {with_them:.2f} s.")
    traced, bare, call = silent_forward(arguments.repeats)
    print(f"Nobody listens: forward {traced * 1e3:.2f} ms with traces, {bare * 1e3:.2f} ms without "
          f"({traced / bare:.3f} times); one unheard call takes {call * 1e9:.0f} ns.")  # fmt: skip


if __name__ == "__main__":
    main()
