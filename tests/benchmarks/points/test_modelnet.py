"""ModelNet40 in the exact layout of the published archive, packed, unpacked, and as PyG leaves it."""

import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from quick import one_of_each
from scipy.spatial import ConvexHull

from graphbench.benchmarks.points.modelnet import ARCHIVE, FOLDER, ModelNet40
from graphbench.errors import BadInput, CorruptData, MissingData
from graphbench.testing.benchmarks import BenchmarkContract

CLASSES = ModelNet40.spec.target_names
LISTED = ModelNet40.spec
SIZES = (80, 40, 40)  # two and one of each class


def off(class_number, number):
    """Return the hull of random points in a box of the class's length; files of odd number join their first lines."""
    points = np.random.RandomState(class_number * 7 + number).uniform(-1, 1, (12, 3)) * [1 + class_number, 1, 1] + 5
    faces = ConvexHull(points).simplices
    lines = [f"{len(points)} {len(faces)} 0", *(" ".join(f"{v:.6f}" for v in p) for p in points)]
    lines += [f"3 {a} {b} {c}" for a, b, c in faces]
    return ("OFF" if number % 2 else "OFF\n") + "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("modelnet") / FOLDER
    for label, name in enumerate(CLASSES):
        for split, numbers in (("train", (1, 2)), ("test", (3,))):
            place = folder / name / split
            place.mkdir(parents=True)
            for number in numbers:
                (place / f"{name}_{number:04}.off").write_text(off(label, number))
    return folder


@pytest.fixture
def root(unpacked, tmp_path, monkeypatch):
    """Return a root folder with the archive."""
    monkeypatch.setattr(ModelNet40, "spec", replace(LISTED, split_sizes=SIZES))
    (tmp_path / "ModelNet40").mkdir()
    with zipfile.ZipFile(tmp_path / "ModelNet40" / ARCHIVE, "w") as archive:
        archive.writestr(f"{FOLDER}/README.txt", "about")
        archive.writestr(f"__MACOSX/{FOLDER}/chair/train/._chair_0001.off", "junk")
        for file in sorted(unpacked.rglob("*.off")):
            archive.write(file, f"{FOLDER}/{file.relative_to(unpacked)}")
    return tmp_path


def opened(root, **options):
    benchmark = ModelNet40(root=str(root), num_points=64, **options)
    benchmark.setup()
    return benchmark


class TestModelNet40(BenchmarkContract):
    complete = True
    reduced = True

    @pytest.fixture(autouse=True)
    def _place(self, root):
        self.root = str(root)

    def make_benchmark(self):
        return ModelNet40(root=self.root, num_points=32, rotations="z/SO(3)")


def test_listed_specification_has_the_published_numbers():
    assert ModelNet40().spec == LISTED
    assert len(CLASSES) == LISTED.num_classes == 40
    assert list(CLASSES) == sorted(CLASSES)
    assert LISTED.split_sizes[0] + LISTED.split_sizes[2] == 12_311


@pytest.mark.parametrize("place", one_of_each(["ModelNet40", "raw", "."]))
def test_folders_hold_what_the_archive_holds(root, unpacked, tmp_path, place):
    other = tmp_path / "other"
    shutil.copytree(unpacked, other / "ModelNet40" / place)
    packed, free = opened(root), opened(other)
    for split in ("train", "test"):
        for name in ("pos", "x_dense", "y"):
            assert torch.equal(packed.tables[split].columns[name], free.tables[split].columns[name])


def hull_of(content):
    """Return `(vertices, faces)` of an OFF text."""
    lines = content.removeprefix("OFF").strip().splitlines()
    count = int(lines[0].split()[0])
    vertices = np.array([line.split() for line in lines[1 : 1 + count]], dtype=float)
    return vertices, np.array([line.split()[1:] for line in lines[1 + count :]], dtype=int)


