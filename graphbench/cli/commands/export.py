"""`graphbench export` and `graphbench push`: write a run's model for others, or upload it to the Hugging Face Hub."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphbench.cli.parsers import CommandParser, folder_to_write
from graphbench.errors import BadInput
from graphbench.runs import RunFolder, hub

log = logging.getLogger(__name__)
FORMATS = ("weights", "torch", "onnx")
_LICENCE = "licence of the weights for the card, in the Hub's spelling, such as apache-2.0 (default: not stated)"


def export(arguments: Sequence[str]) -> int:
    """Write a run's best model as a folder: safetensors, configuration, scores and a card."""
    parser = CommandParser(
        "export",
        description="Write a run's best model into a folder: weights as safetensors, its configuration, scores and a "
        "model card. graphbench.load(FOLDER) reads it, and `graphbench push` uploads it to the Hugging Face Hub.",
    )
    parser.add_argument("--run", required=True, help="folder of a finished fit")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument("--checkpoint", help="checkpoint to export instead of the best")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="weights",
        help="torch: also the computation, as model.pt2 of torch.export, which runs without graphbench; "
        "onnx: as model.onnx, which runs in onnxruntime without PyTorch",
    )
    parser.add_argument("--licence", help=_LICENCE)
    parser.add_argument("--trust", action="store_true", help="import any code that the run's configuration names")
    options = parser.parse_args(arguments)
    output = folder_to_write("--output", options.output)
    from graphbench.inference.exporting.folder import check_free

    check_free(output)
    run = RunFolder.existing(options.run)
    _write(run, output, options.licence, options.trust, options.checkpoint, options.format)
    log.info("Exported: %s", output)
    return 0


def push(arguments: Sequence[str]) -> int:
    """Upload a run, or a folder of `graphbench export`, to the Hub."""
    parser = CommandParser(
        "push",
        description="Upload a trained model to the Hugging Face Hub, where graphbench.load('hf:owner/name') finds it. "
        "Log in first: hf auth login.",
    )
    parser.add_argument("source", metavar="FOLDER", help="a run, or a folder written by `graphbench export`")
    parser.add_argument("model", metavar="hf:OWNER/NAME", help="target; with @BRANCH a branch other than main")
    parser.add_argument("--private", action="store_true", help="make a new model visible only to its owner")
    parser.add_argument("--message", default="Upload by graphbench", help="message of the commit")
    parser.add_argument("--licence", help=f"{_LICENCE}; only for a run")
    parser.add_argument("--trust", action="store_true", help="import any code that the run's configuration names")
    options = parser.parse_args(arguments)
    model, source = hub.HubModel.parse(options.model), Path(options.source)
    from graphbench.inference.exporting import is_exported

    if is_exported(source):
        if options.licence:
            raise BadInput(
                f"--licence {options.licence}: {source} already has a card. Edit its README.md, or push the run."
            )
        log.info("Pushed: %s", hub.push(source, model, options.message, options.private))
        return 0
    run = RunFolder.existing(source)
    with tempfile.TemporaryDirectory(prefix="graphbench-") as folder:
        exported = Path(folder) / "model"
        _write(run, exported, options.licence, options.trust)
        log.info("Pushed: %s", hub.push(exported, model, options.message, options.private))
    return 0


def _write(
    run: RunFolder, output: Path, licence: str | None, trust: bool, checkpoint: str | None = None, form: str = "weights"
) -> None:
    """Export a run; the options are those of `graphbench export`."""
    from graphbench.inference.exporting import export_folder
    from graphbench.inference.loading import load, load_weights
    from graphbench.runs.checkpoints import no_checkpoint, trained_weights

    path = Path(checkpoint) if checkpoint else trained_weights(run)
    if checkpoint and not path.is_file():
        raise BadInput(f"--checkpoint {path}: there is no such file.")
    if not path.is_file():
        raise no_checkpoint(path, run)
    predictor = load(run.path, accelerator="cpu", trust=trust)
    load_weights(predictor.module, path)
    program = None
    if form == "torch":
        from graphbench.inference.exporting.program import program_files

        program = program_files(predictor.module, predictor.data)
    elif form == "onnx":
        from graphbench.inference.exporting.onnx_file import onnx_files

        program = onnx_files(predictor.module, predictor.data)
    export_folder(predictor.module, predictor.data, run, path, output, licence, program)
