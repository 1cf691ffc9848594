"""New shapes for runs on point clouds: meshes and points in files, and arrays; through the command line as well."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from scipy.spatial import ConvexHull

import graphbench
from graphbench.benchmarks.points.inputs import Sampling, cloud_of_points, read_points
from graphbench.benchmarks.points.modelnet import FOLDER, ModelNet40
from graphbench.benchmarks.points.solids import Solids
from graphbench.cli import main
from graphbench.errors import BadInput, CorruptData

CLASSES = ("airplane", "chair", "xbox")
POINTS = 32


def off(seed, longest):
    """The hull of some points in a box."""
    points = np.random.RandomState(seed).uniform(-1, 1, (12, 3)) * [longest, 1, 1] + 5
    faces = ConvexHull(points).simplices
    lines = [f"{len(points)} {len(faces)} 0", *(" ".join(f"{v:.6f}" for v in p) for p in points)]
    return "OFF\n" + "\n".join([*lines, *(f"3 {a} {b} {c}" for a, b, c in faces)]) + "\n"


def sphere(count, seed=0):
    """Points of a sphere of radius 2 around (1, 1, 1), whose normals are known."""
    normals = np.random.RandomState(seed).standard_normal((count, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.concatenate([1 + 2 * normals, normals], axis=1)


@pytest.fixture(scope="module")
def meshes(tmp_path_factory):
    """Two meshes for training and two for the test of each of three classes, as the published archive has them."""
    root = tmp_path_factory.mktemp("data")
    for label, name in enumerate(CLASSES):
        for number in range(4):
            place = root / "ModelNet40" / FOLDER / name / ("train" if number < 2 else "test")
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{name}_{number}.off").write_text(off(10 * label + number, 1 + label))
    return root


@pytest.fixture(scope="module")
def run(meshes, tmp_path_factory):
    """The folder of a fit of one epoch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelNet40, "spec", replace(ModelNet40.spec, split_sizes=(6, 6, 6)))
        folder = tmp_path_factory.mktemp("runs") / "shapes"
        data = ["--data", "ModelNet40", "--data.root", str(meshes), "--data.num_points", str(POINTS)]
        options = [
            "--data.resample",
            "2",
            "--data.rotations",
            "none",
            "--trainer.max_epochs",
            "1",
            "--run",
            str(folder),
        ]
        assert main(["fit", *data, *SMALL_MODEL, *options]) == 0
        yield folder


def predicted(run, source, output, *options):
    assert main(["predict", "--run", str(run), "--input", str(source), "--output", str(output), *options]) == 0
    return pd.read_csv(output, keep_default_na=False)


def test_meshes_of_the_test_split_get_its_predictions(run, meshes, tmp_path):
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "split.csv")]) == 0
    expected = pd.read_csv(tmp_path / "split.csv").filter(like="prediction").to_numpy()
    found = predicted(run, meshes / "ModelNet40" / FOLDER, tmp_path / "new.csv")
    assert list(found)[:2] == ["file", "prediction_class"]
    test = found[found["file"].str.contains("/test/")]
    assert test["file"].iloc[0] == "airplane/test/airplane_2.off"
    assert test.filter(like="probability_").to_numpy(float) == pytest.approx(expected, abs=1e-5)
    assert set(found["prediction_class"]) <= set(ModelNet40.spec.target_names)
    assert (found["problem"] == "").all()


def test_every_format_of_the_same_points_gets_the_same_answer(run, tmp_path):
    cloud, folder = sphere(POINTS), tmp_path / "clouds"
    folder.mkdir()
    np.save(folder / "a.npy", cloud)
    np.savetxt(folder / "b.xyz", cloud)
    np.savetxt(folder / "c.csv", cloud, delimiter=",", header="x,y,z,nx,ny,nz", comments="")
    np.savetxt(folder / "d.txt", cloud, delimiter=", ")
    (folder / "e.txt").write_text("1 2 3\n4 5 6\n")
    (folder / "f.npy").write_bytes(b"no array")
    (folder / "g.off").write_text("PLY")
    found = predicted(run, folder, tmp_path / "out.csv")
    assert list(found["file"]) == ["a.npy", "b.xyz", "c.csv", "d.txt", "e.txt", "f.npy", "g.off"]
    values = found.filter(like="probability_").iloc[:4].to_numpy(float)
    assert values == pytest.approx(np.repeat(values[:1], 4, axis=0), abs=1e-6)
    assert list(found["problem"][:4]) == [""] * 4
    for row, said in ((4, "there are 3 instead of six numbers"), (5, "cannot be read as points"), (6, "not in OFF")):
        assert said in found["problem"][row]
        assert found["prediction_class"][row] == ""


