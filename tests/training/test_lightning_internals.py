"""Private names of Lightning and jsonargparse: only one file uses them, and the installed releases have them."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.demos.boring_classes import BoringModel
from pytorch_lightning.strategies import DDPStrategy

import graphbench
from graphbench.training import lightning_internals
from graphbench.training.lightning_internals import (
    attached_trainer,
    cluster_environment,
    ddp_options,
    epoch_metrics,
    group_timeout,
    replace_signal_handling,
    skip_sigterm_broadcast,
)

CORE = Path(graphbench.__file__).parent
LIBRARIES = ("pytorch_lightning", "lightning_fabric", "jsonargparse")
#: Names that PyG, torch and torchmetrics define as well; the core uses theirs.
OTHERS = {"_store", "_mapping", "_modules", "_defaults"}


def private_names(path: Path) -> tuple[set[str], set[str], set[str]]:
    """Return the private names that a file reads from `self`, uses on other objects, and defines."""
    of_self, of_others, defined = set(), set(), set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(LIBRARIES):
            of_others |= {alias.name for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Attribute):
            if not (isinstance(node.value, ast.Name) and node.value.id == "self"):
                of_others.add(node.attr)
            else:
                (defined if isinstance(node.ctx, ast.Store) else of_self).add(node.attr)
    return of_self, of_others, defined


def test_one_file_alone_uses_private_names():
    files = [path for name in LIBRARIES for path in Path(find_spec(name).origin).parent.rglob("*.py")]
    pattern = re.compile(r"(?:def |class |self\.|\n)(_[A-Za-z]\w*)")
    theirs = {name for path in files for name in pattern.findall(path.read_text(encoding="utf-8"))} - OTHERS
    core = {path: private_names(path) for path in CORE.rglob("*.py")}
    inherited = set().union(*(defined for _, _, defined in core.values()))
    found = {
        path
        for path, (of_self, of_others, defined) in core.items()
        if theirs & (of_self - inherited | of_others - defined)
    }
    assert found == {Path(lightning_internals.__file__)}


class Handling:
    """Handles no signal; records whether it is registered."""

    registered = False
    received_sigterm = False

    def register_signal_handlers(self) -> None:
        self.registered = True

    def teardown(self) -> None:
        self.registered = False


class Look(pl.Callback):
    """Reads the trainer's state at the end of an epoch."""

    def on_train_epoch_end(self, trainer, pl_module):
        self.registered, self.metrics = trainer._signal_connector.registered, dict(epoch_metrics(trainer))
        self.attached = attached_trainer(pl_module)


class Logging(BoringModel):
    """Logs one number per epoch."""

    def training_step(self, batch, batch_idx):
        self.log("loss", 3.0, on_epoch=True, on_step=False)
        return super().training_step(batch, batch_idx)


def test_a_training_with_all_of_them(tmp_path):
    look, model, handling = Look(), Logging(), Handling()
    trainer = pl.Trainer(
        default_root_dir=tmp_path, max_epochs=1, limit_train_batches=1, limit_val_batches=0, accelerator="cpu",
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[look],
    )  # fmt: skip
    assert attached_trainer(model) is None
    assert cluster_environment(trainer) is None or cluster_environment(trainer).world_size() == 1
    replace_signal_handling(trainer, handling)
    assert hasattr(trainer.fit_loop.epoch_loop, "_broadcast_sigterm_tensor")
    skip_sigterm_broadcast(trainer)
    trainer.fit(model)
    assert look.registered
    assert not handling.registered
    assert look.attached is trainer
    assert float(look.metrics["loss"]) == 3.0


def test_options_of_a_strategy():
    strategy = DDPStrategy(timeout=timedelta(seconds=5), static_graph=True)
    assert group_timeout(strategy) == timedelta(seconds=5)
    assert ddp_options(strategy) == {"static_graph": True}
