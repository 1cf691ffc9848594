"""ShapeNetPart in the exact layout of the published archive, packed and unpacked."""

import json
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from torch_geometric.datasets import ShapeNet

import graphbench
from graphbench.benchmarks.points.shapenet import ARCHIVE, FOLDER, FOLDERS, PARTS, ShapeNetPart
from graphbench.cli import main
from graphbench.contracts import GraphBatch
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

LISTED = ShapeNetPart.spec
SIZES = (32, 16, 16)  # two and one of each category
FIRST = np.cumsum((0, *PARTS))


def shape(category, number):
    """Return 30 to 49 points whose normals encode their line in the file."""
    generator = np.random.RandomState(100 * category + number)
    count = generator.randint(30, 50)
    points = generator.uniform(-0.3, 0.4, (count, 3)) + category
    normals = np.stack([np.arange(count) / 64, np.full(count, 0.5), np.zeros(count)], axis=1)
    parts = generator.randint(FIRST[category], FIRST[category + 1], count)
    return np.concatenate([points, normals, parts[:, None]], axis=1)


def text(values):
    return "".join(" ".join([*(f"{v:.6f}" for v in row[:6]), f"{row[6]:.6f}"]) + "\n" for row in values)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapenet") / FOLDER
    lists = {"train": [], "val": [], "test": []}
    for category, place in enumerate(FOLDERS.values()):
        (folder / place).mkdir(parents=True)
        for number, split in enumerate(("train", "train", "val", "test")):
            (folder / place / f"shape{number}.txt").write_text(text(shape(category, number)))
            lists[split].append(f"shape_data/{place}/shape{number}")
    (folder / "synsetoffset2category.txt").write_text("".join(f"{k}\t{v}\n" for k, v in FOLDERS.items()))
    (folder / "train_test_split").mkdir()
    for split, names in lists.items():
        (folder / "train_test_split" / f"shuffled_{split}_file_list.json").write_text(json.dumps(names[::-1]))
    return folder


@pytest.fixture
def root(unpacked, tmp_path, monkeypatch):
    monkeypatch.setattr(ShapeNetPart, "spec", replace(LISTED, split_sizes=SIZES))
    shutil.copytree(unpacked, tmp_path / "ShapeNetPart" / FOLDER)
    return tmp_path


def opened(root, **options):
    benchmark = ShapeNetPart(root=str(root), num_points=40, **options)
    benchmark.setup()
    return benchmark


class TestShapeNetPart(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, root):
        self.root = str(root)

    def make_benchmark(self):
        return ShapeNetPart(root=self.root, rotations="z/SO(3)")


def test_listed_specification_has_the_published_numbers():
    assert ShapeNetPart().spec == LISTED
    assert sum(LISTED.split_sizes) == 16_881
    assert ShapeNet.category_ids == FOLDERS
    assert [len(parts) for parts in ShapeNet.seg_classes.values()] == list(PARTS)
    assert [part for parts in ShapeNet.seg_classes.values() for part in parts] == list(range(50))
    assert LISTED.extra["parts"] == " ".join(map(str, PARTS))


def test_shapes_are_those_of_the_files(root):
    table = opened(root).tables["test"]
    for row, category in enumerate(range(15, -1, -1)):  # the list is reversed
        batch, values = table.batch([row]), shape(category, 3)
        assert batch.num_nodes == len(values)
        assert (batch.x == category).all()
        order = (batch.x_dense[:, 0] * 64).round().long()
        assert sorted(order.tolist()) == list(range(len(values)))
        assert order.tolist() != sorted(order.tolist())
        assert torch.equal(batch.y[:, 0], torch.from_numpy(values[order.numpy(), 6]).long())
        centred = values[:, :3] - values[:, :3].mean(0)
        expected = centred / np.linalg.norm(centred, axis=1).max()
        assert np.allclose(batch.pos.numpy(), expected[order.numpy()], atol=1e-3)


def test_archive_is_read_like_the_folder(root, unpacked, tmp_path):
    other = tmp_path / "other" / "ShapeNetPart"
    other.mkdir(parents=True)
    with zipfile.ZipFile(other / ARCHIVE, "w") as archive:
        for file in sorted(unpacked.rglob("*.*")):
            archive.write(file, f"{FOLDER}/{file.relative_to(unpacked)}")
    free, packed = opened(root), opened(tmp_path / "other")
    assert torch.equal(free.tables["train"].columns["pos"], packed.tables["train"].columns["pos"])


