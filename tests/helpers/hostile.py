"""Inputs of hostile cases: finished runs and raw files, commands with a time limit, and faults."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import pickle
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from graphbench.cli import main as graphbench

SMALL = [
    "--model.architecture", "GPS", "--model.architecture.hidden_dim", "8", "--model.architecture.num_layers", "1",
    "--trainer.accelerator", "cpu", "--trainer.max_epochs", "2", "--data.batch_size", "24",
]  # fmt: skip
#: Wall-clock seconds per second of CPU time that a command may take, to find one that waits for ever as well.
_PATIENCE = 30


class Wrong(Exception):
    """A fault that no case may cause.

    Args:
        kind: what happened, in words that are the same for the same fault.
        detail: the rest.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}\n{detail}".strip())
        self.kind = kind


class _Hang(BaseException):
    """The time limit is exceeded."""


@dataclass
class Stage:
    """The inputs of the cases.

    Args:
        folder: contains everything.
        seconds: CPU time that a command may take; the limit of wall-clock time is many times as long, since other
            programs may be busy.
        truth: results of the undamaged runs.
    """

    folder: Path
    seconds: float = 10.0
    truth: dict[str, Any] = field(default_factory=dict)

    @property
    def case(self) -> Path:
        """Return the folder of the current case."""
        return self.folder / "case"

    def call(self, *arguments: Any) -> tuple[int, str]:
        """Run a command and return its exit code and output.

        Raises:
            Wrong: it raised an error, took too long, or failed silently.
        """
        words, text = [str(argument) for argument in arguments], io.StringIO()
        clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
        before = {signum: signal.signal(signum, _over) for signum in clocks}
        signal.setitimer(signal.ITIMER_PROF, self.seconds)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE * self.seconds)
        try:
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                code = graphbench(words)
        except SystemExit as end:  # argparse
            code = end.code if isinstance(end.code, int) else 1
        except _Hang as error:
            raise Wrong(f"hang of `{words[0]}` at {_place(error)}", " ".join(words)) from None
        except Exception as error:
            kind = f"{type(error).__name__} of `{words[0]}` at {_place(error)}"
            raise Wrong(kind, f"{' '.join(words)}\n{error}") from error
        finally:
            for signum, clock in clocks.items():
                signal.setitimer(clock, 0)
                signal.signal(signum, before[signum])
        said = text.getvalue()
        if code not in (0, 1, 2) or "Traceback (most recent" in said:
            raise Wrong(f"exit code {code} of `{words[0]}`", said)
        if code and not any(line.startswith("graphbench") for line in said.splitlines()):
            raise Wrong(f"`{words[0]}` fails without a word", " ".join(words))
        return code, said


def _over(signum: int, frame: object) -> None:
    raise _Hang


def _place(error: BaseException) -> str:
    """Return the last line of graphbench, or of a plug-in, in the traceback of an error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "graphbench" in Path(frame.filename).parts or "plugins" in frame.filename]
    last = ours[-1] if ours else frames[-1]
    return f"{Path(last.filename).name}:{last.lineno}"


def read_table(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def hold_equal(what: str, one: Any, two: Any) -> None:
    """Raise Wrong if two answers differ."""
    if one != two:
        raise Wrong(f"silent wrong number: {what}", f"{str(one)[:500]}\ninstead of {str(two)[:500]}")


def hold_close(what: str, one: list[float], two: list[float]) -> None:
    """Raise Wrong if numbers differ by more than rounding or are not finite."""
    a, b = torch.tensor(one, dtype=torch.float64), torch.tensor(two, dtype=torch.float64)
    if not bool(a.isfinite().all()) or not torch.allclose(a, b, rtol=1e-4, atol=1e-4):
        raise Wrong(f"silent wrong number: {what}", f"{one}\ninstead of {two}")


# -- the stage -------------------------------------------------------------------------------------------------------


def some_smiles(number: int) -> list[str]:
    """Return molecules from RDKit's own NCI file."""
    from rdkit import RDConfig

    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    return [s for s in (line.split()[0] for line in lines) if 6 <= len(s) <= 30 and not set(s) & set(".[]")][:number]


def graph_line(edges: list[list[int]], kinds: list[int], charges: list[float], y: float | None = 0.0) -> str:
    """Return a graph as a line of JSON, with `y` only if it is known."""
    known = {} if y is None else {"y": y}
    return json.dumps({"edges": edges, "nodes": {"kind": kinds, "charge": charges}, **known})


def write_zinc(raw: Path) -> None:
    """Write small molecules in the layout of ZINC's published files."""
    raw.mkdir(parents=True)
    for number, split in enumerate(("train", "val", "test")):
        generator = torch.Generator().manual_seed(number)
        molecules = []
        for size in range(3, 9):
            bonds = torch.randint(0, 4, (size, size), generator=generator).triu(1)
            molecules.append({
                "num_atom": size,
                "atom_type": torch.randint(0, 28, (size,), generator=generator),
                "bond_type": bonds + bonds.t(),
                "logP_SA_cycle_normalized": torch.randn(1, generator=generator),
            })  # fmt: skip
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(molecules))
        (raw / f"{split}.index").write_text("0,3,1,5\n")


def build(stage: Stage) -> None:
    """Build two finished runs, of molecules and of graphs, ZINC's files, and the results of the first run."""
    folder = stage.folder
    rows = [f"{s},{len(s)}" for s in some_smiles(72)]
    (folder / "molecules.csv").write_text("\n".join(["smiles,length", *rows]) + "\n")
    rng = torch.Generator().manual_seed(0)
    lines = []
    for number in range(60):
        size = 3 + number % 6
        charges = [round(float(value), 3) for value in torch.randn(size, generator=rng)]
        ring = [[node, (node + 1) % size] for node in range(size)]
        lines.append(graph_line(ring, [(number * node) % 4 for node in range(size)], charges, sum(charges)))
    (folder / "graphs.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "raw").mkdir()
    write_zinc(folder / "raw" / "ZINC" / "raw")
    sources = {
        "molecules": ["--data", "Molecules", "--data.file", folder / "molecules.csv", "--data.target", "length"],
        "graphs": ["--data", "Graphs", "--data.source", folder / "graphs.jsonl"],
    }
    for name, data in sources.items():
        run = folder / name
        for command in (
            ["fit", *data, "--data.root", folder / "data", *SMALL, "--run", run],
            ["test", "--run", run],
            ["predict", "--run", run],
        ):
            code, said = Stage(folder, 300).call(*command)
            assert code == 0, said
    run = folder / "molecules"
    stage.truth["test"] = json.loads((run / "results.json").read_text())["test"]
    stage.truth["predictions"] = read_table(run / "predictions-test.csv")


@contextlib.contextmanager
def small_zinc() -> Iterator[None]:
    """Give ZINC's subset the sizes of the small files, and no network."""
    from graphbench.benchmarks.molecules import zinc
    from graphbench.data import download

    def offline(url: str, timeout: float) -> Any:
        raise OSError("no network here")

    before = zinc.SUBSET_SIZES, download.open_url
    zinc.SUBSET_SIZES, download.open_url = dict.fromkeys(("train", "val", "test"), 4), offline
    try:
        yield
    finally:
        zinc.SUBSET_SIZES, download.open_url = before
