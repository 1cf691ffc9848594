"""Folders of images: classes, splits, checksums, and files that are no images."""

import numpy as np
import pytest
from PIL import Image

from graphbench.benchmarks.superpixels.images import ImageFiles, LabelledImages, find_images, read_image
from graphbench.errors import BadInput, CorruptData, MissingData


def picture(path, colour=(250, 10, 10), size=(6, 4), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path):
    for name, files in {"cat": ("b.png", "a.jpg"), "ant": ("c.bmp",)}.items():
        for file in files:
            picture(tmp_path / name / file)
    (tmp_path / "cat" / "notes.txt").write_text("no image")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


def test_class_folders_are_sorted(folder):
    found = find_images(folder)
    assert found.classes == ("ant", "cat")
    assert found.names() == ["ant/c.bmp", "cat/a.jpg", "cat/b.png"]
    assert found.labels.tolist() == [0, 1, 1]
    assert found.splits is None


def test_given_splits_are_followed(folder):
    for split in ("train", "val", "test"):
        for name in ("ant", "cat"):
            picture(folder / "sets" / split / name / f"{split}.png")
    found = find_images(folder / "sets")
    assert found.classes == ("ant", "cat")
    assert found.splits.tolist() == ["train", "train", "val", "val", "test", "test"]
    assert found.labels.tolist() == [0, 1] * 3


def test_class_that_a_split_lacks_is_told(folder):
    for split in ("train", "val", "test"):
        picture(folder / "sets" / split / "cat" / "x.png")
    picture(folder / "sets" / "train" / "dog" / "x.png")
    with pytest.raises(BadInput, match=r"val.dog holds no images"):
        find_images(folder / "sets")


def test_empty_and_absent_folders_are_told(tmp_path):
    with pytest.raises(MissingData, match="there is no such folder"):
        find_images(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="holds no class folders"):
        find_images(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadInput, match="cat holds no images"):
        find_images(tmp_path)


def test_checksum_follows_names_and_contents(folder):
    before = find_images(folder).checksum()
    assert find_images(folder).checksum() == before
    (folder / "cat" / "a.jpg").rename(folder / "cat" / "z.jpg")
    renamed = find_images(folder).checksum()
    picture(folder / "ant" / "c.bmp", colour=(0, 0, 0))
    assert len({before, renamed, find_images(folder).checksum()}) == 3


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "RGBA"])
def test_images_of_any_mode_become_grey_or_coloured(tmp_path, mode):
    picture(tmp_path / "x.png", colour=(255, 255, 255), mode=mode)
    assert read_image(tmp_path / "x.png", colour=False).shape == (4, 6)
    coloured = read_image(tmp_path / "x.png", colour=True)
    assert coloured.shape == (4, 6, 3)
    assert coloured.dtype == np.uint8
    assert (coloured == 255).all()


@pytest.mark.parametrize("content", [b"", b"no image", b"\x89PNG\r\n\x1a\n broken"])
def test_broken_images_are_named(tmp_path, content):
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(CorruptData, match=r"x\.png cannot be read as an image"):
        read_image(tmp_path / "x.png", colour=False)


def test_truncated_image_is_named(tmp_path):
    noise = np.random.RandomState(0).randint(0, 256, (50, 50, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "x.png")
    (tmp_path / "x.png").write_bytes((tmp_path / "x.png").read_bytes()[:3000])
    with pytest.raises(CorruptData, match=r"x\.png cannot be read as an image"):
        read_image(tmp_path / "x.png", colour=True)


def test_files_are_opened_when_asked_for_and_can_be_cut_and_chosen(folder):
    found = find_images(folder)
    files = ImageFiles([*found.files, folder / "absent.png"], colour=True)
    assert len(files) == 4
    assert files[0].shape == (4, 6, 3)
    assert [image.shape for image in files[1:3]] == [(4, 6, 3)] * 2
    assert files.select(np.array([2, 0])).files == [found.files[2], found.files[0]]
    with pytest.raises(CorruptData, match="absent"):
        files[3]


@pytest.mark.parametrize("kind", [np.asarray, list])
def test_chosen_images_keep_their_labels(kind):
    images = kind([np.full((2, 2), number, np.uint8) for number in range(4)])
    chosen = LabelledImages(images, np.arange(4)).select(np.array([3, 1]))
    assert [int(image[0, 0]) for image in chosen.images] == chosen.labels.tolist() == [3, 1]
