"""Predict a split with the model of one run, or of several together, into one table; keep a test's predictions."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch
from torch import Tensor

from graphbench.cli.command_line import as_word
from graphbench.cli.lightning import GraphbenchCLI
from graphbench.cli.options import Request
from graphbench.cli.parsers import file_to_write
from graphbench.cli.same_data import SameData
from graphbench.cli.trained import ONE_PROCESS, checkpoint_of, open_data, written_together
from graphbench.cli.trainer_checks import refuse_loggers, require_whole
from graphbench.contracts import Benchmark
from graphbench.contracts.table import ENDS
from graphbench.data.package_files import file_sha256
from graphbench.errors import BadInput
from graphbench.inference import Predictor
from graphbench.inference.columns import prediction_columns, target_columns
from graphbench.inference.distance_bins import DistanceBins
from graphbench.inference.ensemble import Ensemble
from graphbench.inference.loading import load_weights
from graphbench.inference.output import check_output, write_frames
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import trained_weights
from graphbench.training.module import OUTPUT, SPREAD

log = logging.getLogger(__name__)
#: Entries of `results.json` that describe `predictions-test.csv`.
INTERVALS, TEMPERATURE, WEIGHTS = "intervals", "temperature", "predicted_by"


def predict_split(requests: Sequence[Request], chosen: str) -> int:
    """Predict a split with the runs of some requests, and write the table."""
    first = requests[0]
    if len(requests) > 1 and not first.options.output:
        raise BadInput("--output is missing: predictions of several runs have no default folder.")
    run = first.run if len(requests) == 1 else None
    default = (first.run or RunFolder(Path())).predictions(chosen)
    output = file_to_write("--output", check_output(first.options.output or str(default)))
    if run is not None and output.resolve() == default.resolve() and _is_other(first.options.checkpoint, run):
        raise BadInput(
            f"--checkpoint {first.options.checkpoint}: {default} is for predictions of {trained_weights(run)}, as the "
            "run's results and report are. Name another file with --output."
        )
    if _is_recorded(run, output):
        run.read_results()  # report a damaged file before computing anything
    together = len(requests) > 1 or bool(first.options.interval or first.options.calibrate)
    with written_together(None if run is None else first) as (staged, folder):
        members = [_member(request, chosen, folder, one_process=together) for request in requests]
        ensemble = _ensemble(members, requests, chosen) if together else None
        answers = [member.predict(outputs=ensemble is not None and ensemble.quantity == "output") for member in members]
        if members[0].cli.trainer.is_global_zero:
            data = members[0].cli.datamodule
            frame = table(data, answers[0], chosen) if ensemble is None else _combined(data, answers, ensemble, chosen)
            _write(frame, output, run, staged, ensemble, members[0].checkpoint)
    return 0


def names_of(requests: Sequence[Request]) -> list[str]:
    """Return names of the models for messages."""
    return [str(one.run.path if one.run else one.options.checkpoint) for one in requests]


@dataclass
class _Member:
    """A run's model and data, to predict a split."""

    cli: GraphbenchCLI
    checkpoint: Path
    same: SameData

    def predict(self, outputs: bool) -> dict[str, Tensor]:
        """Return the columns of the split from all processes, by graph and node; with `outputs` also the head's."""
        cli = self.cli
        cli.model.predicts_outputs = outputs
        batches = cli.trainer.predict(cli.model, cli.datamodule, ckpt_path=str(self.checkpoint), weights_only=True)
        columns = _joined(batches, cli.trainer.world_size)
        assert columns is not None
        return columns

    def predictor(self) -> Predictor:
        """Return the model, whose data need not be open."""
        load_weights(self.cli.model, self.checkpoint)
        return Predictor(self.cli.model, self.cli.datamodule, None, self.cli.trainer)


def _member(request: Request, chosen: str, folder: Sequence[str], one_process: bool) -> _Member:
    """Build the model and data of a run, on one process unless the command line requests more and they may be used."""
    refuse_loggers(request)
    path = checkpoint_of(request)
    same = SameData(request.run, request.options.data_changed)
    # After the run's own devices, which are for its training, and before those that were typed.
    words = [*request.stored, *ONE_PROCESS, *request.typed]
    forced = [*ONE_PROCESS, "--trainer.strategy", "auto"] if one_process else []
    cli = GraphbenchCLI([*words, *forced, *folder])
    require_whole(cli.trainer, "predict")
    cli.callbacks.append(same)
    cli.datamodule.predict_split = chosen
    return _Member(cli, path, same)


