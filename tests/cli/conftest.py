"""A small file of molecules and a finished run on it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from command_line import SMALL_MODEL
from rdkit import RDConfig


@pytest.fixture(scope="session")
def molecule_file(tmp_path_factory):
    """Write 120 molecules of RDKit's NCI file with SMILES of 6 to 30 letters, whose length is the target."""
    lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
    smiles = [line.split()[0] for line in lines if 6 <= len(line.split()[0]) <= 30 and "." not in line]
    smiles = [s for s in smiles if not any(c in s for c in "[]")][:120]
    path = tmp_path_factory.mktemp("molecules") / "mine.csv"
    path.write_text("smiles,length\n" + "".join(f"{s},{len(s)}\n" for s in smiles))
    return path


@pytest.fixture(scope="session")
def data_options(molecule_file):
    folder = molecule_file.parent
    return [
        "--data", "Molecules",
        "--data.file", str(molecule_file),
        "--data.target", "length",
        "--data.root", str(folder / "data"),
        "--data.store", str(folder / "store"),
        "--data.batch_size", "16",
    ]  # fmt: skip


@pytest.fixture(scope="session")
def finished_run(data_options, tmp_path_factory):
    """Return the folder of a fit of three epochs."""
    from graphbench.cli import main

    folder = tmp_path_factory.mktemp("runs") / "done"
    assert main(["fit", *data_options, *SMALL_MODEL, "--trainer.max_epochs", "3", "--run", str(folder)]) == 0
    return folder


@pytest.fixture
def with_report(monkeypatch):
    """Let `fit` and `test` write the report of their run, which other tests skip."""
    from graphbench.cli.trained import write_page

    for command in ("fit", "score"):
        monkeypatch.setattr(import_module(f"graphbench.cli.commands.{command}"), "write_page", write_page)


@pytest.fixture(scope="module")
def begin(data_options, tmp_path_factory):
    """Return a function that trains one epoch with given options, each combination once."""
    from resumed_runs import OPTIONS

    from graphbench.cli import main

    made = {}

    def begun(*options):
        if options not in made:
            folder = tmp_path_factory.mktemp("begun") / "run"
            assert main(["fit", *data_options, *OPTIONS, *options, "--run", str(folder)]) == 0
            made[options] = folder
        return made[options]

    return begun
