"""Load a trained model from the folder of its run, without its data."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import ArgumentError, Namespace
from pytorch_lightning.cli import LightningArgumentParser
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from graphbench import registry
from graphbench.contracts import Benchmark
from graphbench.contracts.devices import choose_accelerator
from graphbench.data.files.foreign import load_yaml
from graphbench.data.files.nested import texts_in
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.inference.predictor import Predictor
from graphbench.inference.training import TrainingFacts
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint, no_checkpoint, trained_weights
from graphbench.runs.hub import HubModel, fetch, is_hub_name
from graphbench.runs.trust import Policy, enforced
from graphbench.runs.weights import SUFFIX
from graphbench.training.module import BenchmarkModule
from graphbench.training.quiet import silenced

log = logging.getLogger(__name__)


def load(run: str | Path, accelerator: str = "auto", batch_size: int | None = None, trust: bool = False) -> Predictor:
    """Load a trained model that predicts new inputs: `graphbench.load("runs/mine").predict(["CCO", "c1ccccc1"])`.

    The data and the store of the fit are not needed; the precision is that of the run.

    Args:
        run: folder of a finished fit, whose best checkpoint is used (or, without one, the last); a checkpoint in such a
            folder; a folder that `graphbench export` wrote; or `hf:owner/name` (`hf:owner/name@revision`) for a model
            on the Hugging Face Hub.
        accelerator: where to compute, as for Lightning's `Trainer`: auto, cpu, gpu.
        batch_size: graphs per batch; that of the run's evaluation if None.
        trust: import any code that the run's configuration names; else only registered and listed classes, see
            `graphbench.runs.trust`.

    Raises:
        BadInput: `run` is not a path, there is no run or no checkpoint, it names a class that may not be imported, or
            its benchmark or model cannot be built.
        CorruptData: the configuration or the checkpoint is damaged.
    """
    if not isinstance(run, (str, os.PathLike)):
        raise BadInput(f"run must be the folder of a finished fit, as text or path, but got {run!r}.")
    folder, checkpoint = _places(fetch(HubModel.parse(str(run))) if is_hub_name(run) else Path(run))
    config, module, data = build_of(folder, Policy.of(folder.config, trust))
    load_weights(module, checkpoint)
    trainer = _trainer(config, accelerator)
    return Predictor(module, data, TrainingFacts.read(folder), trainer, batch_size)


def build_of(
    folder: RunFolder, policy: Policy, without: Collection[str] = ()
) -> tuple[dict[str, Any], BenchmarkModule, Benchmark]:
    """Build the module and the benchmark of a run, importing only what the policy admits.

    Options of the data in `without` are left at their defaults.

    Returns:
        The configuration, the module and the benchmark.
    """
    config = _configuration(folder)
    if without and isinstance(config["data"], dict) and isinstance(config["data"].get("init_args"), dict):
        init_args = {name: value for name, value in config["data"]["init_args"].items() if name not in without}
        config["data"] = {**config["data"], "init_args": init_args}
    # Around the parser, which imports the classes of a configuration.
    with enforced(policy):
        module, data = _build(config, folder)
    return config, module, data


def load_weights(module: BenchmarkModule, checkpoint: Path) -> None:
    """Load all weights of a checkpoint into a module."""
    content = load_checkpoint(checkpoint)
    try:
        module.on_load_checkpoint(content)
        module.load_state_dict(content["state_dict"])
    except (KeyError, BadInput) as error:
        raise BadInput(f"{checkpoint}: {error}") from error
    _warn_of_chirality(module, content, checkpoint)


def _warn_of_chirality(module: BenchmarkModule, content: Mapping[str, Any], checkpoint: Path) -> None:
    """Warn if a model that an earlier version trained on RDKit's tags of centres now receives R and S."""
    options = content.get("hyper_parameters")
    spec = options.get("spec") if isinstance(options, Mapping) else None
    extra = spec.get("extra") if isinstance(spec, Mapping) else None
    trained = extra.get("atom_vocabulary") if isinstance(extra, Mapping) else None
    if trained == "ogb" and module.spec.extra.get("atom_vocabulary") == "ogb_cip":
        log.warning(
            "%s learnt RDKit's tags CW and CCW of chiral centres, which depend on a molecule's spelling, and now "
            "gets R and S: train it again, or give --data.chirality RDKit for the tags it learnt.", checkpoint,
        )  # fmt: skip


def _places(path: Path) -> tuple[RunFolder, Path]:
    """Return the folder of a run and the checkpoint to use."""
    if path.is_file():
        folder = RunFolder(path.parent if path.suffix == SUFFIX else path.parent.parent)
        if not folder.config.is_file():
            raise BadInput(
                f"{path} is not in a run's folder: a checkpoint needs the config.yaml that describes its model, "
                "as in RUN/checkpoints/best.ckpt."
            )
        return folder, path
    folder = RunFolder.existing(path)
    weights = trained_weights(folder)
    if not weights.is_file():
        raise no_checkpoint(weights, folder)
    return folder, weights


def _configuration(run: RunFolder) -> dict[str, Any]:
    try:
        config = load_yaml(run.config.read_text(encoding="utf-8"))
        if isinstance(config["model"], dict) and config["data"]:
            return dict(config)
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise CorruptData(f"{run.config} is not the configuration of a run ({error}).") from error
    raise CorruptData(f"{run.config} is not the configuration of a run: it names no model or no data.")


def _build(config: dict[str, Any], run: RunFolder) -> tuple[BenchmarkModule, Benchmark]:
    """Build module and benchmark from a run's configuration; the global generator is unchanged."""
    for name in {*texts_in(config["model"]), *texts_in(config["data"])}:
        for group in registry.GROUPS:
            if name in registry.records(group):  # the parser finds a class by name once it is imported
                registry.load(group, name)
    # Lightning's parser, as on the command line, so that a `config.yaml` means the same here.
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_lightning_class_args(BenchmarkModule, "model")
    parser.add_lightning_class_args(Benchmark, "data", subclass_mode=True)
    parser.link_arguments("data.spec", "model.spec", apply_on="instantiate")
    try:
        # Drawing initial weights must not change the caller's generator.
        with torch.random.fork_rng(devices=[]):
            parsed: Namespace = parser.parse_object({"model": config["model"], "data": config["data"]})
            made = parser.instantiate_classes(parsed)
    except GraphbenchError:
        raise
    except (ArgumentError, ValueError, TypeError, ImportError) as error:
        raise BadInput(f"The model of {run.path} cannot be built from its config.yaml: {error}") from error
    made.model.save_hyperparameters(config["model"])  # its weights are compared with them
    return made.model, made.data


def _trainer(config: dict[str, Any], accelerator: str) -> pl.Trainer:
    """Return a trainer for device and precision; suppress Lightning's lines about them."""
    precision = (config.get("trainer") or {}).get("precision")
    try:
        with silenced(("pytorch_lightning.utilities.rank_zero",), logging.WARNING):
            return pl.Trainer(
                accelerator=choose_accelerator(accelerator), devices=1, precision=precision, logger=False,
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
            )  # fmt: skip
    except (MisconfigurationException, ValueError) as error:
        raise BadInput(f"accelerator={accelerator!r}, precision={precision!r}: {error}") from error
