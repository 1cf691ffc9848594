"""Write the pictures of the tutorials' gallery, from the notebooks that `make docs` executed: `make gallery`."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

from PIL import Image

DOCS = Path(__file__).parents[1]
EXECUTED = DOCS / "_build" / "jupyter_execute" / "tutorials"
PICTURES = DOCS / "tutorials" / "pictures"
WIDTH = 480  # pixels; a card is at most half as wide


def first_picture(notebook: Path) -> Image.Image | None:
    """Return the first figure among the outputs of a notebook; None if it draws none."""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        for output in cell.get("outputs", ()):
            if content := output.get("data", {}).get("image/png"):
                return Image.open(io.BytesIO(base64.b64decode(content))).convert("RGB")
    return None


def main() -> None:
    """Write one PNG for each tutorial that draws something."""
    PICTURES.mkdir(exist_ok=True)
    for notebook in sorted(EXECUTED.glob("*.ipynb")):
        if (picture := first_picture(notebook)) is not None:
            picture.thumbnail((WIDTH, WIDTH))
            picture.quantize(64).save(PICTURES / f"{notebook.stem}.png", optimize=True)


if __name__ == "__main__":
    main()