def test_points_keep_their_parts_and_categories_when_they_are_drawn(root):
    benchmark = opened(root)
    for generator in (None, torch.Generator().manual_seed(0)):
        batch = benchmark.transform(benchmark.tables["test"].batch([0, 5]), generator)
        sizes = [len(shape(category, 3)) for category in (15, 10)]
        expected = [40, 40] if generator else [min(40, size) for size in sizes]
        assert batch.ptr.diff().tolist() == expected
        for graph, category in ((0, 15), (1, 10)):
            rows, values = batch.batch == graph, shape(category, 3)
            line = (batch.x_dense[rows, 0] * 64).round().long().numpy()
            assert (batch.x[rows] == category).all()
            assert batch.y[rows, 0].tolist() == values[line, 6].tolist()
            assert len(set(line.tolist())) == min(40, len(values))


def test_training_can_have_the_validation_shapes_and_the_test_shapes_validate(root):
    apart, whole = opened(root), opened(root, trainval=True)
    assert whole.spec.split_sizes == (48, 16, 16)
    assert [len(whole.tables[split]) for split in ("train", "val", "test")] == [48, 16, 16]
    joined = torch.cat([apart.tables[split].columns["pos"] for split in ("train", "val")])
    assert torch.equal(whole.tables["train"].columns["pos"], joined)
    for split in ("val", "test"):
        assert torch.equal(whole.tables[split].columns["pos"], apart.tables["test"].columns["pos"])
    assert ShapeNetPart(trainval=True).spec.extra["parts"] == LISTED.extra["parts"]
    assert ShapeNetPart().spec == ShapeNetPart.spec
    with pytest.raises(BadInput, match="trainval must be one of True, False"):
        ShapeNetPart(trainval="both")


def test_a_file_that_announces_too_many_rows_is_a_problem_of_that_file(tmp_path):
    (tmp_path / "Chair").mkdir()
    with (tmp_path / "Chair" / "bad.npy").open("wb") as stream:
        header = {"descr": "<f8", "fortran_order": False, "shape": (10**13, 6)}
        np.lib.format.write_array_header_1_0(stream, header)
    np.save(tmp_path / "Chair" / "good.npy", np.array([[0, 0, 0, 0, 0, 1.0], [1, 0, 0, 0, 0, 1]]))
    (part,) = ShapeNetPart().read_input(str(tmp_path))
    assert part.rows == [1]
    assert "cannot be read as points" in part.problems[0]


def test_y_is_upright(root):
    turns = opened(root, rotations="z/SO(3)").tables["test"].columns["rotation"]
    upright = opened(root, rotations="z/z").tables["test"].columns["rotation"]
    assert torch.equal(upright[:, :, 1], torch.eye(3)[1].expand(16, 3))
    assert not torch.allclose(turns[:, :, 1], upright[:, :, 1])


def test_absent_shapes_say_what_to_fetch(tmp_path):
    with pytest.raises(MissingData, match=r"benchmark_v0_normal.zip from https://shapenet.cs.stanford.edu"):
        ShapeNetPart(root=str(tmp_path)).prepare_data()


@pytest.mark.parametrize(
    ("name", "content", "error", "complaint"),
    [
        ("02691156/shape0.txt", "1 2 3 4 5 6", CorruptData, "seven numbers"),
        ("02691156/shape0.txt", "1 2 3 4 5 six 0", CorruptData, "not a number"),
        ("02691156/shape0.txt", "1 2 3 4 5 6 1 2\n3 4 5 6 7 8\n", CorruptData, "seven numbers"),
        ("02691156/shape0.txt", "1 2 3 4 5 6 7.0\n", CorruptData, "the part 7; those of its category are 0 to 3"),
        ("02691156/shape0.txt", None, MissingData, "lacks 02691156/shape0.txt"),
        ("synsetoffset2category.txt", "Airplane 1\n", CorruptData, "16 published categories"),
        ("train_test_split/shuffled_val_file_list.json", "[", CorruptData, "does not list shapes"),
        ("train_test_split/shuffled_val_file_list.json", '["x/1/2"]', CorruptData, "lists x/1/2"),
    ],
)
def test_damaged_files_are_told(root, name, content, error, complaint):
    file = root / "ShapeNetPart" / FOLDER / name
    if content is None:
        file.unlink()
    else:
        file.write_text(content)
    with pytest.raises(error, match=complaint):
        opened(root)


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_shape_stands_in_one_list_and_once(root, split):
    lists = root / "ShapeNetPart" / FOLDER / "train_test_split"
    twice = json.loads((lists / "shuffled_train_file_list.json").read_text())[-1]
    file = lists / f"shuffled_{split}_file_list.json"
    file.write_text(json.dumps([twice, *json.loads(file.read_text())[1:]]))
    with pytest.raises(CorruptData, match=f"name {twice.partition('/')[2]}.txt 2 times"):
        opened(root)


