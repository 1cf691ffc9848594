"""Write checkpoints atomically, and read them without running code from them."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins import TorchCheckpointIO

from graphbench.data.files.foreign import check_stored, load_yaml
from graphbench.data.files.writing import writing
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.registry.starting_weights import find_weights
from graphbench.runs import RunFolder, hub, weights

log = logging.getLogger(__name__)

#: Lightning's function that builds a module from hyper-parameters, the only one that a checkpoint may name for it.
INSTANTIATOR = "pytorch_lightning.cli.instantiate_module"
#: Keys of hyper-parameters in a checkpoint, for module and data; the last two are from Lightning before 0.8.
_HYPER_PARAMETERS = ("hyper_parameters", "datamodule_hyper_parameters", "hparams", "module_arguments")
#: The class in torch's error about a file with more than tensors.
_FOREIGN = re.compile(r"GLOBAL (\S+) was not an allowed global|Trying to load unsupported GLOBAL (\S+)")


class RunCheckpointIO(TorchCheckpointIO):
    """Write checkpoints to a temporary file in the same folder, sync it and rename it.

    Lightning writes to the system's temporary folder. If the run is on another file system, the file is then copied,
    and a kill during the copy destroys the existing checkpoint.

    The run's last checkpoint becomes the previous one when the new one is complete.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any | None = None) -> None:
        """Write a checkpoint.

        Raises:
            GraphbenchError: the disk is full or not writable; an existing file stays.
        """
        if "://" in str(path):  # object stores write only complete files
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        place = Path(path)
        run = RunFolder(place.parent.parent)
        content = io.BytesIO()  # torch does not report a full disk when writing to a file itself
        torch.save(checkpoint, content)
        try:
            with writing(place, keep=run.previous if place == run.last else None) as file:
                file.write(content.getbuffer())
        except OSError as error:
            stays = " The existing checkpoint stays." if place.is_file() else ""
            raise GraphbenchError(f"The checkpoint {path} cannot be written: {error.strerror}.{stays}") from error

    def load_checkpoint(self, path: str | Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Read a checkpoint, or the weights of a `.safetensors` file."""
        if Path(path).suffix == weights.SUFFIX:
            return load_checkpoint(path) | {"pytorch-lightning_version": pl.__version__}
        return super().load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: str | Path) -> None:
        """Remove a checkpoint, and nothing else.

        Lightning's `ModelCheckpoint` reads the paths to remove from the checkpoint of a continued run, which may come
        from someone else, and `TorchCheckpointIO` removes folders with all their contents.
        """
        if Path(path).suffix == ModelCheckpoint.FILE_EXTENSION:
            super().remove_checkpoint(path)
        else:
            log.warning("%s stays: it is not a checkpoint, although the continued run says so.", path)


def check_whole(path: str | Path) -> None:
    """Verify the checksums in a checkpoint: torch's format is a zip file with a checksum for every tensor.

    Raises:
        CorruptData: the file was altered after writing. Files in torch's older format have no checksums and pass.
    """
    try:
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as file:
            check_stored(file)
            damaged = file.testzip()
    except Exception as error:  # a damaged archive may raise anything
        raise CorruptData(f"The checkpoint {path} cannot be read: {error}") from error
    if damaged is not None:
        raise CorruptData(f"The checkpoint {path} cannot be read: {damaged} in it does not match its checksum.")


def load_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a checkpoint file onto the CPU; for a `.safetensors` file, its weights as `state_dict`.

    Raises:
        BadInput: there is no such file.
        CorruptData: it is truncated or altered, or contains more than tensors and plain values.
    """
    if not Path(path).is_file():
        raise BadInput(f"There is no checkpoint {path}.")
    if Path(path).suffix == weights.SUFFIX:
        return {"state_dict": weights.read_weights(path)}
    check_whole(path)
    try:
        loaded: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle may raise anything
        raise CorruptData(f"The checkpoint {path} cannot be read: {unreadable_reason(Path(path), error)}") from error
    if not isinstance(loaded, dict):
        raise CorruptData(f"The checkpoint {path} is not a mapping, but {type(loaded).__name__}.")
    check_instantiator(loaded, path)
    return loaded


def check_instantiator(content: Any, path: str | Path) -> None:
    """Refuse a checkpoint, or hyper-parameters, with a function that Lightning before 2.6.6 would call for it."""
    if not isinstance(content, Mapping):
        return
    for hyper_parameters in (content, *(content.get(key) for key in _HYPER_PARAMETERS)):
        function = hyper_parameters.get("_instantiator") if isinstance(hyper_parameters, Mapping) else None
        if function is not None and function != INSTANTIATOR:
            raise BadInput(
                f"The checkpoint {path} names {function!r} as _instantiator, a function that would be called to build "
                f"its module; expected {INSTANTIATOR}. Do not use it unless you know who wrote it and why."
            )


def unreadable_reason(path: Path, error: Exception) -> str:
    """Return why torch cannot read a file, without torch's advice to allow the code in it."""
    if foreign := _FOREIGN.search(str(error)):
        return f"it holds {foreign[1] or foreign[2]}; only tensors and plain values are read, which cannot run code."
    if not zipfile.is_zipfile(path):
        return "its end is missing, or torch.save did not write it."
    message = str(error).strip().partition("\n")[0]
    if message and not message.startswith("Weights only"):
        return message
    return f"its content is not a checkpoint ({type(error).__name__})."


def trained_weights(run: RunFolder) -> Path:
    """Return the path of a run's best weights, else of its last ones, else of those of an exported folder.

    Without any, return the path that the best ones would have.
    """
    return next((path for path in (run.best, run.last, run.path / weights.FILE) if path.is_file()), run.best)


def no_checkpoint(path: Path, run: RunFolder | None = None) -> BadInput:
    """Return the error for a run without a checkpoint, which says why there is none."""
    why = "the fit has not finished its first epoch"
    if run is not None and run.config.is_file():
        # A damaged file raises other errors, and an exported folder has no trainer.
        with contextlib.suppress(yaml.YAMLError, AttributeError, KeyError, TypeError):
            if load_yaml(run.config.read_text(encoding="utf-8"))["trainer"].get("enable_checkpointing") is False:
                why = "the run was trained with --trainer.enable_checkpointing false"
    return BadInput(f"There is no checkpoint {path}: {why}.")


def weights_file(source: str | Path) -> Path:
    """Return the file of weights for a source: a file, a folder of a run or an export, a name, or `hf:owner/name`.

    A name refers to installed weights, such as `molecules-base`; a file or folder of that name takes precedence.

    Raises:
        BadInput: there is no such model on the Hub.
        UnknownName: there is no such file, and no installed weights have that name.
        GraphbenchError: the Hub refuses or cannot be reached.
        MissingExtra: the Hub's client is not installed.
    """
    if hub.is_hub_name(source):
        return hub.fetch(hub.HubModel.parse(str(source))) / weights.FILE
    path = Path(source)
    if path.is_dir():
        return trained_weights(RunFolder(path))
    return path if path.is_file() or len(path.parts) > 1 else find_weights(str(source))
