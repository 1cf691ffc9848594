"""The inputs on which the memory of a long prediction is measured, and the resulting figures."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rdkit import Chem

SPEED = Path(__file__).parents[2] / "speed"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(SPEED))
    return importlib.import_module("predict_memory")


def test_molecules_are_small_and_of_many_sizes(script, tmp_path):
    frame = pd.read_csv(script.write_rows(tmp_path / "rows.csv", 104))
    atoms = [Chem.MolFromSmiles(smiles).GetNumAtoms() for smiles in frame["smiles"]]
    assert (min(atoms), max(atoms)) == (4, 19)
    assert frame["length"].tolist() == atoms, "one letter for each atom"
    assert frame["smiles"].nunique() == 52
    assert frame["name"].is_unique


def test_graphs_are_the_same_molecules(script, tmp_path):
    lines = script.write_graphs(tmp_path / "rows.jsonl", 104).read_text().splitlines()
    for line, smiles in zip(lines, pd.read_csv(script.write_rows(tmp_path / "rows.csv", 104))["smiles"], strict=True):
        graph, molecule = json.loads(line), Chem.MolFromSmiles(smiles)
        assert graph["nodes"]["element"] == [atom.GetSymbol() for atom in molecule.GetAtoms()]
        bonds = [[bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()] for bond in molecule.GetBonds()]
        assert graph["edges"] == bonds
        assert graph["length"] == molecule.GetNumAtoms()


def test_tables_are_the_same_graphs(script, tmp_path):
    folder = script.write_tables(tmp_path / "tables", 104)
    nodes, edges = (dict(list(pd.read_csv(folder / f"{name}.csv").groupby("graph"))) for name in ("nodes", "edges"))
    lengths = pd.read_csv(folder / "graphs.csv").set_index("graph")["length"]
    for line in script.write_graphs(tmp_path / "rows.jsonl", 104).read_text().splitlines():
        graph = json.loads(line)
        assert nodes[graph["id"]]["element"].tolist() == graph["nodes"]["element"]
        assert edges[graph["id"]][["source", "target"]].to_numpy().tolist() == graph["edges"]
        assert lengths[graph["id"]] == graph["length"]


def test_growth_is_that_of_the_last_step(script):
    assert script.growth([500.0, 900.0, 1300.0], [1, 4, 16]) == pytest.approx(400 / 12)


def test_a_command_that_fails_ends_the_script_with_its_words(script):
    with pytest.raises(SystemExit, match=r"graphbench version failed:\n.*--verbos"):
        script.run(["version", "--verbos"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "rows"), [("molecules", 3000), ("graphs", 3000), ("graph-tables", 12_000)])
def test_a_row_leaves_nothing_behind(script, kind, rows):
    """Its columns as text in a table would be 250 bytes; its graph is more than 1,000."""
    command = [sys.executable, SPEED / "predict_memory.py", "--kind", kind, "--rounds", "1", "--rows", str(rows)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (found,) = re.findall(rf"^(-?\d+) bytes per row from {4 * rows:,} to {16 * rows:,} rows$", said, re.MULTILINE)
    assert int(found) < 200