def test_arrays_of_python_are_clouds(run, tmp_path):
    model = graphbench.load(run, accelerator="cpu")
    cloud = sphere(POINTS)
    np.save(tmp_path / "a.npy", cloud)
    expected = predicted(run, tmp_path / "a.npy", tmp_path / "out.csv").filter(like="probability_").to_numpy(float)
    for given in (cloud, [cloud], [torch.from_numpy(cloud)]):
        assert model.predict(given).filter(like="probability_").to_numpy() == pytest.approx(expected, abs=1e-6)
    with pytest.raises(BadInput, match="input 0 is of type str; expected arrays or tensors"):
        model.predict(["chair"])
    nodes = model.embed([cloud, sphere(5)], level="node")
    assert len(nodes) == 2 * POINTS


@pytest.mark.slow
def test_wrong_sources_are_one_line(run, tmp_path, capsys):
    (tmp_path / "shape.stl").write_text("solid")
    (tmp_path / "empty").mkdir()
    for source, said in (
        (tmp_path / "shape.stl", "shapes are read from a folder, or from one of .off, .npy"),
        (tmp_path / "empty", "holds no shapes"),
        (tmp_path / "missing.off", "there is no such folder or file"),
    ):
        assert main(["predict", "--run", str(run), "--input", str(source), "--output", str(tmp_path / "o.csv")]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert said in told[0]
    assert not (tmp_path / "o.csv").exists()


def test_a_cloud_is_centred_and_sampled_or_repeated():
    sampling = Sampling(POINTS, POINTS, 0)
    points, normals = cloud_of_points(sphere(POINTS), "a", sampling)
    assert points.dtype == np.float16
    assert points.astype(float).mean(0) == pytest.approx(0, abs=1e-3)
    assert np.linalg.norm(points.astype(float), axis=1).max() == pytest.approx(1, abs=1e-3)
    assert normals == pytest.approx(sphere(POINTS)[:, 3:].astype(np.float16))
    few, _ = cloud_of_points(sphere(10), "a", sampling)
    assert (few[10:20] == few[:10]).all()
    many = sphere(500)
    _, chosen = cloud_of_points(many, "a", sampling)
    assert len({tuple(row) for row in chosen.tolist()}) == POINTS
    assert (chosen == cloud_of_points(many, "a", sampling)[1]).all()
    assert (chosen != cloud_of_points(many, "b", sampling)[1]).any()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((4, 6)), "have 0 on average"),
        (np.concatenate([sphere(4)[:, :3], np.full((4, 3), 200.0)], 1), "no normals of length 1: they have 346.4"),
        (np.full((4, 6), np.nan), "not finite"),
        (np.zeros((0, 6)), "there are no points"),
        (np.zeros(6), "values of shape"),
        (np.array([["a"] * 6]), "values of shape"),
    ],
)
def test_what_is_no_cloud_is_told(values, said):
    with pytest.raises(BadInput, match=said):
        cloud_of_points(values, "a", Sampling(4, 4, 0))


def test_lines_of_other_widths_are_refused_and_pickles_are_not_run(tmp_path):
    (tmp_path / "a.txt").write_text("1 2 3 0 0 1\n1 2 3\n")
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name in ("a.txt", "b.npy"):
        with pytest.raises(CorruptData, match="cannot be read as points"):
            read_points(tmp_path / name)


def test_solids_read_shapes_too(tmp_path):
    np.save(tmp_path / "a.npy", sphere(POINTS))
    (part,) = Solids(num_points=POINTS, sizes=(36, 36, 36)).read_input(str(tmp_path))
    assert part.rows == [0]
    assert part.table.num_nodes.tolist() == [POINTS]
