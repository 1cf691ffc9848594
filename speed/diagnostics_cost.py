"""Measure the cost of diagnostics on the quickstart: time of each callback as a share of the epoch.

The model and the data are those of `configs/quickstart.yaml` (GPS of width 64 with 4 layers on NCI, 3,769 training
graphs, batches of 32), and the callbacks have their defaults. All are measured in one run, within the same epochs, so a
busy machine slows both sides of a ratio. Epochs with diagnostics alternate with epochs without, and both kinds are also
timed as a whole. The measurement before training, once per run, is printed separately. All numbers are medians.

The last lines are the cost of traces without a listener: `Traced` attention layers compared with layers with the same
weights that never call `trace`, and a single such call.

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
CALLBACKS = (AttentionCapacity, RankProgression, InfluenceRange, GradientFlow, TrainTestGap)
#: Hooks in which the callbacks measure.
HOOKS = ("on_train_start", "on_validation_end", "on_train_epoch_end")


def quickstart(root: str) -> tuple[BenchmarkModule, Benchmark]:
    """Build model and data of the quickstart from its file."""
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
    """Callback that times the callbacks' hooks and whole epochs; all callbacks run in every second epoch."""

    def __init__(self, callbacks: list[Any]) -> None:
        self.every_n_epochs = {type(callback).__name__: callback.every_n_epochs for callback in callbacks}
        self.before: dict[str, float] = {}
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.epochs: dict[bool, list[float]] = {True: [], False: []}
        self.measuring = False
        self._start = 0.0
        self._spent: dict[str, float] = defaultdict(float)
        for callback in callbacks:
            callback.every_n_epochs = 1  # this stopwatch decides when they run
            for hook in HOOKS:
                if getattr(type(callback), hook) is not getattr(pl.Callback, hook):
                    setattr(callback, hook, self._timed(type(callback).__name__, hook, getattr(callback, hook)))

    def _timed(self, name: str, hook: str, call: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            if hook != "on_train_start" and not self.measuring:
                return
            start = time.perf_counter()
            call(*arguments)
            self._spent[name] += time.perf_counter() - start

        return timed

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Finish the previous epoch; the very first one is a warm-up and does not count."""
        now = time.perf_counter()
        if trainer.current_epoch == 0:
            self.before = dict(self._spent)
        elif trainer.current_epoch > 1:
            self.epochs[self.measuring].append(now - self._start)
            for name, seconds in self._spent.items():  # empty in epochs without diagnostics
                self.seconds[name].append(seconds)
        self._spent.clear()
        self._start, self.measuring = now, trainer.current_epoch % 2 == 1


def watch(epochs: int) -> Stopwatch:
    """Train the quickstart for some epochs with all diagnostics."""
    pl.seed_everything(0, verbose=False)
    module, data = quickstart(str(ROOT / "data"))
    callbacks = [callback() for callback in CALLBACKS]
    stopwatch = Stopwatch(callbacks)
    with TemporaryDirectory() as folder:
        pl.Trainer(
            max_epochs=epochs + 2, callbacks=[stopwatch, *callbacks], logger=False, default_root_dir=folder,
            accelerator="cpu", gradient_clip_val=1.0, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, num_sanity_val_steps=0, use_distributed_sampler=False,
        ).fit(module, data)  # fmt: skip
    return stopwatch


def silent_forward(repeats: int) -> tuple[float, float, float]:
    """Time a forward pass with traced layers, one without any trace, and a single call without a listener."""
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
    """Replace `Traced.trace`."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8, help="epochs after two of warm-up, half with diagnostics")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=100, help="forward passes of each kind")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    print(f"{platform.processor() or platform.machine()}, {arguments.threads} threads, torch {torch.__version__}\n")
    stopwatch = watch(arguments.epochs)
    without, with_them = (statistics.median(stopwatch.epochs[kind]) for kind in (False, True))
    print("| callback | ms | every n epochs | share of training | once, before training |")
    print("|---|--:|--:|--:|--:|")
    together = 0.0
    for name, times in stopwatch.seconds.items():
        seconds, every = statistics.median(times), stopwatch.every_n_epochs[name]
        together += seconds / every / without
        print(f"| {name} | {seconds * 1e3:.0f} | {every} | {seconds / every / without:.2%} | "
              f"{stopwatch.before.get(name, 0.0):.2f} s |")  # fmt: skip
    print(f"| together | | | {together:.2%} | {sum(stopwatch.before.values()):.2f} s |")
    print(f"\nEpochs take {without:.2f} s without diagnostics, {with_them:.2f} s with all of them.")
    traced, bare, call = silent_forward(arguments.repeats)
    print(f"Without a listener: forward {traced * 1e3:.2f} ms with traces, {bare * 1e3:.2f} ms without "
          f"({traced / bare:.3f} times); one call takes {call * 1e9:.0f} ns.")  # fmt: skip


if __name__ == "__main__":
    main()
