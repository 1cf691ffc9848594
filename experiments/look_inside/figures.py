"""Record diagnostics of four graph transformers by depth, and draw the figures of the tutorial.

GPS, SFi-Former, SFT and DeepGraph with 4, 8, 16 and 24 layers and three seeds count the hops to a source (`echo.yaml`,
and a file for each model). The trainings are run by `graphbench study`, which resumes where it stopped and writes a
page for each model; about an hour on one core in total:

    for model in gps sfi-former sft deepgraph; do
        graphbench study --model experiments/look_inside/echo.yaml experiments/look_inside/$model.yaml \
            --questions depth --depths 4 8 16 24 --output runs/look/$model
    done
    python experiments/look_inside/figures.py --runs runs/look
    python experiments/look_inside/figures.py

The second to last command reads the finished runs into `experiments/records/look_inside`, one file per model, and
draws; the last one draws from the records only, and prints the table of the tutorial. Means and bars (standard
deviations) are over seeds. To add your own model, put a configuration next to these: its runs are another folder of
runs/look, and its name is that of the folder.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from graphbench.benchmarks.echo.synthetic import echo_graphs
from graphbench.data.files.foreign import load_yaml
from graphbench.experiments import provenance
from graphbench.runs import RunFolder
from graphbench.runs.tables import load_table

ROOT = Path(__file__).parents[2]
RECORDS, PICTURES = ROOT / "experiments" / "records" / "look_inside", ROOT / "docs" / "tutorials" / "pictures"
NAMES = {"gps": "GPS", "sfi-former": "SFi-Former", "sft": "SFT", "deepgraph": "DeepGraph"}
#: Measure by layer -> the table that has it.
MEASURES = {
    "capacity": "attention_capacity",
    "entropy": "attention_capacity",
    "effective_rank": "rank_progression",
    "similarity": "rank_progression",
    "range": "range",
    "gradient_norm": "gradients",
}
COLOURS, MARKERS = mpl.colormaps["tab10"].colors, "osD^vPX"  # type: ignore[attr-defined]
_DIGITS = 5
Run = Mapping[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Read runs, if given, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder with the study of each model")
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    options = parser.parse_args(arguments)
    if options.runs is not None:
        for study in sorted(path.parent for path in options.runs.glob("*/runs")):
            write_records(study, options.records / f"{study.name}.json")
    runs = read(options.records)
    options.pictures.mkdir(parents=True, exist_ok=True)
    figures = {"depth": by_depth(runs), "hops": by_hops(runs), "layers": by_layer(runs)}
    for name, figure in figures.items():
        path = options.pictures / f"look-inside-{name}.png"
        figure.savefig(path, dpi=110, metadata={"Software": None})
        print(path)
    print(table(runs))


def write_records(study: Path, path: Path) -> None:
    """Write the record of every finished run of a study, one per line, by depth and seed."""
    folders = [folder for folder in (study / "runs").iterdir() if "test" in RunFolder(folder).read_results()]
    records = sorted((record(folder) for folder in folders), key=lambda run: (run["layers"], run["seed"]))
    if not records:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("[\n" + ",\n".join(json.dumps(one) for one in records) + "\n]\n", encoding="utf-8")


def record(folder: Path) -> dict[str, Any]:
    """Return the record of a run: scores, errors by distance, and measures by layer before and after training.

    "After training" is the tested checkpoint, whose rows the test wrote into the tables.
    """
    results = RunFolder(folder).read_results()
    settings = load_yaml((folder / "config.yaml").read_text(encoding="utf-8"))
    metric = results["metric"]
    gap = _table(folder, "train_test_gap").query("measure == @metric")
    return {
        "layers": settings["model"]["architecture"]["init_args"]["num_layers"],
        "seed": results["seed"],
        "parameters": results["parameters"],
        "steps": results["steps"],
        "tested_epoch": results["best_epoch"],
        "test": round(results["test"][f"test/{metric}"], _DIGITS),
        "train_of_tested": round(float(gap.query("stage == 'test'")["train"].iloc[-1]), _DIGITS),
        "error_by_hops": error_by_hops(folder),
        "gap": [
            {"epoch": int(row["epoch"]), "train": round(row["train"], _DIGITS), "val": round(row["unseen"], _DIGITS)}
            for _, row in gap.query("stage == 'fit'").iterrows()
        ],
        "by_layer": {measure: _by_layer(folder, measure, results["best_epoch"]) for measure in MEASURES},
        **{name: provenance(folder)[name] for name in ("seconds", "hardware", "versions", "commit")},
    }


def error_by_hops(folder: Path) -> list[float]:
    """Return the mean absolute error of the test nodes 0, 1, 2, ... hops from their source."""
    answers = pd.read_csv(folder / "predictions-test.csv")
    predicted, true = (answers.filter(regex=f"^{kind}").iloc[:, 0] for kind in ("prediction", "target"))
    errors = (predicted - true).abs().groupby(true.astype(int)).mean()
    return [round(float(error), _DIGITS) for error in errors.sort_index()]


def _by_layer(folder: Path, measure: str, tested: int) -> dict[str, list[float | None]]:
    """Return a measure of every layer before training and of the tested checkpoint; None if no graph has it."""
    rows = _table(folder, MEASURES[measure]).query("measure == @measure")
    by_stage = {}
    for name, epoch in (("before", 0), ("after", tested)):
        values = rows[rows["epoch"] == epoch].set_index("layer")["value"].sort_index()
        places = range(int(rows["layer"].max()) + 1) if len(rows) else ()
        by_stage[name] = [_rounded(values.get(layer)) for layer in places]
    return by_stage


def _rounded(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else float(f"{value:.{_DIGITS}g}")


def _table(folder: Path, stem: str) -> pd.DataFrame:
    """Read a table of diagnostics with numbers as numbers."""
    frame = pd.DataFrame(load_table(folder / "diagnostics" / f"{stem}.csv").as_dicts())
    for column in set(frame) & {"epoch", "layer", "value", "train", "unseen"}:
        frame[column] = pd.to_numeric(frame[column], errors="coerce")
    return frame


def read(folder: Path) -> dict[str, list[Run]]:
    """Read the records: model -> its runs; the four models of the tutorial first."""
    files = {path.stem: path for path in folder.glob("*.json")}
    order = [*(stem for stem in NAMES if stem in files), *sorted(files.keys() - NAMES.keys())]
    return {NAMES.get(stem, stem): json.loads(files[stem].read_text(encoding="utf-8")) for stem in order}


def over_seeds(runs: Sequence[Run], value: Callable[[Run], float | None]) -> dict[int, tuple[float, float, int]]:
    """Return mean, standard deviation (NaN for one seed) and number of seeds of a value, by depth."""
    values_at: dict[int, list[float]] = {}
    for run in runs:
        number = value(run)
        if number is not None:
            values_at.setdefault(run["layers"], []).append(number)
    return {
        depth: (mean(values), stdev(values) if len(values) > 1 else np.nan, len(values))
        for depth, values in sorted(values_at.items())
    }


def layers(runs: Sequence[Run], depth: int, measure: str, when: str) -> tuple[np.ndarray, np.ndarray]:
    """Return relative depths and means over seeds of a measure by layer, of the models of one depth."""
    rows = [run["by_layer"][measure][when] for run in runs if run["layers"] == depth]
    values = np.array([[np.nan if number is None else number for number in row] for row in rows])
    return np.arange(values.shape[1]) / depth, values.mean(0)


def of_last_layer(measure: str, when: str = "after") -> Callable[[Run], float | None]:
    """Create a function of a run that returns a measure of its last layer, or of its output."""
    return lambda run: run["by_layer"][measure][when][-1]


def lowest(measure: str, when: str = "after") -> Callable[[Run], float | None]:
    """Create a function of a run that returns the smallest value of a measure after the first layer."""

    def value(run: Run) -> float | None:
        numbers = [number for number in run["by_layer"][measure][when][1:] if number is not None]
        return min(numbers, default=None)

    return value


def gap(run: Run) -> float:
    """Return how much worse the tested model is on test graphs than on training graphs."""
    return float(run["test"] - run["train_of_tested"])


#: Title -> value of a run, scale of the axis.
PANELS: dict[str, tuple[Callable[[Run], float | None], str]] = {
    "test MAE [hops]": (lambda run: run["test"], "linear"),
    "gap: test less training MAE [hops]": (gap, "linear"),
    "range of the output [hops]": (of_last_layer("range"), "linear"),
    "capacity, lowest behind the first layer": (lowest("capacity"), "linear"),
    "effective rank of the output": (of_last_layer("effective_rank"), "linear"),
    "gradient at the input / at the output": (
        lambda run: run["by_layer"]["gradient_norm"]["after"][0] / run["by_layer"]["gradient_norm"]["after"][-1],
        "log",
    ),
}


def by_depth(runs: Mapping[str, Sequence[Run]]) -> Figure:
    """Draw scores and the last layer's measures over the number of layers."""
    figure = Figure(figsize=(10, 5.8), layout="constrained")
    panels = dict(zip(PANELS, figure.subplots(2, 3).flat, strict=True))
    depths = depths_of(runs)
    for title, (value, scale) in PANELS.items():
        axes = panels[title]
        for number, (name, model_runs) in enumerate(runs.items()):
            statistics = over_seeds(model_runs, value)
            means, sds, _ = zip(*statistics.values(), strict=True)
            axes.errorbar(
                list(statistics), means, yerr=np.nan_to_num(sds), capsize=2, label=name,
                color=COLOURS[number], marker=MARKERS[number], markersize=4,
            )  # fmt: skip
        axes.set_yscale(scale)
        axes.set_title(title, fontsize="medium")
        axes.set_xticks(depths)
    score, reach = panels["test MAE [hops]"], panels["range of the output [hops]"]
    score.plot(depths, [counting(depth) for depth in depths], "k:", label="counting one hop a layer")
    reach.axhline(distances().mean(), color="k", linestyle=":", label="every node alike")
    reach.legend(handles=reach.lines[-1:], fontsize="small")
    handles, labels = score.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    for axes in list(panels.values())[3:]:
        axes.set_xlabel("layers")
    return figure


