"""New images for runs on images row by row, held against the sequences that training makes of the same pixels."""

import numpy as np
import pytest
from PIL import Image

from graphbench.benchmarks.sequences.pathfinder import Pathfinder
from graphbench.benchmarks.sequences.sequential_images import SequentialFashionMNIST, SequentialImage, _tables
from graphbench.benchmarks.superpixels.labelled import LabelledImages
from graphbench.errors import BadInput


def saved(folder, images):
    folder.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (SequentialFashionMNIST(), (28, 28)),
        (SequentialImage(), (32, 32, 3)),
        (Pathfinder(image_size=12, path_dashes=2, distractors=0), (12, 12)),
    ],
    ids=["fashion", "cifar", "pathfinder"],
)
def test_pixels_become_the_tokens_of_training(data, shape, tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (3, *shape)).astype(np.uint8)
    folder = saved(tmp_path / "images", images)
    Image.fromarray(images[0][:5]).save(folder / "small.png")
    (folder / "torn.png").write_bytes(b"\x89PNG")
    (part,) = data.read_input(str(folder))
    assert list(part.frame["file"]) == ["0.png", "1.png", "2.png", "small.png", "torn.png"]
    (truth,) = _tables(LabelledImages(images, np.zeros(3)))
    assert (part.table.columns["x"] == truth.columns["x"]).all()
    assert part.table.num_nodes.tolist() == truth.num_nodes.tolist()
    assert part.rows == [0, 1, 2]
    side = shape[0]
    assert part.problems[3] == f"the image has {side} x 5 pixels; expected {side} x {side}"
    assert "cannot be read as an image" in part.problems[4]


def test_one_image_and_nothing_else(tmp_path):
    image = saved(tmp_path / "images", [np.zeros((28, 28), dtype=np.uint8)]) / "0.png"
    data = SequentialFashionMNIST()
    assert len(next(data.read_input(str(image))).table) == 1
    for source, column, said in (
        (tmp_path, None, None),
        (tmp_path / "none", None, "there is no such folder"),
        (image, "smiles", "reads a folder of images, which has no column"),
    ):
        if said is None:
            assert len(next(data.read_input(str(source), column)).frame) == 1
        else:
            with pytest.raises(BadInput, match=said):
                list(data.read_input(str(source), column))
