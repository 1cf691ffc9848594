"""Load the weights that the authors of a recipe released: `graphbench test --weights official`."""

from __future__ import annotations

import logging
from pathlib import Path

from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request
from graphbench.data.download import by_hand, fetch
from graphbench.errors import BadInput, MissingData
from graphbench.registry.expected import Expected, ReleasedWeights
from graphbench.registry.importing import import_object
from graphbench.runs.released import read_released

log = logging.getLogger(__name__)
#: Value of `--weights` for the file that the recipe names.
OFFICIAL = "official"
#: Folder of released checkpoints below the data folder.
_FOLDER = "weights"


def check_weights(request: Request) -> None:
    """Raise `BadInput` if `--weights` is combined with another source of weights."""
    options = request.options
    if options.weights and (options.run or options.checkpoint):
        other = "--run" if options.run else "--checkpoint"
        raise BadInput(f"--weights loads authors' weights, but {other} loads others: use --config NAME with --weights.")


def load_released(cli: GraphbenchCLI, named: str) -> None:
    """Load into a recipe's model the weights that its authors released: `official`, or a file with the same layout."""
    expected: Expected = cli.config_init["expected"]
    released = expected.chosen.weights
    if released is None:
        raise BadInput(
            f"--weights {named}: no weights of authors are known for this model and data. `graphbench list weights` "
            "shows the recipes that have some."
        )
    path = _fetch(released, Path(getattr(cli.datamodule, "root", "data"))) if named == OFFICIAL else Path(named)
    content = read_released(path, released.member)
    convert = import_object(*released.layout.split(":", 1))
    ours = cli.model.state_dict()
    try:
        cli.model.load_state_dict(convert(content, ours))
    except (BadInput, RuntimeError) as error:
        reason = " ".join(line.strip() for line in str(error).splitlines()[:2])  # torch lists every tensor
        raise BadInput(f"The weights in {path} are not those of this model: {reason}") from error
    log.info("Weights of %s (%s): %d tensors", path, released.page, len(ours))


def _fetch(released: ReleasedWeights, root: Path) -> Path:
    """Return the released file; download it unless it is in the folder of such files."""
    folder, advice = root / _FOLDER, f"The authors offer it at {released.page}."
    if released.url is None and not (folder / released.file).is_file():
        place = by_hand(folder, {released.file: released.page})
        raise MissingData(f"{released.file} is missing, and has no download address. {place}")
    url = released.url or released.page
    return fetch(url, folder, released.file, what=released.file, sha256=released.sha256, advice=advice)
