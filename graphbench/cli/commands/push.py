"""`graphbench push`: put a trained model on the Hugging Face Hub."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from graphbench.cli.commands.export import LICENCE_HELP, write_export
from graphbench.cli.parsers import CommandParser
from graphbench.errors import BadInput
from graphbench.runs import RunFolder
from graphbench.runs.hub import HubModel, push

log = logging.getLogger(__name__)


def run(arguments: Sequence[str]) -> int:
    """Upload a run, or a folder of `graphbench export`, to the Hub.

    Raises:
        BadInput: there is neither at this place, or the name is none of the Hub.
        GraphbenchError: the Hub refuses or cannot be reached.
    """
    parser = CommandParser(
        "push",
        description="Put a trained model on the Hugging Face Hub, where graphbench.load('hf:owner/name') finds it. Log "
        "in before: hf auth login.",
    )
    parser.add_argument("source", metavar="FOLDER", help="a run, or what `graphbench export` wrote")
    parser.add_argument("model", metavar="hf:OWNER/NAME", help="where to; with @BRANCH another branch than main")
    parser.add_argument("--private", action="store_true", help="only its owner sees the model, if it is a new one")
    parser.add_argument("--message", default="Upload by graphbench", help="message of the commit")
    parser.add_argument("--licence", help=LICENCE_HELP + "; of a run")
    parser.add_argument("--trust", action="store_true", help="import whatever the configuration of the run names")
    own = parser.parse_args(list(arguments))
    model, source = HubModel.parse(own.model), Path(own.source)
    from graphbench.inference.exporting import is_exported

    if is_exported(source):
        if own.licence:
            raise BadInput(
                f"--licence {own.licence}: {source} has its card already. Edit its README.md, or push the run."
            )
        log.info("Pushed: %s", push(source, model, own.message, own.private))
        return 0
    found = RunFolder.existing(source)
    with tempfile.TemporaryDirectory(prefix="graphbench-") as folder:
        exported = Path(folder) / "model"
        write_export(found, exported, licence=own.licence, trust=own.trust)
        log.info("Pushed: %s", push(exported, model, own.message, own.private))
    return 0