def test_a_link_has_the_category_of_the_folder_that_it_is_in(tmp_path):
    values = np.array([[0, 0, 0, 0, 0, 1.0], [1, 0, 0, 0, 0, 1]])
    for folder in ("Chair", "Table", "store"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "own.npy", values)
    for place, target in (("Chair/link.npy", "Table/own.npy"), ("Table/link.npy", "store/own.npy")):
        (tmp_path / place).symlink_to(tmp_path / target)
    (part,) = ShapeNetPart().read_input(str(tmp_path))
    files = part.frame["file"][part.rows].tolist()
    assert files == ["Chair/link.npy", "Chair/own.npy", "Table/link.npy", "Table/own.npy"]
    assert part.table.columns["x"][part.table.ptr["node"][:-1], 0].tolist() == [4, 4, 15, 15]
    assert list(part.problems.values()) == [part.problems[4]]


@pytest.mark.slow
def test_every_point_of_a_new_shape_is_answered_in_its_order(root, tmp_path):
    run, folder = tmp_path / "run", tmp_path / "new"
    data = ["--data", "ShapeNetPart", "--data.root", str(root), "--data.num_points", "40"]
    assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(run)]) == 0
    clouds = {}
    for name, count, seed in (("Chair/large.txt", 90, 0), ("03001627/small.npy", 7, 1), ("Bag/parts.txt", 12, 2)):
        generator = np.random.RandomState(seed)
        normals = generator.standard_normal((count, 3))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        clouds[name] = np.concatenate([generator.uniform(2, 3, (count, 3)), normals], axis=1)
        (folder / name).parent.mkdir(parents=True)
        if name.endswith(".npy"):
            np.save(folder / name, clouds[name])
        else:
            rows = clouds[name] if "parts" not in name else np.c_[clouds[name], np.full(count, 4.0)]
            np.savetxt(folder / name, rows)
    (folder / "Sofa").mkdir()
    (folder / "Sofa" / "a.txt").write_text("0 0 0 0 0 1\n")
    output = tmp_path / "out.csv"
    assert main(["predict", "--run", str(run), "--input", str(folder), "--output", str(output)]) == 0
    found = pd.read_csv(output, keep_default_na=False)
    assert "its folder 'Sofa' is not a category; expected one of Airplane, Bag" in found.iloc[-1]["problem"]
    module = graphbench.load(run, accelerator="cpu").module
    for name, category in (("Chair/large.txt", 4), ("03001627/small.npy", 4), ("Bag/parts.txt", 1)):
        rows, values = found[found["file"] == name], clouds[name]
        assert rows["node"].astype(int).tolist() == list(range(len(values)))
        centred = values[:, :3] - values[:, :3].mean(0)
        pos = torch.from_numpy(centred / np.linalg.norm(centred, axis=1).max()).half()
        batch = GraphBatch(
            pos=pos.float(), x_dense=torch.from_numpy(values[:, 3:]).half().float(), num_nodes=len(pos), num_graphs=1,
            max_nodes=len(pos), edge_index=torch.zeros(2, 0, dtype=torch.int64), ptr=torch.tensor([0, len(pos)]),
            x=torch.full((len(pos), 1), category), batch=torch.zeros(len(pos), dtype=torch.int64),
            y=torch.zeros(len(pos), 1, dtype=torch.int64),
        )  # fmt: skip
        expected = module.predict(batch).numpy()
        assert rows.filter(like="probability_").to_numpy(float) == pytest.approx(expected, abs=1e-4)
    with pytest.raises(BadInput, match="has no column 'x'"):
        ShapeNetPart().read_input(str(folder), "x")
