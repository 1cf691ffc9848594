"""Folders of images: classes, splits, checksums, and files that are not images."""

import numpy as np
import pytest
from PIL import Image

from graphbench.benchmarks.superpixels.images import (
    ImageFiles,
    LabelledImages,
    as_pixels,
    find_images,
    image_files,
    read_image,
)
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


@pytest.mark.parametrize("place", ["x.png", "cat/deeper/x.png", "Train/cat/x.png", "train/cat/x.png"])
def test_images_outside_of_class_folders_are_told(folder, place):
    picture(folder / place)
    (folder / "train").mkdir(exist_ok=True)
    with pytest.raises(BadInput, match=rf"outside of the class folders: 1, such as {place}.*train, val, test"):
        find_images(folder)


@pytest.mark.parametrize("place", ["x.png", "more/cat/x.png", "train/x.png", "train/cat/deeper/x.png"])
def test_images_outside_of_the_classes_of_splits_are_told(tmp_path, place):
    for split in ("train", "val", "test"):
        picture(tmp_path / split / "cat" / "y.png")
    picture(tmp_path / place)
    with pytest.raises(BadInput, match=rf"1, such as {place}\. Put them into train/CLASS or val/CLASS or test/CLASS"):
        find_images(tmp_path)


def test_fit_and_predict_read_the_same_files_of_a_folder(folder, tmp_path_factory, caplog):
    picture(folder / "cat" / "._b.png")
    picture(folder / ".hidden" / "x.png")
    picture(folder / "cat" / ".checkpoints" / "b.png")
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    picture(elsewhere / "E.PNG")
    (folder / "eel").symlink_to(elsewhere)
    with caplog.at_level("INFO"):
        found = find_images(folder)
    assert found.names() == ["ant/c.bmp", "cat/a.jpg", "cat/b.png", "eel/E.PNG"]
    assert image_files(folder, None, "") == (list(found.files), folder)
    assert "left out: 1 (.txt)" in caplog.text


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


@pytest.mark.parametrize(("kind", "name"), [("u2", "x.png"), ("i4", "x.tif"), ("f4", "x.tif")])
@pytest.mark.parametrize("colour", [False, True])
def test_pixels_that_eight_bits_would_cut_off_are_told(tmp_path, kind, name, colour):
    image = Image.fromarray(np.arange(0, 6000, 100).reshape(6, 10).astype(kind))
    image.save(tmp_path / name)
    with pytest.raises(BadInput, match=rf"{name} has more than 8 bits"):
        read_image(tmp_path / name, colour)
    with pytest.raises(BadInput, match=r"^the file has more than 8 bits"):
        as_pixels(tmp_path / name, colour)
    with pytest.raises(BadInput, match=r"^the image has more than 8 bits"):
        as_pixels(image, colour)


@pytest.mark.parametrize("name", ["x.gif", "x.png", "x.webp", "x.tiff"])
def test_files_of_several_pictures_are_told(tmp_path, name):
    first, second = Image.new("RGB", (6, 4), (250, 10, 10)), Image.new("RGB", (6, 4), (10, 10, 250))
    first.save(tmp_path / name, save_all=True, append_images=[second])
    with pytest.raises(BadInput, match=rf"{name} holds 2 pictures"):
        read_image(tmp_path / name, colour=True)
    with Image.open(tmp_path / name) as opened:
        opened.seek(1)
        assert as_pixels(opened, colour=True)[0, 0].argmax() == 2  # the picture that was selected in Python


def test_photographs_with_previews_are_read(tmp_path):
    first = Image.new("RGB", (6, 4), (250, 10, 10))
    first.save(tmp_path / "x.jpg", format="MPO", save_all=True, append_images=[first.resize((3, 2))])
    assert read_image(tmp_path / "x.jpg", colour=True).shape == (4, 6, 3)


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
