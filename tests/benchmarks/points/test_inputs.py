"""New inputs for models of point clouds: files of meshes and points, and arrays; also from the command line."""

import io
import os
import sys
from dataclasses import replace
from pathlib import Path

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

POINTS = 32


def off(seed, longest):
    """Return the hull of random points in a box as OFF text."""
    points = np.random.RandomState(seed).uniform(-1, 1, (12, 3)) * [longest, 1, 1] + 5
    faces = ConvexHull(points).simplices
    lines = [f"{len(points)} {len(faces)} 0", *(" ".join(f"{v:.6f}" for v in p) for p in points)]
    return "OFF\n" + "\n".join([*lines, *(f"3 {a} {b} {c}" for a, b, c in faces)]) + "\n"


def sphere(count, seed=0):
    """Return points and normals of a sphere of radius 2 around (1, 1, 1)."""
    normals = np.random.RandomState(seed).standard_normal((count, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.concatenate([1 + 2 * normals, normals], axis=1)


@pytest.fixture(scope="module")
def meshes(tmp_path_factory):
    """Write a training and a test mesh of each class in the layout of the published archive."""
    root = tmp_path_factory.mktemp("data")
    for label, name in enumerate(ModelNet40.spec.target_names):
        for number, split in enumerate(("train", "test")):
            place = root / "ModelNet40" / FOLDER / name / split
            place.mkdir(parents=True)
            (place / f"{name}_{number}.off").write_text(off(10 * label + number, 1 + label))
    return root


@pytest.fixture(scope="module")
def run(meshes, tmp_path_factory):
    """Fit for one epoch and yield the folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelNet40, "spec", replace(ModelNet40.spec, split_sizes=(40, 40, 40)))
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
    expected = pd.read_csv(tmp_path / "split.csv").filter(like="probability_").to_numpy()
    found = predicted(run, meshes / "ModelNet40" / FOLDER, tmp_path / "new.csv")
    assert list(found)[:2] == ["file", "prediction_class"]
    test = found[found["file"].str.contains("/test/")]
    assert test["file"].iloc[0] == "airplane/test/airplane_1.off"
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
    assert len(nodes) == POINTS + 5


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


def test_a_cloud_is_centred_and_a_large_one_is_sampled():
    sampling = Sampling(POINTS, POINTS, 0)
    points, normals = cloud_of_points(sphere(POINTS), "a", sampling)
    assert points.dtype == np.float16
    assert points.astype(float).mean(0) == pytest.approx(0, abs=1e-3)
    assert np.linalg.norm(points.astype(float), axis=1).max() == pytest.approx(1, abs=1e-3)
    assert normals == pytest.approx(sphere(POINTS)[:, 3:].astype(np.float16))
    few, directions = cloud_of_points(sphere(10), "a", sampling)
    assert few.shape == (10, 3)
    assert directions == pytest.approx(sphere(10)[:, 3:].astype(np.float16))
    many = sphere(500)
    _, chosen = cloud_of_points(many, "a", sampling)
    assert len({tuple(row) for row in chosen.tolist()}) == POINTS
    assert (chosen == cloud_of_points(many, "a", sampling)[1]).all()
    assert (chosen != cloud_of_points(many, "b", sampling)[1]).any()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.zeros((4, 6)), "mean length is 0"),
        (np.concatenate([sphere(4)[:, :3], np.full((4, 3), 200.0)], 1), "not unit normals: their mean length is 346.4"),
        (np.full((4, 6), np.nan), "not finite"),
        (np.zeros((0, 6)), "there are no points"),
        (np.zeros(6), "values of shape"),
        (np.array([["a"] * 6]), "values of shape"),
        (sphere(4)[[2, 2, 2]], "all 3 points are equal, which is not a shape"),
        (sphere(4) + 1j, "type complex128 instead of six numbers"),
        (np.zeros((4, 6), dtype="timedelta64[s]"), "values of shape"),
        (np.concatenate([sphere(4)[:, :3], np.full((4, 3), 1e200)], 1), "not unit normals: their mean length is inf"),
        (np.full((4, 6), np.longdouble("1e4000")), "not finite"),
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


def announced(shape, descr="<f8"):
    """Return an `.npy` file whose header announces an array that is not there."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def written_out(version, header):
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header


#: Contents of `.npy` files that are not an array of points.
NO_ARRAYS = {
    "zip": b"PK\x03\x04garbage",
    "pickle": b"\x80\x04N.",
    "empty": b"",
    "rows": announced((10**13, 6)),
    "overflow": announced((2**62, 2**62, 6)),
    "negative": announced((-1, 6)),
    "cut": announced((40, 6)) + bytes(100),
    "objects": announced((4, 6), "|O"),
    "open": written_out(1, b"{'descr': ((((("),
    "deep": written_out(2, b"(" * 5000),
    "text": written_out(1, b"{'descr': '<f8', 'fortran_order': False, 'shape': ('a', 6)}"),
    "version": written_out(9, b"{}"),
}


@pytest.mark.parametrize("kind", NO_ARRAYS)
def test_a_file_of_numpy_that_is_none_is_a_problem_of_that_file(tmp_path, kind):
    (tmp_path / "bad.npy").write_bytes(NO_ARRAYS[kind])
    np.save(tmp_path / "good.npy", sphere(5))
    (part,) = Solids(num_points=POINTS, sizes=(36, 36, 36)).read_input(str(tmp_path))
    assert list(part.frame["file"]) == ["bad.npy", "good.npy"]
    assert part.rows == [1]
    assert "cannot be read as points" in part.problems[0]


def test_arrays_of_either_order_and_kind_are_read(tmp_path):
    values = sphere(7)
    for name, array in (
        ("c", values),
        ("f", np.asfortranarray(values)),
        ("s", values.astype("f4")),
        ("b", values.astype(">f8")),
    ):
        np.save(tmp_path / f"{name}.npy", array)
        assert read_points(tmp_path / f"{name}.npy") == pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize("text", ["", "\n \n", "x y z\n", "# nothing\n"])
def test_text_without_numbers_is_told(tmp_path, text):
    (tmp_path / "a.xyz").write_text(text)
    with pytest.raises(CorruptData, match="it holds no numbers"):
        read_points(tmp_path / "a.xyz")


@pytest.mark.parametrize(
    "line", ["nx,ny,nz,x,y,z", "x,z,y,nx,nz,ny", "X,Y,Z,red,NX,NY,NZ", '"z","y","x","nz","ny","nx"']
)
def test_a_header_places_its_columns(tmp_path, line):
    values = np.random.RandomState(0).uniform(size=(5, 6)).round(6)
    names = line.replace('"', "").lower().split(",")
    frame = pd.DataFrame(values, columns=["x", "y", "z", "nx", "ny", "nz"]).assign(red=255)[names]
    for mark, suffix in ((",", ".csv"), (" ", ".xyz")):
        for start in ("", "# ", "//"):
            file = tmp_path / f"a{suffix}"
            file.write_text(f"{start}{line.replace(',', mark)}\n" + frame.to_csv(index=False, header=False, sep=mark))
            np.testing.assert_array_equal(read_points(file), values)


def test_headers_that_name_the_places_in_part_are_told_and_others_are_skipped(tmp_path):
    values = np.random.RandomState(0).uniform(size=(5, 6))
    for line in ("x z y a b c", "i x y z", "nx ny z x y w"):
        (tmp_path / "a.xyz").write_text(f"{line}\n" + "\n".join(" ".join(map(str, row)) for row in values.tolist()))
        with pytest.raises(BadInput, match=rf"the header is {line}; expected x y z nx ny nz"):
            read_points(tmp_path / "a.xyz")
    for line in ("x y z", "x y z normal normal normal", "a b c d e f", "# y is up"):
        (tmp_path / "a.xyz").write_text(f"{line}\n" + "\n".join(" ".join(map(str, row)) for row in values.tolist()))
        np.testing.assert_array_equal(read_points(tmp_path / "a.xyz"), values)


def test_text_that_begins_with_a_mark_of_its_encoding_is_read(tmp_path):
    (tmp_path / "a.csv").write_text("1;2;3;0;0;1\n", encoding="utf-8-sig")
    assert read_points(tmp_path / "a.csv").tolist() == [[1, 2, 3, 0, 0, 1]]


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="file names are Unicode there")
def test_a_file_name_that_is_not_utf_8_is_shown_by_its_numbers(run, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, content in (
        (b"b\xffd.xyz", "\n".join(" ".join(map(str, row)) for row in sphere(2 * POINTS))),
        (b"m\xffh.off", off(0, 2)),
    ):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text(content)
    Path(os.fsdecode(os.fsencode(folder) + b"/n\xffn.off")).write_text("OFF\n3 0 0\n")
    found = predicted(run, folder, tmp_path / "out.csv")
    assert list(found["file"]) == [r"b\xffd.xyz", r"m\xffh.off", r"n\xffn.off"]
    assert list(found["problem"] == "") == [True, True, False]
    assert found["problem"][2].startswith("the file has 3 vertices and 0 faces")


@pytest.mark.parametrize("factor", [1e200, 1e-200])
def test_clouds_and_meshes_of_any_scale_are_read_alike(tmp_path, factor):
    cloud = sphere(POINTS)
    far = cloud * np.array([factor] * 3 + [1] * 3)
    sampling = Sampling(POINTS, POINTS, 0)
    assert cloud_of_points(far, "a", sampling)[0] == pytest.approx(cloud_of_points(cloud, "a", sampling)[0], abs=1e-3)
    vertices, head = off(3, 2).splitlines(), "OFF"
    count = int(vertices[1].split()[0])
    moved = [" ".join(repr(float(v) * factor) for v in line.split()) for line in vertices[2 : 2 + count]]
    parts = []
    for name, lines in (("plain", vertices[2 : 2 + count]), ("moved", moved)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mesh.off").write_text("\n".join([head, vertices[1], *lines, *vertices[2 + count :]]) + "\n")
        (part,) = Solids(num_points=POINTS, sizes=(36, 36, 36)).read_input(str(tmp_path / name))
        parts.append(part.table.columns)
    for column in ("pos", "x_dense"):
        assert parts[0][column].numpy() == pytest.approx(parts[1][column].numpy(), abs=2e-3)


def test_solids_read_shapes_too(tmp_path):
    np.save(tmp_path / "a.npy", sphere(POINTS))
    np.save(tmp_path / "b.npy", sphere(5))
    np.save(tmp_path / "c.npy", sphere(50))
    (part,) = Solids(num_points=POINTS, sizes=(36, 36, 36)).read_input(str(tmp_path))
    assert part.rows == [0, 1, 2]
    assert part.table.num_nodes.tolist() == [POINTS, 5, POINTS]
