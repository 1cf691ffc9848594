"""Run thousands of hostile commands in one process: no traceback, no hang, no silent wrong number.

    python tests/survive/cases.py --cases 10000
    python tests/survive/cases.py --cases 200 --only molecules graphs

hypothesis draws the cases. Each is a full command: damaged files of a run, of its checkpoints or of published data,
options out of range, graphs and molecules of any kind. A command may fail with a message and exit code 1. If it
succeeds, its numbers are compared with those of an undamaged run, of the same graph with its nodes in another order,
or of the same molecule as canonical SMILES. Prints one line for every kind of complaint; the exit code is 1 if
there is one.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from graphbench import registry
from graphbench.registry.describe import options_of

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))
from hostile import SMALL, Stage, Wrong, build, graph_line, hold_close, hold_equal, read_table, small_zinc, some_smiles

#: Files of a run other than checkpoints.
FILES = (
    "results.json", "metrics.csv", "config.yaml", "data.json", "training.json", "environment.json",
    "predictions-test.csv",
)  # fmt: skip
#: Values of any kind for an option.
VALUES = (
    "-1", "0", "1", "2", "0.5", "1.5", "-0.5", "nan", "inf", "-inf", "1e308", "100000000000000000000", "3.7", "null",
    "true", "", "[]", "[0]", "{}", "{a: 1}", "none", "GPS", "'", "[[[[", "*x", "&x y", "\u00e9\u0000", "../..",
    "a" * 500,
)  # fmt: skip


# -- the kinds of cases ----------------------------------------------------------------------------------------------


def damage(data: st.DataObject, path: Path) -> None:
    """Cut a file, flip a bit, replace, zero or repeat bytes, drop a line, change a JSON value or delete it."""
    content = bytearray(path.read_bytes())
    ways = ("cut", "bit", "bytes", "zeros", "twice", "line", "gone", *(["value"] * (path.suffix == ".json")))
    how, at = data.draw(st.sampled_from(ways)), data.draw(st.integers(0, max(len(content) - 1, 0)))
    if how == "gone":
        path.unlink()
        return
    if how == "cut":
        del content[at:]
    elif how == "bit" and content:
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    elif how == "bytes":
        content[at : at + 8] = data.draw(st.binary(max_size=16))
    elif how == "zeros":
        content[at : at + 64] = bytes(len(content[at : at + 64]))
    elif how == "twice":
        content += content[at:]
    elif how == "line":
        lines = bytes(content).splitlines(keepends=True)
        content = bytearray(b"".join(line for number, line in enumerate(lines) if number != at % len(lines)))
    elif how == "value":
        content = bytearray(json.dumps(_with_another_value(data, json.loads(content))).encode())
    path.write_bytes(bytes(content))


def _with_another_value(data: st.DataObject, value: Any) -> Any:
    """Return JSON with one value replaced at any depth."""
    inner = {key: item for key, item in value.items() if isinstance(item, dict)} if isinstance(value, dict) else {}
    if not isinstance(value, dict) or not value:
        return data.draw(st.sampled_from((None, -1, 0, 1e308, "x", [], {}, [1, "a"], True)))
    key = data.draw(st.sampled_from(sorted(inner) if inner and data.draw(st.booleans()) else sorted(value)))
    return value | {key: _with_another_value(data, inner.get(key))}


def _use(stage: Stage, data: st.DataObject, run: Path) -> None:
    """Run one command on a damaged run and check its numbers."""
    command, output = data.draw(st.sampled_from(("test", "predict", "report", "fit", "embed", "validate"))), stage.case
    words = {
        "fit": ["--resume", run, "--trainer.max_epochs", "3"],
        "report": [run],
        "predict": ["--run", run, "--output", output / "out.csv"],
        "embed": ["--run", run, "--output", output / "rows.csv"],
    }
    code, said = stage.call(command, *words.get(command, ["--run", run]))
    if code or "trained with" in said or "best.ckpt is gone" in said:  # a message named what changes the numbers
        return
    if command == "test":
        hold_equal("test scores", json.loads((run / "results.json").read_text())["test"], stage.truth["test"])
    if command == "predict":
        hold_equal("predictions", read_table(output / "out.csv"), stage.truth["predictions"])


def run_files(stage: Stage, data: st.DataObject) -> None:
    """Damage files of a run whose checkpoints are intact."""
    run = shutil.copytree(stage.folder / "molecules", stage.case / "run")
    damage(data, run / data.draw(st.sampled_from(FILES)))
    _use(stage, data, run)


def checkpoints(stage: Stage, data: st.DataObject) -> None:
    """Damage a checkpoint."""
    run = shutil.copytree(stage.folder / "molecules", stage.case / "run")
    damage(data, run / "checkpoints" / data.draw(st.sampled_from(("best.ckpt", "last.ckpt"))))
    _use(stage, data, run)


def raw_files(stage: Stage, data: st.DataObject) -> None:
    """Damage published files, tables of molecules or files of graphs."""
    source = data.draw(st.sampled_from(("ZINC", "Molecules", "Graphs")))
    if source == "ZINC":
        shutil.copytree(stage.folder / "raw", stage.case / "raw")
        raw = stage.case / "raw" / "ZINC" / "raw"
        if data.draw(st.booleans()):  # the archive as a user puts it there
            with zipfile.ZipFile(raw / "molecules.zip", "w", zipfile.ZIP_DEFLATED) as archive:
                for pickled in sorted(raw.glob("*.pickle")):
                    archive.write(pickled, f"molecules/{pickled.name}")
                    pickled.unlink()
        path = data.draw(st.sampled_from(sorted(raw.iterdir())))
        options = ["--data.root", stage.case / "raw"]
    else:
        name = {"Molecules": "molecules.csv", "Graphs": "graphs.jsonl"}[source]
        path = Path(shutil.copy(stage.folder / name, stage.case))
        options = ["--data.file", path, "--data.target", "length"] if source == "Molecules" else ["--data.source", path]
    damage(data, path)
    with small_zinc():
        stage.call("prepare", "--data", source, *options, "--data.store", stage.case / "store", *SMALL[:6])


def numeric_options() -> list[tuple[str, str]]:
    """Return every option of every registered architecture and benchmark with the registered name."""
    found = []
    for group, prefix in (("architectures", "model.architecture"), ("benchmarks", "data")):
        for name, record in registry.records(group).items():
            found += [(name, f"{prefix}.{option}") for option in options_of(record.target) or {} if option != "spec"]
    return found


def options(stage: Stage, data: st.DataObject) -> None:
    """Set an option to any value; if the model can be built, the parameters of its parts add up to the total."""
    name, option = data.draw(st.sampled_from(numeric_options()))
    value = data.draw(st.sampled_from(VALUES) | st.integers().map(str) | st.floats().map(str) | st.text(max_size=8))
    own = option.startswith("model")
    command = ["--data", "Molecules" if own else name, "--model.architecture", name if own else "GPS"]
    target = ["--data.file", stage.folder / "molecules.csv", "--data.target", "length"] if own else []
    code, said = stage.call("params", *command, *target, f"--{option}={value}", "--json")
    if code == 0:
        counted = json.loads(said.strip().splitlines()[-1])
        hold_equal("parameters", counted["parameters"], sum(counted["parts"].values()))


def graphs(stage: Stage, data: st.DataObject) -> None:
    """Predict a graph and the same graph with its nodes reordered; both get the same value."""
    number = st.integers(-3, 12)
    size = data.draw(st.integers(1, 9))
    edges = data.draw(st.lists(st.tuples(number, number) if data.draw(st.booleans()) else
                               st.tuples(*[st.integers(0, size - 1)] * 2), max_size=20))  # fmt: skip
    kinds = data.draw(st.lists(st.integers(0, 3) | st.integers(), min_size=size, max_size=size))
    charges = data.draw(st.lists(st.floats(-5, 5) | st.floats(), min_size=size, max_size=size))
    order = data.draw(st.permutations(range(size)))
    moved = {node: place for place, node in enumerate(order)}
    other = [[moved.get(a, a), moved.get(b, b)] for a, b in edges]
    lines = [
        graph_line([list(edge) for edge in edges], kinds, charges, None),
        graph_line(other, [kinds[node] for node in order], [charges[node] for node in order], None),
    ]
    (stage.case / "new.jsonl").write_text("\n".join(lines) + "\n")
    output = stage.case / "out.csv"
    code, _ = stage.call("predict", "--run", stage.folder / "graphs", "--input", stage.case / "new.jsonl",
                         "--output", output)  # fmt: skip
    if code:
        return
    values = [row[name] for row in read_table(output) for name in row if name.startswith("prediction")]
    if any(values):
        hold_close("nodes in another order", [float(v or "nan") for v in values[:1]], [float(v) for v in values[1:]])


def molecules(stage: Stage, data: st.DataObject) -> None:
    """Predict molecules and garbage: a row gets the prediction of its canonical SMILES, or a problem."""
    from rdkit import Chem, rdBase

    letters = st.sampled_from([*"CNOScnos()[]=#123+-%@/\\.HFPBrIl*&:$", "[nH]", "Cl", "c1ccccc1", "[13C]", "->"])
    smiles = []
    for _ in range(data.draw(st.integers(1, 3))):
        text = data.draw(
            st.sampled_from(some_smiles(72)) | st.lists(letters, max_size=12).map("".join) | st.text(max_size=6)
        )
        at = data.draw(st.integers(0, len(text)))
        smiles.append(text[:at] + data.draw(st.just("") | letters) + text[at:])
    with rdBase.BlockLogs():
        read = [Chem.MolFromSmiles(text) for text in smiles]
    both = [*smiles, *(Chem.MolToSmiles(mol) if mol is not None else "C" for mol in read)]
    with (stage.case / "new.csv").open("w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file).writerows([["smiles"], *([text] for text in both)])
    output = stage.case / "out.csv"
    code, _ = stage.call("predict", "--run", stage.folder / "molecules", "--input", stage.case / "new.csv",
                         "--output", output)  # fmt: skip
    if code:
        return
    rows = read_table(output)
    hold_equal("rows of the answer", len(rows), len(both))
    for row in rows:
        if bool(row["prediction_length"]) == bool(row["problem"]):
            raise Wrong("a row has neither prediction nor problem, or both", str(row))
    for one, two in zip(rows, rows[len(smiles) :], strict=False):
        if one["prediction_length"] and two["prediction_length"]:
            hold_close("another spelling", [float(one["prediction_length"])], [float(two["prediction_length"])])


KINDS: dict[str, Callable[[Stage, st.DataObject], None]] = {
    "run-files": run_files,
    "checkpoints": checkpoints,
    "raw-files": raw_files,
    "options": options,
    "graphs": graphs,
    "molecules": molecules,
}


def run(stage: Stage, kind: str, cases: int, start: int) -> tuple[int, Counter[str], dict[str, str]]:
    """Run cases of one kind.

    Returns:
        Number of cases run, complaint -> count, and complaint -> example.
    """
    ran, found, examples = 0, Counter[str](), dict[str, str]()

    @seed(start)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: st.DataObject) -> None:
        nonlocal ran
        ran += 1
        shutil.rmtree(stage.case, ignore_errors=True)
        stage.case.mkdir()
        try:
            KINDS[kind](stage, data)
        except Wrong as wrong:
            found[wrong.kind] += 1
            examples.setdefault(wrong.kind, str(wrong))
        if ran % 250 == 0:
            print(f"{kind}: {found.total()} of {ran} cases wrong so far", flush=True)

    one()
    return ran, found, examples


def main() -> int:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="of all kinds together")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="that one command may take")
    own = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="cases-") as name:
        os.environ["XDG_STATE_HOME"] = str(Path(name) / "state")
        stage = Stage(Path(name), own.seconds)
        build(stage)
        for kind in own.only:
            begun = time.monotonic()
            ran, found, examples = run(stage, kind, -(-own.cases // len(own.only)), own.seed)
            wrong += found.total()
            print(f"{kind}: {found.total()} of {ran} cases wrong, {time.monotonic() - begun:.0f} s", flush=True)
            for words, count in found.most_common():
                print(f"  {count} x {examples[words]}".replace("\n", "\n      "), flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