def _ensemble(members: Sequence[_Member], requests: Sequence[Request], chosen: str) -> Ensemble:
    """Combine models of the same split, with intervals and a temperature as requested."""
    ensemble = Ensemble([member.predictor() for member in members], names_of(requests))
    check_learning(ensemble, requests[0])
    for member, predictor in zip(members, ensemble.members, strict=True):
        open_data(predictor, member.same)
    ensemble.require_one_split(chosen, f"--split {chosen}")
    learn_from_validation(ensemble, requests[0])
    return ensemble


def _combined(data: Benchmark, answers: Sequence[dict[str, Tensor]], ensemble: Ensemble, chosen: str) -> pd.DataFrame:
    """Return the table of combined predictions, their spreads and intervals."""
    for columns in answers[1:]:
        if not torch.equal(columns["graph"], answers[0]["graph"]):
            raise BadInput("The models of this ensemble create graphs of different sizes from the same row.")
    names = [name for name in answers[0] if name.startswith(SPREAD)]
    means, spreads = ensemble.combine(np.stack([_answers(columns, names) for columns in answers]))
    width = ensemble.first.predicted
    learned = means[:, width:].reshape(len(means), -1, max(len(names), 1))
    columns = answers[0] | {"prediction": torch.from_numpy(means[:, :width])}
    columns |= {name: torch.from_numpy(learned[..., number]) for number, name in enumerate(names)}
    distances = ensemble.split_distances(chosen) if isinstance(ensemble.intervals, DistanceBins) else None
    further = pd.DataFrame(ensemble.further_columns(means, spreads, distances))
    if ensemble.intervals is not None and chosen != "val":
        _log_coverage(ensemble, ensemble.covered(means, spreads, columns["target"].numpy(), chosen), chosen, distances)
    return pd.concat([table(data, columns, chosen), further], axis=1)


def _log_coverage(ensemble: Ensemble, covered: np.ndarray, chosen: str, distances: np.ndarray | None) -> None:
    """Log the share of known targets that intervals or sets cover next to the stated one, also for each bin."""
    intervals = ensemble.intervals
    assert intervals is not None
    masks = {f"the {chosen} split": np.ones(len(covered), dtype=bool)}
    if isinstance(intervals, DistanceBins) and distances is not None:
        masks |= dict(zip(intervals.spans(), intervals.masks(distances), strict=True))
    for number, name in enumerate(ensemble.first.data.target_labels()):
        for where, mask in masks.items():
            inside = covered[mask, number][~np.isnan(covered[mask, number])]
            if len(inside):
                log.info(
                    "%s, %s: %d of %d known targets are covered, %.1f%% (stated: %g%%)",
                    name, where, int(inside.sum()), len(inside), 100 * inside.mean(), 100 * float(intervals.coverage),
                )  # fmt: skip


def _answers(columns: dict[str, Tensor], names: Sequence[str]) -> np.ndarray:
    """Return logits, or predictions and then the spreads of each target, as `Ensemble.combine` expects them."""
    values = columns.get(OUTPUT)
    if values is None:
        spreads = [columns[name] for name in names]
        parts = [columns["prediction"], *([torch.stack(spreads, 2).flatten(1)] if spreads else [])]
        values = torch.cat(parts, 1)
    return (values if values.dtype == torch.float64 else values.float()).numpy()


def check_learning(ensemble: Ensemble, request: Request) -> None:
    """Refuse intervals and a temperature that the models do not support: their data may take minutes to open."""
    by = request.options.interval_by
    if request.options.calibrate:
        ensemble.check_calibration()
    if request.options.interval:
        ensemble.check_intervals(request.options.interval, by.split(",") if by else ())


def learn_from_validation(ensemble: Ensemble, request: Request) -> None:
    """Fit intervals and a temperature as requested, and log what they are based on."""
    if request.options.calibrate:
        temperature = ensemble.calibrate()
        log.info(
            "Temperature %.4g, from %d validation rows: their loss went from %.4g to %.4g, ECE from %.4g to %.4g",
            temperature.value, temperature.rows, *temperature.loss, *temperature.error,
        )  # fmt: skip
        if temperature.caution:
            log.warning("--calibrate: do not rely on this temperature: %s.", temperature.caution)
    by = request.options.interval_by
    if request.options.interval:
        for line in ensemble.add_intervals(request.options.interval, by.split(",") if by else ()).describe():
            log.info("%s", line)


