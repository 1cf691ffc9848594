"""Small finished runs on a file of molecules: a regression, a classification, and two labels."""

from __future__ import annotations

import pytest
from command_line import SMALL_MODEL

SMILES = [ring + chain for chain in ("", "C", "O", "CC", "N") for ring in (f"C1{'C' * size}C1" for size in range(1, 7))]
TASKS = {
    "regression": ["--data.target", "value", "--model.standardize_targets", "true"],
    "classification": ["--data.target", "kind", "--data.task", "classification", "--data.num_classes", "3"],
    "multilabel": ["--data.target", "[hot, cold]", "--data.task", "multilabel"],
}


@pytest.fixture(scope="session")
def own_file(tmp_path_factory):
    """Write a file of thirty molecules with a number, a class and two labels."""
    rows = ["smiles,value,kind,hot,cold"]
    rows += [f"{smiles},{100 + n / 3},{n % 3},{n % 2},{n // 2 % 2}" for n, smiles in enumerate(SMILES)]
    path = tmp_path_factory.mktemp("own") / "own.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def fitted(own_file, tmp_path_factory):
    """Return a function that fits a task for one epoch and returns the run's folder."""
    done = {}

    def fitted(task):
        from graphbench.cli import main

        if task not in done:
            folder = tmp_path_factory.mktemp("runs") / task
            place = ["--data.root", str(own_file.parent / "data"), "--data.file", str(own_file)]
            options = ["--data", "Molecules", *place, *TASKS[task], *SMALL_MODEL, "--trainer.max_epochs", "1"]
            assert main(["fit", *options, "--run", str(folder)]) == 0
            done[task] = folder
        return done[task]

    return fitted