def by_hops(runs: Mapping[str, Sequence[Run]]) -> Figure:
    """Draw the error of nodes by distance from the source, with one line per depth."""
    figure = Figure(figsize=(10, 2.9), layout="constrained")
    row = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    depths = depths_of(runs)
    for axes, (name, model_runs) in zip(row, runs.items(), strict=True):
        for depth in depths_of({name: model_runs}):
            errors = np.mean([run["error_by_hops"] for run in model_runs if run["layers"] == depth], axis=0)
            colour = _colour(depth, depths)
            axes.plot(errors, color=colour, label=f"{depth} layers")
            if depth < len(errors):
                axes.axvline(depth, color=colour, linestyle=":", linewidth=0.8)
        axes.set(title=name, xlabel="hops from the source")
    row[0].set_ylabel("test MAE [hops]")
    row[0].legend(fontsize="small")
    return figure


def by_layer(runs: Mapping[str, Sequence[Run]]) -> Figure:
    """Draw capacity, rank and range along the layers of every model, before and after training."""
    figure = Figure(figsize=(10, 6.8), layout="constrained")
    names = {
        "capacity": "attention capacity",
        "effective_rank": "effective rank",
        "range": "range [hops]",
    }
    grid = figure.subplots(len(names), len(runs), sharex=True, sharey="row", squeeze=False)
    depths = depths_of(runs)
    for row, (measure, title) in zip(grid, names.items(), strict=True):
        for axes, (name, model_runs) in zip(row, runs.items(), strict=True):
            for depth in depths_of({name: model_runs}):
                for when, style in (("after", "-"), ("before", ":")):
                    places, means = layers(model_runs, depth, measure, when)
                    axes.plot(places, means, color=_colour(depth, depths), linestyle=style, linewidth=1.2)
            if measure == "capacity":
                axes.set_title(name)
        row[0].set_ylabel(title)
    handles = [Line2D([], [], color=_colour(depth, depths)) for depth in depths]
    handles += [Line2D([], [], color="grey", linestyle=style) for style in ("-", ":")]
    labels = [*(f"{depth} layers" for depth in depths), "trained", "before training"]
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    for axes in grid[-1]:
        axes.set_xlabel("layer / number of layers")
    return figure


