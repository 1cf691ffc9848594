"""Compare starting weights with random ones: one architecture, one budget, several ways to continue from the weights.

    python experiments/starting_weights.py FILE --target logS
    python experiments/starting_weights.py FILE --target logS --weights runs/pretrain/run --ways whole -- \
        --data.descriptors rdkit2d
    python experiments/starting_weights.py FILE --target active --classes 2 --splits scaffold_0 --sizes 1000

Every split is a column of the file with train, val and test, or `scaffold_0` and so on: whole Murcko scaffolds in a
random order by that seed, of the molecules that RDKit reads. `--sizes` training molecules are drawn with a fixed seed,
while validation and test sets are used in full. `random` starts from random weights; `frozen` trains only the head,
`staged` the head for 10 epochs and then everything, `whole` everything at once, `gentle` everything with a lower
learning rate for the loaded weights. Options after `--` are passed to every fit. A run that has test scores is reused,
so a stopped command resumes. The table has validation errors, which are used to choose settings, and test errors, which
are not; those of the simple models of `graphbench test` on the same molecules; with `--members N` those of the mean
prediction of N seeds, including the first, and of every further seed by itself; and with `--chemprop COMMAND` those of
chemprop's defaults with the same number of seeds, from a separate environment:

    python -m venv chemprop && chemprop/bin/pip install chemprop==2.2.4
    python experiments/starting_weights.py ... --chemprop chemprop/bin/chemprop

Errors are MAE, or 1 - AUROC with `--classes 2`. `seconds` are processor time: of `fit`, and of training and prediction
for chemprop. For the simple models they are wall time, including their features.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import resource
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
from rdkit import Chem, rdBase
from sklearn.metrics import roc_auc_score

from graphbench.benchmarks.molecules.chemistry.scaffolds import murcko_scaffold, scaffold_split
from graphbench.cli import main as graphbench
from graphbench.runs import RunFolder

CONFIG = Path(__file__).parents[1] / "configs" / "molecules.yaml"
SEED = 0
_AS_THE_HEAD = ["--model.learning_rates", "null"]
#: The configuration is `gentle`.
WAYS = {
    "random": ["--model.init_from", "null", *_AS_THE_HEAD],
    "frozen": [*_AS_THE_HEAD, "--model.freeze", "architecture"],
    "staged": [*_AS_THE_HEAD, "--model.freeze", "architecture", "--model.freeze_epochs", "10"],
    "whole": _AS_THE_HEAD,
    "gentle": [],
}
COLUMNS = ("size", "split", "model", "epoch", "val", "test", "seconds")


def with_scaffolds(frame: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return the readable molecules with the column `scaffold_SEED`, as `--data.split scaffold_balanced` does."""
    with rdBase.BlockLogs():
        molecules = [Chem.MolFromSmiles(text) for text in frame["smiles"]]
    read = [mol is not None and mol.GetNumAtoms() > 0 for mol in molecules]
    scaffolds = [murcko_scaffold(mol) for mol, usable in zip(molecules, read, strict=True) if usable]
    parts = scaffold_split(scaffolds, seed=int(split.removeprefix("scaffold_")))
    part_of = {row: part for part, rows in parts.items() for row in rows}
    return frame[read].assign(**{split: [part_of[row] for row in range(len(scaffolds))]})


def draw(file: Path, split: str, size: int, folder: Path) -> Path:
    """Write the file with `size` training molecules of a split, drawn with a fixed seed, and return its path."""
    frame = pd.read_csv(file)
    if split.startswith("scaffold_") and split not in frame:
        frame = with_scaffolds(frame, split)
    train = np.flatnonzero(frame[split] == "train")
    chosen = np.random.RandomState(SEED).permutation(train)[:size]
    rows = np.sort(np.concatenate([chosen, np.flatnonzero(frame[split].isin(["val", "test"]))]))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file.stem}-{size}-{split}.csv"
    frame.iloc[rows].to_csv(path, index=False)
    return path