def test_points_lie_on_the_mesh_with_its_normals(root):
    """Up to one shift and scale of the cloud, every point is in the plane of the face with its normal."""
    batch = opened(root).tables["test"].batch([20])
    vertices, faces = hull_of(off(20, 3))
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    face = (batch.x_dense.double().numpy() @ normals.T).argmax(1)  # every point's normal names its face
    assert np.allclose(batch.x_dense.numpy(), normals[face], atol=2e-3)
    # n . (scale p + shift) = n . a for every point: four unknowns, 64 equations
    points = batch.pos.double().numpy()
    left = np.concatenate([(normals[face] * points).sum(1, keepdims=True), normals[face]], axis=1)
    right = (normals[face] * a[face]).sum(1)
    solution, *_ = np.linalg.lstsq(left, right, rcond=None)
    assert np.abs(left @ solution - right).max() < 0.01 * solution[0]
    assert np.linalg.norm(points, axis=1).max() == pytest.approx(1, abs=2e-3)
    assert np.allclose(points.mean(0), 0, atol=2e-3)


def test_test_shapes_validate_unless_some_are_held_out(root):
    published, apart = opened(root), opened(root, held_out=10)
    assert torch.equal(published.tables["val"].columns["pos"], published.tables["test"].columns["pos"])
    assert [len(apart.tables[s]) for s in ("train", "val", "test")] == [70, 10, 40]
    train = {tuple(row) for row in published.tables["train"].columns["pos"].tolist()}
    assert all(tuple(row) in train for row in apart.tables["val"].columns["pos"].tolist())
    kept = {tuple(row) for row in apart.tables["train"].columns["pos"].tolist()}
    assert not any(tuple(row) in kept for row in apart.tables["val"].columns["pos"].tolist())


def test_resampling_stores_more_points_and_draws_some(root):
    benchmark = opened(root, resample=4)
    batch = benchmark.tables["train"].batch([0, 1])
    assert batch.max_nodes == 256 == benchmark.spec.max_nodes
    first = benchmark.transform(benchmark.tables["train"].batch([0, 1]), torch.Generator().manual_seed(0))
    second = benchmark.transform(benchmark.tables["train"].batch([0, 1]), torch.Generator().manual_seed(1))
    assert first.max_nodes == second.max_nodes == 64
    assert not torch.equal(first.x_dense, second.x_dense)
    fixed = benchmark.transform(batch)
    assert torch.equal(fixed.pos[:64], benchmark.tables["train"].columns["pos"][:64].float())


def test_absent_meshes_say_what_to_fetch(tmp_path):
    with pytest.raises(MissingData, match=r"ModelNet40.zip from https://modelnet.cs.princeton.edu/ModelNet40.zip"):
        ModelNet40(root=str(tmp_path)).prepare_data()


def test_incomplete_folder_is_told(root, unpacked, tmp_path):
    other = tmp_path / "other" / "ModelNet40"
    shutil.copytree(unpacked, other / FOLDER)
    (other / FOLDER / "vase" / "train" / "vase_0002.off").unlink()
    with pytest.raises(BadInput, match=r"the splits have \(79, 40, 40\) graphs instead of \(80, 40, 40\)"):
        opened(tmp_path / "other")
    (other / FOLDER / "vase" / "test").rename(other / FOLDER / "vase" / "Test")
    with pytest.raises(CorruptData, match=r"ModelNet40 has no \.off file in vase/test"):
        opened(tmp_path / "other")


def test_torn_archive_and_torn_mesh_are_told(root, unpacked):
    archive = root / "ModelNet40" / ARCHIVE
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptData, match="not a whole zip file"):
        opened(root)
    shutil.copytree(unpacked, root / "ModelNet40" / FOLDER)
    (root / "ModelNet40" / FOLDER / "airplane" / "train" / "airplane_0001.off").write_text(off(0, 1)[:60])
    with pytest.raises(CorruptData, match=r"airplane_0001\.off"):
        opened(root)


def test_held_out_shapes_must_leave_some():
    with pytest.raises(BadInput, match="held_out must be an integer of at least 0 and at most 9842, but got 9843"):
        ModelNet40(held_out=9_843)


def test_meshes_count_whatever_the_case_of_their_suffix(unpacked, root, tmp_path):
    folder = tmp_path / "capitals" / "ModelNet40" / FOLDER
    shutil.copytree(unpacked, folder)
    for file in folder.rglob("*_0002.off"):
        file.rename(file.with_suffix(".OFF"))
    benchmark = opened(tmp_path / "capitals", store=str(tmp_path / "store"))
    assert [len(benchmark.tables[split]) for split in ("train", "test")] == [SIZES[0], SIZES[2]]