def depths_of(runs: Mapping[str, Sequence[Run]]) -> list[int]:
    """List the numbers of layers of all runs."""
    return sorted({run["layers"] for model_runs in runs.values() for run in model_runs})


def _colour(depth: int, depths: Sequence[int]) -> Any:
    return mpl.colormaps["viridis"](0.9 * depths.index(depth) / max(len(depths) - 1, 1))


@cache
def distances() -> np.ndarray:
    """Return the regenerated targets of all test nodes."""
    data = load_yaml(Path(__file__).with_name("echo.yaml").read_text(encoding="utf-8"))["data"]["init_args"]
    graphs = echo_graphs(data["target"], data["sizes"][2], 0, 2, diameters=tuple(data["diameters"]))
    return graphs.columns["y"].double().flatten().numpy()


def counting(hops: int) -> float:
    """Return the test MAE of predictions that are exact up to `hops`, and beyond it the median of the other targets."""
    further = distances()[distances() > hops]
    return float(np.abs(further - np.median(further)).sum() / len(distances())) if len(further) else 0.0


def table(runs: Mapping[str, Sequence[Run]]) -> str:
    """Return the numbers of the figure by depth as a pipe table."""
    lines = [
        "| model | layers | parameters | seeds | test MAE [hops] | gap | range | capacity | rank |",
        "|---" * 9 + "|",
    ]
    shown = [value for title, (value, _) in PANELS.items() if "gradient" not in title]
    for name, model_runs in runs.items():
        columns = [over_seeds(model_runs, value) for value in shown]
        for depth in columns[0]:
            parameters = next(run["parameters"] for run in model_runs if run["layers"] == depth)
            cells = [_cell(*column[depth][:2]) for column in columns]
            lines.append(f"| {name} | {depth} | {parameters:,} | {columns[0][depth][2]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(value: float, sd: float) -> str:
    return f"{value:.3f}" if np.isnan(sd) else f"{value:.3f} ± {sd:.3f}"


if __name__ == "__main__":
    main()
