"""Users' images: class folders, given splits, IDX files."""

import gzip
import os
import shutil
import struct
import time
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image

from graphbench.benchmarks.sequences.pathfinder import Pathfinder
from graphbench.benchmarks.sequences.sequential_images import SequentialFashionMNIST, SequentialImage
from graphbench.benchmarks.superpixels.base import stratified_rows
from graphbench.benchmarks.superpixels.images import ImageFolder
from graphbench.benchmarks.superpixels.mnist_cifar import CIFAR10Superpixels, DigitsSuperpixels, MNISTSuperpixels
from graphbench.benchmarks.superpixels.own_images import Superpixels
from graphbench.data import package_files
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

if find_spec("skimage") is None:
    pytest.skip("the optional package scikit-image is not installed", allow_module_level=True)


def paint(path, level, seed):
    """Write a bright or dark patch of noise, 16 x 12 or 12 x 16."""
    rng = np.random.RandomState(seed)
    shape = (16, 12, 3) if seed % 2 else (12, 16, 3)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.clip(rng.normal(level, 20, shape), 0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write ten images of each of two classes."""
    root = tmp_path_factory.mktemp("images")
    for name, level in (("bright", 200), ("dark", 40)):
        for number in range(10):
            paint(root / name / f"{number}.png", level, number)
    return root


class TestSuperpixels(BenchmarkContract):
    @pytest.fixture(autouse=True)
    def _place(self, folder, tmp_path):
        self.place = {"images": str(folder), "store": str(tmp_path)}

    def make_benchmark(self):
        return Superpixels(num_classes=2, **self.place)


class TestColouredSuperpixels(BenchmarkContract):
    @pytest.fixture(autouse=True)
    def _place(self, folder, tmp_path):
        self.place = {"images": str(folder), "store": str(tmp_path)}

    def make_benchmark(self):
        slic = {"num_segments": 30, "compactness": 10.0, "surplus": 10, "use_intensity": True}
        return Superpixels(num_classes=2, colour=True, **slic, **self.place)


def test_ids_are_paths_and_labels_follow_them(folder, tmp_path):
    benchmark = Superpixels(str(folder), num_classes=2, store=str(tmp_path))
    benchmark.setup()
    names = []
    for split, size in (("train", 16), ("val", 2), ("test", 2)):
        ids, table = benchmark.ids(split), benchmark.tables[split]
        assert len(ids) == len(table) == size
        labels = table.columns["y"][:, 0].tolist()
        assert labels == [int(name.startswith("dark")) for name in ids]
        brightness = [float(table.batch([row]).x_dense[:, 0].mean()) for row in range(size)]
        assert [value < 0.5 for value in brightness] == [bool(label) for label in labels]
        names += ids
    assert sorted(names) == sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.png"))


def test_given_splits_are_kept(tmp_path):
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        for name, level in (("bright", 200), ("dark", 40)):
            for number in range(count):
                paint(tmp_path / "set" / split / name / f"{number}.png", level, number)
    benchmark = Superpixels(str(tmp_path / "set"), num_classes=2, store=str(tmp_path / "store"))
    benchmark.setup()
    assert [len(benchmark.tables[split]) for split in ("train", "val", "test")] == [6, 4, 2]
    assert benchmark.ids("test") == ["test/bright/0.png", "test/dark/0.png"]


def test_idx_files_are_recognised(tmp_path):
    rng = np.random.RandomState(0)
    for prefix, count in (("train", 24), ("t10k", 5)):
        for kind, array in (
            ("images-idx3", rng.randint(0, 256, (count, 9, 9))),
            ("labels-idx1", rng.randint(0, 10, count)),
        ):
            content = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            path = tmp_path / f"{prefix}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(content + array.astype(np.uint8).tobytes()))
    benchmark = Superpixels(str(tmp_path), store=str(tmp_path / "store"))
    benchmark.setup()
    assert [len(benchmark.tables[split]) for split in ("train", "val", "test")] == [22, 2, 5]
    assert list(benchmark.ids("test")) == [0, 1, 2, 3, 4]
    with pytest.raises(BadInput, match="hold grey images"):
        Superpixels(str(tmp_path), colour=True, store=str(tmp_path / "store")).prepare_data()


def test_changed_images_and_options_are_cut_anew(folder, tmp_path):
    keys = [
        Superpixels(str(folder), num_classes=2).source_key(),
        Superpixels(str(folder), num_classes=2, colour=True).source_key(),
        Superpixels(str(folder), num_classes=2, split_seed=1).source_key(),
        Superpixels(str(folder), num_classes=2, fractions=(0.6, 0.2, 0.2)).source_key(),
        Superpixels(str(folder), num_classes=2, num_segments=50).source_key(),
        Superpixels(str(folder), num_classes=2, use_intensity=True).source_key(),
    ]
    assert len({repr(key) for key in keys}) == len(keys)


def test_images_of_a_large_folder_are_read_once_for_their_checksum(folder, tmp_path, monkeypatch):
    copied, read = tmp_path / "images", []
    shutil.copytree(folder, copied)
    checksum = ImageFolder.checksum
    monkeypatch.setattr(ImageFolder, "checksum", lambda self: read.append(len(self.files)) or checksum(self))
    monkeypatch.setattr(package_files, "SETTLED", 0.05)

    def key():
        time.sleep(0.1)
        return Superpixels(str(copied), num_classes=2, root=str(tmp_path)).image_key()["folder"]

    small = [key(), key()]
    assert len(read) == 2  # small folders are always read
    monkeypatch.setattr(package_files, "LARGE", 1)
    assert {*small, key(), key()} == {small[0]}
    assert len(read) == 3
    image = next(copied.rglob("*.png"))
    stat = image.stat()
    content = bytearray(image.read_bytes())
    content[-1] ^= 1
    image.write_bytes(content)
    os.utime(image, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    changed = key()
    assert changed != small[0]
    image.rename(image.with_name("other.png"))
    assert key() not in (changed, small[0])


def test_damaged_image_is_named_and_nothing_is_stored(tmp_path):
    for number in range(10):
        paint(tmp_path / "set" / "a" / f"{number}.png", 100, number)
        paint(tmp_path / "set" / "b" / f"{number}.png", 100, number)
    (tmp_path / "set" / "b" / "7.png").write_bytes(b"broken")
    with pytest.raises(CorruptData, match=r"7\.png cannot be read as an image"):
        Superpixels(str(tmp_path / "set"), num_classes=2, store=str(tmp_path / "store")).prepare_data()
    assert not [path for path in (tmp_path / "store").iterdir() if path.name != ".locks"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes must be an integer of at least 2"),
        ({"num_classes": 3}, r"holds 2 classes \(bright, dark\), but num_classes is 3"),
        ({"num_segments": 0}, "num_segments must be an integer of at least 1"),
        ({"compactness": 0.0}, "compactness must be above 0"),
        ({"fractions": (0.5, 0.5, 0.5)}, "add up to 1"),
        ({"fractions": (0.95, 0.025, 0.025)}, r"fractions=\[0.95, 0.025, 0.025\]: class bright has too few images, 10"),
    ],
)
def test_options_out_of_range_are_refused(folder, tmp_path, options, message):
    with pytest.raises(BadInput, match=message):
        Superpixels(str(folder), **({"num_classes": 2} | options), store=str(tmp_path)).prepare_data()


@pytest.mark.parametrize("options", [{"fractions": (0.9, 0.1, 0.0)}, {"split_seed": 3}])
def test_options_of_a_random_split_are_refused_where_the_folder_has_one(tmp_path, options):
    for split in ("train", "val", "test"):
        for name in ("a", "b"):
            paint(tmp_path / "set" / split / name / "0.png", 100, 0)
    Superpixels(str(tmp_path / "set"), num_classes=2, store=str(tmp_path)).source_key()
    with pytest.raises(BadInput, match="has a split already"):
        Superpixels(str(tmp_path / "set"), num_classes=2, store=str(tmp_path), **options).source_key()


def test_absent_folder_is_told(tmp_path):
    with pytest.raises(MissingData, match="there is no such folder"):
        Superpixels(str(tmp_path / "nowhere"), store=str(tmp_path)).prepare_data()


def test_stratified_rows_cover_everything_once():
    labels = np.repeat([0, 1, 2], [50, 20, 30])
    rows = stratified_rows(labels, (0.8, 0.1, 0.1), seed=4)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(100))
    assert np.bincount(labels[rows["val"]]).tolist() == [5, 2, 3]
    assert not np.array_equal(rows["val"], stratified_rows(labels, (0.8, 0.1, 0.1), seed=5)["val"])
    assert torch.equal(*(torch.from_numpy(stratified_rows(labels, (0.8, 0.1, 0.1), 4)["test"]) for _ in range(2)))


def test_new_images_get_the_graphs_of_the_fit(folder, tmp_path):
    """An image has the nodes of its training graph, alone or with others; an unreadable image is a problem."""
    benchmark = Superpixels(str(folder), num_classes=2, num_segments=20, store=str(tmp_path))
    benchmark.setup()
    known = {}
    for split, table in benchmark.tables.items():
        for graph, name in enumerate(benchmark.ids(split)):
            known[name] = table.slice(graph, graph + 1)
    new = tmp_path / "new"
    for name in ("dark/3.png", "bright/1.png"):
        (new / name).parent.mkdir(parents=True)
        (new / name).write_bytes((folder / name).read_bytes())
    (new / "bright" / "torn.png").write_bytes(b"torn")
    parts = list(benchmark.read_input(str(new), size=2))
    assert [part.frame["file"].tolist() for part in parts] == [["bright/1.png", "bright/torn.png"], ["dark/3.png"]]
    assert parts[0].rows == [0]
    assert "cannot be read as an image" in parts[0].problems[1]
    for part, name in zip(parts, ("bright/1.png", "dark/3.png"), strict=True):
        nodes = [sorted(map(tuple, t.columns["x_dense"].tolist())) for t in (part.table, known[name])]
        assert nodes[0] == nodes[1]
        alone = next(benchmark.read_input(str(new / name))).table
        assert all(torch.equal(alone.columns[column], part.table.columns[column]) for column in alone.columns)
    assert benchmark.class_labels() == ("bright", "dark")
    assert Superpixels("gone", num_classes=2).class_labels() == ("0", "1")


def test_folders_name_the_classes_of_images_that_are_scored(folder, tmp_path):
    benchmark = Superpixels(str(folder), num_classes=2, num_segments=20, store=str(tmp_path))
    new = tmp_path / "new"
    for name in ("dark/1.png", "more/bright/dark/2.png", "bright/deeper/3.png", "other/4.png", "5.png"):
        (new / name).parent.mkdir(parents=True, exist_ok=True)
        (new / name).write_bytes((folder / "dark" / "1.png").read_bytes())
    (new / "bright" / "0.png").write_bytes(b"torn")
    (part,) = benchmark.read_labelled(str(new))
    names = part.frame["file"].tolist()
    answers = dict(zip([names[row] for row in part.rows], part.table.columns["y"].flatten().tolist(), strict=True))
    known = {"dark/1.png": 1, "more/bright/dark/2.png": 1, "bright/deeper/3.png": 0}
    assert answers == {**known, "other/4.png": -1, "5.png": -1}
    assert list(part.problems) == [names.index("bright/0.png")]


def test_what_is_no_image_is_refused(folder, tmp_path):
    benchmark = Superpixels(str(folder), num_classes=2)
    (tmp_path / "a.csv").write_text("smiles\nC\n")
    for source, said in (
        (tmp_path / "a.csv", "not from this file"),
        (tmp_path, "holds no images"),
        ("gone", "no such"),
    ):
        with pytest.raises(BadInput, match=said):
            list(benchmark.read_input(str(source)))
    with pytest.raises(BadInput, match="no column 'smiles'"):
        benchmark.read_input(str(folder), "smiles")
    assert len(next(benchmark.read_input(str(folder / "dark" / "3.png"))).table) == 1


@pytest.mark.parametrize(("fractions", "sizes"), [((0.9, 0.1, 0.0), (18, 2, 0)), ((1.0, 0.0, 0.0), (20, 0, 0))])
def test_shares_of_zero_leave_splits_out(folder, tmp_path, fractions, sizes):
    benchmark = Superpixels(images=str(folder), num_classes=2, store=str(tmp_path), fractions=fractions)
    benchmark.prepare_data()
    benchmark.setup("fit")
    assert tuple(len(benchmark.tables[split]) for split in ("train", "val", "test")) == sizes
    assert [len(batch.y) for batch in benchmark.train_dataloader()]


def _grey(side):
    return Image.fromarray(np.random.RandomState(0).randint(0, 256, (side, side), dtype=np.uint8))


def _colour(side):
    return Image.fromarray(np.random.RandomState(0).randint(0, 256, (side, side, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("benchmark", "image"),
    [
        (Superpixels("gone", num_segments=20), _grey(20)),
        (Superpixels("gone", num_segments=20, colour=True), _colour(20)),
        (MNISTSuperpixels(), _grey(28)),
        (CIFAR10Superpixels(), _colour(32)),
        (DigitsSuperpixels(), _grey(8)),
        (SequentialImage(), _colour(32)),
        (SequentialFashionMNIST(), _grey(28)),
        (Pathfinder(), _grey(32)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_images_from_python_are_those_of_files(benchmark, image, tmp_path):
    image.save(tmp_path / "one.png")
    (of_file,) = benchmark.read_input(str(tmp_path / "one.png"))
    (part,) = benchmark.read_objects([image, np.asarray(image)])
    assert part.rows == [0, 1]
    for graph in (0, 1):
        columns = part.table.slice(graph, graph + 1).columns
        assert all(torch.equal(values, of_file.table.columns[name]) for name, values in columns.items())


def test_arrays_that_are_no_images_are_problems():
    pixels = np.zeros((6, 5, 3), dtype=np.uint8)
    arrays = [pixels[0], pixels[..., :2], pixels.astype(np.float32), pixels[:0], np.zeros((6, 5), dtype=np.uint8)]
    (part,) = Superpixels("gone", num_classes=2, num_segments=4).read_objects(arrays)
    assert part.rows == [4]
    assert [sorted(part.problems), len(part.frame)] == [[0, 1, 2, 3], 5]
    with pytest.raises(BadInput, match="input 1 is of type Tensor"):
        Superpixels("gone", num_classes=2).read_objects([pixels, torch.zeros(6, 5)])
