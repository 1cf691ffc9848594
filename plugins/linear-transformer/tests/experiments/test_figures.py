"""The command that draws the paper's figures: its points, resuming, one tiny run, constructions against bounds."""

import csv
import importlib
import math
import sys
from pathlib import Path

import pytest
import torch
import yaml

FOLDER = Path(__file__).parents[2] / "experiments"


@pytest.fixture(scope="module")
def modules():
    """Return `points`, `drawing` and `figures`, which import each other like the files of a command."""
    sys.path.insert(0, str(FOLDER))
    try:
        found = {name: importlib.import_module(name) for name in ("points", "drawing", "figures")}
        found["drawing"].GRAPHS = 8  # the pictures' curves are means over 200
        yield found
    finally:
        sys.path.remove(str(FOLDER))
        for name in ("points", "drawing", "figures"):
            sys.modules.pop(name, None)


def test_every_figure_has_its_points(modules):
    points, layers = modules["points"].points, list(modules["points"].LAYERS)
    counts = {figure: len(list(points([figure], layers, 3, "published"))) for figure in (1, 2, 15)}
    assert counts == {1: 3 * 2 * 5 * 3, 2: 2 * 2 * 5 * 3, 15: 4 * 2 * 5 * 3}
    everything = list(points([1, 2, 15], layers, 2, "reduced"))
    assert len(set(everything)) == len(everything)
    assert [point.seed for point in everything] == sorted(point.seed for point in everything)


@pytest.mark.parametrize("recipe", ["published", "reduced"])
def test_nine_layers_are_the_configurations_themselves(modules, recipe):
    """The options of the first point of each file are those in the file."""
    for figure, target, number in ((1, "electric", 0), (15, "electric", 0), (2, "eigenvectors", 5)):
        point = modules["points"].Point(figure, "FC", target, number, 9, 0, recipe)
        config = yaml.safe_load(point.config.read_text())
        for argument in point.arguments()[2:]:
            name, value = argument.removeprefix("--").split("=")
            found = config
            for part in name.split("."):
                found = found[part]
            expected = yaml.safe_load(value)
            assert found == (pytest.approx(expected, rel=1e-3) if isinstance(expected, float) else expected), name


@pytest.mark.slow
def test_demands_and_stack_of_the_notebooks_are_points_of_their_own(modules, tmp_path):
    make = modules["points"].points
    paper, released = (list(make([1, 2], [3], 1, "reduced", *maps)) for maps in ((), (("heat",), True)))
    assert not set(paper) & {point for point in released if point.figure == 1}
    uncentred = {point.target for point in released if not point.centred}
    assert uncentred == {"electric", "resistive"}
    arguments = next(point.arguments() for point in released if point.target == "electric")
    assert "--data.init_args.centred=false" in arguments
    assert "--model.architecture.init_args.frozen=true" in arguments
    rows = [
        {name: str(value) for name, value in vars(point).items()} | {"log_loss": "-1"}
        for point in (*paper, *released)
        if point.figure == 1
    ]
    written = modules["drawing"].draw_all(rows, tmp_path, "reduced")
    assert [path.stem for path in written] == [
        "figure-1-reduced", "figure-1-reduced-frozen", "figure-1-reduced-uncentred-frozen",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["figure-1", "figure-1-published", "figure-2", "figure-15"])
def test_published_tables_have_the_columns_that_the_command_writes(modules, name):
    """A table can be continued or drawn again."""
    table = FOLDER.parent / "results" / f"{name}.csv"
    assert next(iter(csv.DictReader(table.open()))).keys() == set(modules["figures"].COLUMNS)


def test_constructions_keep_to_what_the_lemmas_promise(modules):
    electric = modules["drawing"].constructed("FC", "electric")
    assert all(later < earlier for earlier, later in zip(electric["Lemma 1"], electric["Lemma 1"][1:], strict=False))
    assert electric["Chebyshev"][-1] < electric["Lemma 1"][-1]
    vectors = modules["drawing"].constructed("CSL", "eigenvectors", 5)["Corollary 7"]
    assert all(math.isfinite(loss) and loss <= math.log(2) for loss in vectors)


@pytest.fixture
def short(tmp_path):
    """Return options that make a point one of three steps on a few graphs."""
    return [
        "--data.init_args.batch_size=16", "--data.init_args.sizes=[4,8,16]", f"--data.init_args.root={tmp_path}",
        "--trainer.max_steps=3", "--trainer.accelerator=cpu",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this torch has no Muon: from 2.9")
def test_maps_are_trained_by_both_recipes(modules, short, tmp_path):
    main, out = modules["figures"].main, tmp_path / "out"
    options = ["--families", "CSL", "--layers", "3", "--output", str(out), *short]
    main(["--recipe", "reduced", "--figures", "1", "15", "--targets", "electric", "heat", *options])
    main(["--recipe", "published", "--figures", "1", "--targets", "electric", *options])
    rows = list(csv.DictReader((out / "points.csv").open()))
    assert [(row["recipe"], row["form"], row["target"]) for row in rows] == [
        ("reduced", "general", "electric"), ("reduced", "general", "heat"),
        ("reduced", "efficient", "electric"), ("reduced", "efficient", "heat"),
        ("published", "general", "electric"),
    ]  # fmt: skip
    assert all(math.isfinite(float(row["log_loss"])) for row in rows)
    assert sorted(path.stem for path in out.glob("*.png")) == [
        "figure-1-published", "figure-1-reduced", "figure-15-reduced",
    ]  # fmt: skip


@pytest.mark.slow
def test_sweep_trains_draws_and_goes_on(modules, short, tmp_path):
    main = modules["figures"].main
    common = ["--figures", "2", "--output", str(tmp_path / "out"), *short]
    main([*common, "--layers", "1"])
    rows = list(csv.DictReader((tmp_path / "out" / "points.csv").open()))
    assert [(row["family"], row["num_eigenvectors"]) for row in rows] == [
        ("FC", "5"), ("CSL", "5"), ("FC", "10"), ("CSL", "10"),
    ]  # fmt: skip
    assert all(math.isfinite(float(row["log_loss"])) and row["steps"] == "3" for row in rows)
    assert all((row["log_loss_6"] == "") == (row["num_eigenvectors"] == "5") for row in rows)
    main([*common, "--layers", "1", "3"])
    again = list(csv.DictReader((tmp_path / "out" / "points.csv").open()))
    assert again[:4] == rows
    assert [row["num_layers"] for row in again[4:]] == ["3"] * 4
    assert (tmp_path / "out" / "figure-2-reduced.png").stat().st_size > 10_000


@pytest.mark.slow
def test_maps_are_drawn_from_the_table(modules, tmp_path):
    points = modules["points"].points([1, 15], [1, 9], 2, "reduced")
    rows = [
        {name: str(value) for name, value in vars(point).items()}
        | {"log_loss": str(-point.num_layers - point.seed)}
        | {f"log_loss_{i + 1}": "-1" for i in range(point.num_eigenvectors)}
        for point in points
    ]
    written = modules["drawing"].draw_all(rows, tmp_path, "reduced")
    assert [path.name for path in written] == ["figure-1-reduced.png", "figure-15-reduced.png"]
    assert not modules["drawing"].draw_all(rows, tmp_path, "published")
