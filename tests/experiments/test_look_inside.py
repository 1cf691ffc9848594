"""The figures and the table of the tutorial on depth against its records."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from scripts import load_script

from graphbench.benchmarks.echo.synthetic import ECHOSynth

ROOT = Path(__file__).parents[2]
FIGURES = load_script(ROOT / "experiments" / "look_inside" / "figures.py")
RECORDS = ROOT / "experiments" / "records" / "look_inside"


def rows():
    """Yield every run of the records, read independently."""
    for path in RECORDS.glob("*.json"):
        for run in json.loads(path.read_text(encoding="utf-8")):
            yield FIGURES.NAMES[path.stem], run


@pytest.fixture(scope="module")
def runs():
    return FIGURES.read(RECORDS)


def panel(figure, title):
    return next(axes for axes in figure.axes if axes.get_title() == title)


def line(axes, name):
    """Return the points of the line with this label."""
    (found,) = (one for one in axes.containers if one.get_label() == name)
    return np.asarray(found.lines[0].get_xydata())


@pytest.mark.parametrize(
    ("title", "value"),
    [
        ("test MAE [hops]", lambda run: run["test"]),
        ("range of the output [hops]", lambda run: run["by_layer"]["range"]["after"][run["layers"]]),
        ("effective rank of the output", lambda run: run["by_layer"]["effective_rank"]["after"][run["layers"]]),
    ],
)
def test_points_are_means_of_the_records(runs, title, value):
    axes = panel(FIGURES.by_depth(runs), title)
    table = pd.DataFrame([{"model": name, "layers": run["layers"], "value": value(run)} for name, run in rows()])
    assert len(table)
    for name, own in table.groupby("model"):
        means = own.groupby("layers")["value"].mean()
        assert line(axes, name) == pytest.approx(np.stack([means.index, means], axis=1))


def test_lines_by_layer_are_means_of_the_records(runs):
    """Capacity has one value per layer, so a line's length is its depth."""
    figure = FIGURES.by_layer(runs)
    for model in runs:
        drawn = {(len(one.get_ydata()), one.get_linestyle()): one.get_ydata() for one in panel(figure, model).lines}
        expected: dict[tuple[int, str], list[list[float]]] = {}
        for _, run in ((name, run) for name, run in rows() if name == model):
            for when, style in (("after", "-"), ("before", ":")):
                expected.setdefault((run["layers"], style), []).append(run["by_layer"]["capacity"][when])
        assert drawn.keys() == expected.keys()
        for key, lines in expected.items():
            assert drawn[key] == pytest.approx(np.array(lines, dtype=float).mean(0), nan_ok=True)


def test_errors_by_hops_add_up_to_the_score(runs):
    hops, nodes = np.unique(FIGURES.distances(), return_counts=True)
    assert hops.tolist() == list(range(len(hops)))
    for _, run in rows():
        assert np.average(run["error_by_hops"], weights=nodes) == pytest.approx(run["test"], abs=1e-4)


def test_the_table_of_the_tutorial_is_that_of_the_records(runs):
    page = (ROOT / "docs" / "tutorials" / "look-inside.md").read_text(encoding="utf-8")
    assert FIGURES.table(runs) in page


def test_answers_are_those_of_the_test_graphs(tmp_path):
    data = yaml.safe_load((ROOT / "experiments" / "look_inside" / "echo.yaml").read_text(encoding="utf-8"))["data"]
    benchmark = ECHOSynth(store=str(tmp_path), **data["init_args"])
    benchmark.setup()
    table = benchmark.tables["test"]
    assert FIGURES.distances().tolist() == table.columns["y"].flatten().tolist()
    batch = table.batch([0])
    graph = nx.Graph(batch.edge_index.t().tolist())
    (source,) = torch.nonzero(batch.x_dense[:, 0])[:, 0].tolist()
    lengths = nx.single_source_shortest_path_length(graph, source)
    assert FIGURES.distances()[: batch.num_nodes].tolist() == [lengths[node] for node in range(batch.num_nodes)]


def test_counting_hops_is_the_best_that_knows_no_more(monkeypatch):
    monkeypatch.setattr(FIGURES, "distances", lambda: np.array([0.0, 1, 2, 3, 7]))
    assert FIGURES.counting(1) == pytest.approx((1 + 0 + 4) / 5)  # 2, 3 and 7 all answered by 3
    assert FIGURES.counting(7) == 0


def test_a_record_has_what_the_run_wrote(tmp_path):
    """The tested checkpoint is not that of the last epoch, and one layer has no value."""
    folder = tmp_path / "study" / "runs" / "a-0"
    (folder / "diagnostics").mkdir(parents=True)
    results = {
        "metric": "MAE", "seed": 0, "parameters": 10, "steps": 4, "best_epoch": 1, "test": {"test/MAE": 1.5},
    }  # fmt: skip
    (folder / "results.json").write_text(json.dumps(results))
    settings = {"model": {"architecture": {"init_args": {"num_layers": 2}}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (folder / "predictions-test.csv").write_text(
        "id,node,prediction,target\n0,0,1,0\n0,1,1.5,1\n0,2,4.5,1\n0,3,2,2\n", encoding="utf-8"
    )
    for measure, stem in FIGURES.MEASURES.items():
        path = folder / "diagnostics" / f"{stem}.csv"
        if not path.exists():
            path.write_text("epoch,step,layer,module,measure,value,graphs,left_out\n")
        with path.open("a") as file:
            for epoch, values in ((0, ("1", "2")), (1, ("3", "nan")), (2, ("5", "6"))):
                file.writelines(f"{epoch},{epoch},{n},m,{measure},{value},1,0\n" for n, value in enumerate(values))
    (folder / "diagnostics" / "train_test_gap.csv").write_text(
        "epoch,step,split,measure,train,unseen,gap,stage\n1,2,val,MAE,1,2,1,fit\n2,4,val,MAE,0.5,3,2.5,fit\n"
        "1,2,test,MAE,1,1.5,0.5,test\n1,2,test,loss,9,9,0,test\n"
    )
    FIGURES.write_records(tmp_path / "study", tmp_path / "records" / "mine.json")
    (run,) = FIGURES.read(tmp_path / "records")["mine"]
    assert run["by_layer"]["range"] == {"before": [1, 2], "after": [3, None]}
    assert run["error_by_hops"] == [1, 2, 0]
    assert run["gap"] == [{"epoch": 1, "train": 1, "val": 2}, {"epoch": 2, "train": 0.5, "val": 3}]
    assert FIGURES.gap(run) == 0.5