def processor_seconds() -> float:
    """Return the processor time used so far by this process and its children."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def train(file: Path, target: str, split: str, run: Path, options: Sequence[str]) -> None:
    """Train unless the run has the scores of a finished training, and record its seconds.

    Raises:
        SystemExit: the command failed.
    """
    if "val" in RunFolder(run).read_results():
        return
    data = ["--data.file", str(file), "--data.target", target, "--data.split", "column", "--data.split_column", split]
    shown = ["--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false"]
    started = processor_seconds()
    if code := graphbench(["fit", "--config", str(CONFIG), *data, *options, *shown, "--run", str(run)]):
        raise SystemExit(code)
    run.with_suffix(".seconds").write_text(str(processor_seconds() - started))


def error(scores: Mapping[str, float], part: str) -> float:
    """Return the error on a part: MAE, or 1 - AUROC for classes."""
    return scores[f"{part}/MAE"] if f"{part}/MAE" in scores else 1 - scores[f"{part}/AUROC"]


def error_of(prediction: pd.Series, truth: pd.Series, classes: bool) -> float:
    """Return the error of predicted numbers, or of probabilities of class 1."""
    if classes:
        return 1 - float(roc_auc_score(truth, prediction))
    return float((prediction - truth).abs().mean())


def score(file: Path, target: str, split: str, run: Path, options: Sequence[str]) -> dict[str, tuple]:
    """Train and test unless the run has test scores: model -> best epoch, errors on val and test, seconds.

    Raises:
        SystemExit: a command failed.
    """
    train(file, target, split, run, options)
    if "test" not in RunFolder(run).read_results() and (code := graphbench(["test", "--run", str(run)])):
        raise SystemExit(code)
    results = RunFolder(run).read_results()
    scores: dict[str, tuple] = {
        "model": (results["best_epoch"], error(results["val"], "val"), error(results["test"], "test"))
    }
    scores["model"] += (float(run.with_suffix(".seconds").read_text()),)
    for name, one in results["baselines"].items():
        scores[name] = ("", error(one["val"], "val"), error(one["test"], "test"), one.get("seconds", ""))
    return scores


def score_ensemble(file: Path, target: str, split: str, runs: Sequence[Path], options: Sequence[str]) -> tuple:
    """Train missing runs, with one seed each, and predict together: errors on val and test, seconds.

    Raises:
        SystemExit: a command failed.
    """
    for seed, run in enumerate(runs):
        train(file, target, split, run, [*options, "--seed_everything", str(seed)])
    return score_predictions(runs)


def score_predictions(runs: Sequence[Path]) -> tuple:
    """Predict with the mean of finished runs: errors on val and test, seconds of all trainings.

    Raises:
        SystemExit: a command failed.
    """
    errors = []
    for part in ("val", "test"):
        path = runs[0].with_suffix(f".{len(runs)}-{part}.csv")
        if code := graphbench(["predict", "--run", *map(str, runs), "--split", part, "--output", str(path)]):
            raise SystemExit(code)
        frame = pd.read_csv(path)
        are_classes = "probability_1" in frame
        predicted = frame["probability_1"] if are_classes else frame.filter(like="prediction_").iloc[:, 0]
        errors.append(error_of(predicted, frame.filter(like="target_").iloc[:, 0], are_classes))
    return "", *errors, sum(float(run.with_suffix(".seconds").read_text()) for run in runs)


def score_chemprop(
    command: Sequence[str], file: Path, target: str, split: str, folders: Sequence[Path], classes: bool = False
) -> dict[str, tuple]:
    """Train chemprop with its defaults, one seed per folder: model -> errors on val and test, seconds.

    A folder that has predictions is reused. With two or more folders there is a row for each seed, and one for the mean
    of their predictions, as computed by `chemprop train --ensemble-size`.
    """
    asked = folders[0].with_suffix(".asked.csv")
    frame = pd.read_csv(file)
    frame[frame[split] != "train"].to_csv(asked, index=False)
    truth, answers, seconds = pd.read_csv(asked), [], []
    for seed, folder in enumerate(folders):
        clock, answer = folder / "seconds", folder / "answers.csv"
        if not clock.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            columns = ["--smiles-columns", "smiles", "--accelerator", "cpu"]
            train = ["train", "--data-path", str(file), "--target-columns", target, "--splits-column", split, *columns]
            train += ["--task-type", "classification"] if classes else []
            train += ["--pytorch-seed", str(seed), "--output-dir", str(folder)]
            predict = ["predict", "--test-path", str(asked), "--model-paths", str(folder / "model_0"), *columns]
            started = processor_seconds()
            for words in (train, [*predict, "--preds-path", str(answer)]):
                subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            clock.write_text(str(processor_seconds() - started))
        answers.append(pd.read_csv(answer)[target])
        seconds.append(float(clock.read_text()))

    def errors(predicted: pd.Series) -> list[float]:
        parts = [truth[split] == part for part in ("val", "test")]
        return [error_of(predicted[rows], truth[target][rows], classes) for rows in parts]

    rows = {"chemprop": ("", *errors(answers[0]), seconds[0])}
    if len(folders) > 1:
        together = sum(answers[1:], answers[0]) / len(answers)
        rows[f"chemprop, {len(folders)} members"] = ("", *errors(together), sum(seconds))
    for seed in range(1, len(folders)):
        rows[f"chemprop, seed {seed}"] = ("", *errors(answers[seed]), seconds[seed])
    return rows


def table(rows: Sequence[dict]) -> str:
    """Return the means over splits for each size and model, as text."""
    groups: dict[tuple, list[dict]] = {}
    for row in rows:
        groups.setdefault((row["size"], row["model"]), []).append(row)
    lines = [f"{'train':>6}  {'model':24} splits     val    test  seconds"]
    for (size, model), group in groups.items():
        means = [fmean(float(row[column] or "nan") for row in group) for column in ("val", "test", "seconds")]
        lines.append(f"{size:6}  {model:24} {len(group):6} {means[0]:7.3f} {means[1]:7.3f} {means[2]:8.1f}")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Train, test, print and write."""
    words = list(arguments)
    options = words[words.index("--") + 1 :] if "--" in words else []
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--classes", type=int, choices=[2], help="the target is a class, 0 or 1")
    parser.add_argument("--weights", default="molecules-base", help="weights, as for --model.init_from")
    parser.add_argument("--splits", nargs="+", default=["split_0", "split_1", "split_2"], metavar="COLUMN")
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 300, 800], help="training molecules")
    parser.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--members", type=int, default=1, help="seeds of an ensemble of each way, and of chemprop")
    parser.add_argument("--chemprop", metavar="COMMAND", help="command that starts chemprop, to train it as well")
    parser.add_argument("--output", type=Path, default=Path("runs/starting-weights"), help="folder of the runs")
    own = parser.parse_args(words[: words.index("--")] if "--" in words else words)
    if own.classes:
        options += ["--data.task", "classification", "--data.num_classes", str(own.classes)]
    rows: list[dict] = []
    for size, way, split in itertools.product(
        own.sizes, [*own.ways, *(["chemprop"] if own.chemprop else [])], own.splits
    ):
        file, run = draw(own.file, split, size, own.output / "data"), own.output / f"{size}-{split}-{way}"
        if way == "chemprop":
            command = shlex.split(own.chemprop)
            runs = [run, *(run.with_name(f"{run.name}-{seed}") for seed in range(1, own.members))]
            scores = score_chemprop(command, file, own.target, split, runs, bool(own.classes))
        else:
            start = [] if way == "random" else ["--model.init_from", own.weights]
            scores = score(file, own.target, split, run, [*start, *WAYS[way], *options])
            if own.members > 1:
                runs = [run, *(run.with_name(f"{run.name}-{seed}") for seed in range(1, own.members))]
                given = [*start, *WAYS[way], *options]
                scores[f"{way}, {own.members} members"] = score_ensemble(file, own.target, split, runs, given)
                for seed, member in enumerate(runs[1:], 1):
                    scores[f"{way}, seed {seed}"] = score_predictions([member])
        for model, values in scores.items():
            row = dict(zip(COLUMNS, (size, split, way if model == "model" else model, *values), strict=True))
            rows += [] if row in rows else [row]
        with (own.output / "scores.csv").open("w", newline="") as out:
            writer = csv.DictWriter(out, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
