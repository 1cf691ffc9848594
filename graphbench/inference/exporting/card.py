"""Write the card of a model: its training data, its scores, its licence, and how to load it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from graphbench import __version__, registry
from graphbench.contracts import Benchmark, BenchmarkSpec
from graphbench.data.files.cells import markdown_text
from graphbench.data.files.foreign import load_json
from graphbench.errors import BadInput, CorruptData, listed
from graphbench.runs import RunFolder
from graphbench.runs.tables import SCORED, show_number
from graphbench.training.module import BenchmarkModule


def model_card(
    module: BenchmarkModule, data: Benchmark, run: RunFolder, files: Mapping[str, str], licence: str | None
) -> str:
    """Write the text of a model card, as the Hugging Face Hub shows it: YAML for machines, then Markdown for readers.

    The benchmark need not be open. `files` describes the other files; the licence of the weights is in the Hub's
    spelling (`apache-2.0`), None if not stated.
    """
    spec, results = data.spec, run.read_results()
    architecture = type(module.architecture).__name__
    columns, scores = _scores(architecture, spec, results)
    environment = Environment(
        loader=PackageLoader("graphbench.inference.exporting"), undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["text"] = markdown_text
    return environment.get_template("card.md.jinja").render(
        metadata=yaml.safe_dump(_metadata(architecture, spec, results, licence), sort_keys=False, allow_unicode=True),
        architecture=architecture,
        spec=spec,
        parameters=sum(p.numel() for p in module.parameters() if p.requires_grad),
        targets=_targets(spec, data),
        graphs=_graphs(run),
        columns=columns,
        scores=scores,
        arrow="Higher" if spec.higher_is_better else "Lower",
        conditions=_conditions(results),
        requirements=_requirements(module, data),
        example=_example(data),
        licence=licence,
        files=files,
    )


def _metadata(
    architecture: str, spec: BenchmarkSpec, results: Mapping[str, Any], licence: str | None
) -> dict[str, Any]:
    """Return the metadata that the Hub reads: https://huggingface.co/docs/hub/model-cards#model-card-metadata."""
    metadata: dict[str, Any] = {} if licence is None else {"license": licence}
    metadata |= {
        "library_name": "graphbench",
        "pipeline_tag": "graph-ml",
        "tags": ["graphbench", architecture, spec.name],
    }
    metrics = [
        {"type": spec.metric, "name": f"{spec.metric} ({words})", "value": results[split][f"{split}/{spec.metric}"]}
        for split, words in SCORED.items()
        if _is_number(results.get(split, {}).get(f"{split}/{spec.metric}"))
    ]
    if metrics:
        result = {
            "task": {"type": "graph-ml", "name": spec.task},
            "dataset": {"type": spec.name, "name": spec.name},
            "metrics": metrics,
        }
        metadata["model-index"] = [{"name": f"{architecture} on {spec.name}", "results": [result]}]
    return metadata


def _scores(
    architecture: str, spec: BenchmarkSpec, results: Mapping[str, Any]
) -> tuple[list[str], dict[str, list[str]]]:
    """Return columns and rows of the table: this model, then simple models on the same splits."""
    scores = {split: results.get(split) or {} for split in SCORED}
    rows = {architecture: scores} | {name: dict(values) for name, values in results.get("baselines", {}).items()}
    names = [name.partition("/")[2] for split in SCORED for name in scores[split]]
    names = [name for name in dict.fromkeys([spec.metric, *names]) if name != "loss"]
    keys = [(split, f"{split}/{name}") for split in SCORED for name in names if f"{split}/{name}" in scores[split]]
    columns = [f"{SCORED[split]} {key.partition('/')[2]}" for split, key in keys]
    cells = {name: [_cell(values.get(split, {}).get(key)) for split, key in keys] for name, values in rows.items()}
    return columns, cells if keys else {}


def _cell(value: Any) -> str:
    return show_number(value) if _is_number(value) else "-"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _conditions(results: Mapping[str, Any]) -> str:
    """Describe how a training obtained its scores."""
    phrases = {"seed": "seed {}", "epochs": "{} epochs", "best_epoch": "weights of epoch {}"}
    # Versions that did not write `epochs_from` counted epochs from 0.
    shift = {"best_epoch": int(results.get("epochs_from", 0) == 0)}
    present = [key for key in phrases if _is_number(results.get(key))]
    return ", ".join(phrases[key].format(results[key] + shift.get(key, 0)) for key in present)


def _targets(spec: BenchmarkSpec, data: Benchmark) -> str:
    if spec.num_classes is not None:
        return f"one of {spec.num_classes} classes"
    names = data.target_labels()
    units = spec.target_units if len(spec.target_units) == len(names) else ("",) * len(names)
    named = [f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)]
    return listed(named, 20)


def _graphs(run: RunFolder) -> dict[str, int]:
    """Return the number of graphs of each split that the run was trained and scored on; empty if not recorded."""
    if not run.data.is_file():
        return {}
    try:
        splits = load_json(run.data)["splits"]
        return {SCORED.get(name, name): int(split["graphs"]) for name, split in splits.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptData(f"{run.data} cannot be read ({type(error).__name__}: {error}).") from error


def _requirements(module: BenchmarkModule, data: Benchmark) -> str:
    """List the distributions that provide the model's classes."""
    needed: dict[str, str] = {"graphbench-lightning": f"`graphbench-lightning` {__version__}"}
    foreign = []
    for group, thing in (("architectures", module.architecture), ("benchmarks", data)):
        name = type(thing).__name__
        record = registry.records(group).get(name)  # type: ignore[arg-type]
        if record is None:
            foreign.append(f"the class `{type(thing).__module__}.{name}`, which no package registers (`trust=True`)")
        else:
            needed[record.distribution] = f"`{record.distribution}` {record.version}"
    return " and ".join([*needed.values(), *foreign])


def _example(data: Benchmark) -> str:
    """Return a line of Python that predicts."""
    try:
        if hasattr(data, "input_reader") and data.input_reader():
            return 'model.predict(["CCO", "c1ccccc1"])  # SMILES or RDKit molecules'
    except BadInput:  # molecules whose graphs need more than SMILES
        pass
    if example := getattr(data, "python_input", ""):
        return f"model.predict(inputs)  # {example}"
    return "# graphbench predict --run FOLDER --input FILE_OR_FOLDER --output predicted.csv"
