"""Write a trained model as a folder to share: weights, configuration, scores and a card; no code, no pickles."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml

from graphbench import __version__
from graphbench.contracts import Benchmark
from graphbench.data.files.foreign import load_yaml
from graphbench.data.files.writing import write_text
from graphbench.errors import BadInput, CorruptData, GraphbenchError
from graphbench.inference.exporting.card import model_card
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.weights import FILE as WEIGHTS
from graphbench.runs.weights import SPECIFICATION, read_weights, same_weights, save_weights
from graphbench.training.module import BenchmarkModule

log = logging.getLogger(__name__)

CONFIG, CARD = "config.yaml", "README.md"
#: Files that are copied from a run if they exist, and their contents.
_COPIED = {"results.json": "scores", "training.json": "which sizes and feature values training has seen"}
#: Options for places on one machine, or for the origin of weights, and their replacements.
_PLACES = {"root": "data", "store": None, "init_from": None, "default_root_dir": None}


def export_folder(
    module: BenchmarkModule,
    data: Benchmark,
    run: RunFolder,
    checkpoint: Path,
    output: Path,
    licence: str | None = None,
    further: Mapping[str, tuple[bytes, str]] | None = None,
) -> Path:
    """Write a folder that `graphbench.load` and the Hub can read; it appears when it is complete.

    Args:
        module: the model, for the card.
        data: its benchmark, which need not be open.
        run: the run whose configuration and scores are used.
        checkpoint: the checkpoint whose weights are used, all of them, bit for bit.
        output: the folder; it may exist if it is empty.
        licence: of the weights; None if not stated.
        further: additional files: name -> content and description.

    Returns:
        `output`.

    Raises:
        BadInput: `output` is a file or not empty, or the model stores something that safetensors cannot.
        CorruptData: checkpoint or configuration cannot be read.
        GraphbenchError: the folder cannot be written.
    """
    check_free(output)
    state = load_checkpoint(checkpoint)["state_dict"]
    files = {WEIGHTS: "the weights", CONFIG: "the configuration of the training, without paths of its machine"}
    files |= {name: words for name, words in _COPIED.items() if (run.path / name).is_file()}
    files |= {name: words for name, (_, words) in (further or {}).items()}
    card = model_card(module, data, run, files, licence)
    with _appearing(output) as folder:
        about = {"graphbench": __version__, "architecture": type(module.architecture).__name__}
        about[SPECIFICATION] = json.dumps(dataclasses.asdict(module.spec))  # names of targets, for `init_from`
        save_weights(state, folder / WEIGHTS, about)
        # Read back immediately: the run may no longer exist when this is loaded.
        if not same_weights(read_weights(folder / WEIGHTS), state):
            raise GraphbenchError(f"The weights in {folder / WEIGHTS} are not those that were written: a broken disk?")
        write_text(folder / CONFIG, _portable_text(run))
        for name in _COPIED:
            if name in files:
                shutil.copyfile(run.path / name, folder / name)
        for name, (content, _) in (further or {}).items():
            (folder / name).write_bytes(content)
        write_text(folder / CARD, card)
    return output


def check_free(output: Path) -> None:
    """Refuse a file, and a folder that is not empty."""
    if output.is_file():
        raise BadInput(f"--output {output}: this is a file; name a folder, which is created if missing.")
    if output.is_dir() and any(output.iterdir()):
        raise BadInput(f"--output {output}: this folder has files already; name another, or remove it.")


def is_exported(folder: Path) -> bool:
    """Return whether a folder was written by `export_folder`, and is not a run."""
    return all((folder / name).is_file() for name in (WEIGHTS, CONFIG, CARD))


def portable(config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Remove the paths of the machine from a configuration: others cannot use them, and should not see them.

    Files named by an absolute path keep the last part of their name.

    Returns:
        The configuration, and the options that were changed.

    Examples:
        >>> portable({"data": {"file": "/home/me/mine.csv", "root": "data"}})
        ({'data': {'file': 'mine.csv', 'root': 'data'}}, ['data.file'])
    """
    changed: list[str] = []
    return {key: _portable(value, str(key), changed) for key, value in config.items()}, changed


def _portable(value: Any, name: str, changed: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _portable(item, f"{name}.{key}", changed) for key, item in value.items()}
    if isinstance(value, list):
        return [_portable(item, f"{name}.{number}", changed) for number, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    option = name.rpartition(".")[2]
    path = next((kind(value) for kind in (PurePosixPath, PureWindowsPath) if kind(value).is_absolute()), None)
    if option in _PLACES and (path is not None or option == "init_from"):
        changed.append(name)
        return _PLACES[option]
    if path is not None and path.name:
        changed.append(name)
        return path.name
    return value


def _portable_text(run: RunFolder) -> str:
    """Return the run's configuration as text, with its original header."""
    try:
        text = run.config.read_text(encoding="utf-8")
        content = load_yaml(text)
        config, changed = portable(content)
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise CorruptData(f"{run.config} cannot be read: {' '.join(str(error).split())}") from error
    if changed:
        log.info("Paths on this machine are removed from %s: %s", CONFIG, ", ".join(changed))
    head = text.partition("\n")[0] + "\n" if text.startswith("#") else ""
    return head + yaml.safe_dump(config, sort_keys=False, allow_unicode=True)


@contextlib.contextmanager
def _appearing(output: Path) -> Iterator[Path]:
    """Create a folder next to `output` that is renamed to it if the block succeeds, and removed otherwise."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-"))
    except OSError as error:
        raise GraphbenchError(f"--output {output} cannot be written: {error.strerror}.") from error
    try:
        yield folder
        folder.chmod(0o755)  # mkdtemp keeps others out
        if output.is_dir():  # empty, see `check_free`; Windows cannot replace folders
            output.rmdir()
        folder.replace(output)
    except OSError as error:
        raise GraphbenchError(f"--output {output} cannot be written: {error.strerror}.") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