def _write(
    frame: pd.DataFrame,
    output: Path,
    run: RunFolder | None,
    staged: RunFolder | None,
    ensemble: Ensemble | None,
    checkpoint: Path,
) -> None:
    """Write predictions; a file in the run's folder and its entry in the results appear together."""
    file = output
    if run is not None and staged is not None and output.resolve().is_relative_to(run.path.resolve()):
        file = staged.path / output.resolve().relative_to(run.path.resolve())
    write_frames([frame], file, lambda written: log.info("%s predictions: %s", f"{len(written):,}", output))
    if _is_recorded(run, output) and staged is not None:
        _record(run, staged, ensemble, checkpoint)


def _joined(batches: Any, world_size: int) -> dict[str, Tensor] | None:
    """Concatenate the columns of batches on all processes, sorted by graph and node; None if a process has None.

    Without batches there are no columns.
    """
    parts: list[Any] = [None] * world_size
    if world_size == 1:
        parts = [batches]
    else:
        # As objects: tensors would need equal shapes, but processes have unequal shares.
        torch.distributed.all_gather_object(parts, batches)
    if any(part is None for part in parts):
        return None
    batches = [batch for part in parts for batch in part]
    if not batches:
        return {}
    columns = {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
    keys = [columns["node"].numpy()] if "node" in columns else []
    order = torch.from_numpy(np.lexsort([*keys, columns["graph"].numpy()]))  # stable
    return {name: values[order] for name, values in columns.items()}


def _is_other(checkpoint: str | None, run: RunFolder) -> bool:
    """Return whether a named checkpoint is a file other than the weights that the run's results describe."""
    return checkpoint is not None and Path(checkpoint).resolve() != trained_weights(run).resolve()


def _is_recorded(run: RunFolder | None, output: Path) -> TypeGuard[RunFolder]:
    """Return whether the run's results record how a file was created."""
    return run is not None and output.resolve() == run.predictions("test").resolve()


def _record(run: RunFolder, staged: RunFolder, ensemble: Ensemble | None, checkpoint: Path) -> None:
    """Record in the run's results how predictions of the test split were created, for the report."""
    entries: dict[str, Any] = {}
    if ensemble is not None and ensemble.intervals is not None:
        entries[INTERVALS] = ensemble.intervals.record()
    if ensemble is not None and ensemble.temperature is not None:
        entries[TEMPERATURE] = ensemble.temperature.value
    if entries:
        entries[WEIGHTS] = file_sha256(checkpoint)
    results = run.read_results()
    if entries or {INTERVALS, TEMPERATURE} & results.keys():
        others = {key: value for key, value in results.items() if key not in (INTERVALS, TEMPERATURE, WEIGHTS)}
        staged.write_results(others | entries)


class KeepPredictions(pl.Callback):
    """Keep the predictions that `graphbench test` scores, for its report and for future metrics.

    Args:
        most: numbers to keep of a split; predictions with more, such as one per pair of nodes, are not kept.
    """

    def __init__(self, most: int = 5_000_000) -> None:
        self.most = most
        self._batches: dict[str, list[dict[str, Tensor]] | None] = {}
        self._numbers = Counter[str]()

    def setup(self, trainer: pl.Trainer, pl_module: Any, stage: str) -> None:
        """Ask the model for them."""
        pl_module.keeps_predictions = True

    def on_validation_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Keep those of a batch."""
        self._keep("val", outputs, trainer.world_size)

    def on_test_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        """Keep those of a batch."""
        self._keep("test", outputs, trainer.world_size)

    def _keep(self, split: str, columns: dict[str, Tensor] | None, world_size: int) -> None:
        batches = self._batches.setdefault(split, [])
        if batches is not None and columns is not None:  # None from a module with custom steps
            batches.append(columns)
            self._numbers[split] += sum(values.numel() for values in columns.values())
            if self._numbers[split] * world_size > self.most:
                # From here on, nothing of this split is kept.
                self._batches[split] = None

    def tables(self, data: Benchmark, splits: Sequence[str], world_size: int) -> dict[str, pd.DataFrame | None]:
        """Return the table of each split with predictions, None for those with too many numbers.

        All processes must call it, including those without a batch of a small split.
        """
        tables: dict[str, pd.DataFrame | None] = {}
        for split in splits:
            columns = _joined(self._batches.get(split, []), world_size)
            if columns != {}:
                tables[split] = None if columns is None else table(data, columns, split)
        return tables


def write_kept(
    tables: Mapping[str, pd.DataFrame | None], results: Mapping[str, Any], run: RunFolder, staged: RunFolder
) -> dict[str, Any]:
    """Write predictions that were scored to the run's folder.

    Predictions of the test split with intervals or a temperature stay unless the weights differ: they were requested,
    and are from the same model. Return the results, without intervals and temperature if the file was rewritten.
    """
    entries = {INTERVALS, TEMPERATURE} & results.keys()
    for split, frame in tables.items():
        output = run.predictions(split)
        if frame is None:
            log.info(
                "Predictions of %s are too many to be kept; graphbench predict --run %s --split %s writes them.",
                split, as_word(run.path), split,
            )  # fmt: skip
        elif split == "test" and entries and _is_of_weights(output, results.get(WEIGHTS), trained_weights(run)):
            log.info("%s is kept: it has what graphbench predict added.", output)
        else:
            write_frames([frame], staged.predictions(split), lambda written: None)
            if split == "test" and entries:
                log.warning("%s is rewritten for other weights, without what graphbench predict added.", output)
                results = {name: value for name, value in results.items() if name not in {*entries, WEIGHTS}}
    return dict(results)


def _is_of_weights(predictions: Path, checksum: object, weights: Path) -> bool:
    """Return whether a file is from these weights; earlier versions kept no checksum, so times decide."""
    if not predictions.is_file() or not weights.is_file():
        return predictions.is_file()
    return file_sha256(weights) == checksum if checksum else predictions.stat().st_mtime >= weights.stat().st_mtime


def table(data: Benchmark, columns: dict[str, Tensor], chosen: str) -> pd.DataFrame:
    """Return one row per graph (or node, edge or pair of nodes), in the order of the columns.

    Columns: `id`; `smiles` of molecules, for the report's drawings; `node` for node tasks, `source` and `destination`
    for edge tasks, `head` and `tail` for pairs, and `node_name` and so on if nodes have names; what
    `prediction_columns` gives for new inputs, and `target_columns` if known; spreads that the loss learns, as
    `TARGET_std`.
    """
    predictions, targets = columns["prediction"], columns["target"]
    ids = data.ids(chosen)
    rows = columns["graph"]
    frame = pd.DataFrame({"id": [ids[i] for i in rows.tolist()]})
    if (smiles := _smiles(data, chosen)) is not None:
        frame["smiles"] = [smiles[i] for i in rows.tolist()]
    for name in ("node", *ENDS, "head", "tail"):
        if name in columns:
            frame[name] = columns[name].numpy()
    for name, called in _called(data.node_names(chosen), columns).items():
        frame[f"{name}_name"] = called
    classes = data.class_labels() if data.spec.num_classes is not None else ()
    shown = prediction_columns(data, predictions.numpy(), classes, np.ones(len(predictions), dtype=bool))
    truth = target_columns(data, targets.numpy(), classes)
    shown |= {name: values for name, values in truth.items() if not pd.isna(values).all()}
    for key in (key for key in columns if key.startswith(SPREAD)):
        for number, label in enumerate(data.target_labels()):
            shown[f"{label}_{key.removeprefix(SPREAD)}"] = columns[key][:, number].numpy()
    return pd.concat([frame, pd.DataFrame(shown)], axis=1)


def _called(names: Sequence[Sequence[str]] | None, columns: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return the names of the nodes in each column of node numbers; empty if nodes have no names."""
    if names is None:
        return {}
    first = np.cumsum([0, *map(len, names)])[columns["graph"].numpy()]
    flat = np.array([name for graph in names for name in graph], dtype=object)
    numbers = {name: columns[name].numpy() for name in ("node", *ENDS, "head", "tail") if name in columns}
    return {name: flat[first + number] for name, number in numbers.items()}


def _smiles(data: Benchmark, chosen: str) -> list[str] | None:
    """Return the SMILES of a split's molecules; None if the benchmark has none."""
    if data.spec.level != "graph" or not hasattr(data, "smiles"):
        return None
    try:
        smiles: list[str] = data.smiles(chosen)
    except BadInput:  # the source gives only structures
        return None
    return smiles
