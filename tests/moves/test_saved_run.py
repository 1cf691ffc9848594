"""Runs, stores, keys and registered names of version 0.1.0 still work.

`saved/` is the folder of a run of version 0.1.0 with its data and its store; `pinned.json` holds that version's names.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import rdkit

from graphbench import registry
from graphbench.cli import main
from graphbench.errors import GraphbenchError
from graphbench.report.loading import load_run
from graphbench.runs import RunFolder
from graphbench.testing.tiny import tiny_spec

HERE = Path(__file__).parent
#: Encodings whose values have changed since, with their version: stored values are recomputed.
CHANGED = {"ShortestPaths": 2, "LapPE": 2}
PINNED = json.loads((HERE / "pinned.json").read_text(encoding="utf-8"))


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Copy the saved run and make the copy the working directory, as its relative paths need."""
    shutil.copytree(HERE / "saved", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRAPHBENCH_STORE", raising=False)
    return tmp_path


def entries(folder: Path) -> set[str]:
    return {path.name for path in (folder / "data" / "store").glob("*-*")}


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:20]


#: Placeholders for versions in the pinned keys.
VERSIONS = {"rdkit": "any", "scikit-image": "0.26.0"}


def without_versions(value: object) -> object:
    """Replace versions of packages in a key, which may differ from those of 0.1.0, by placeholders."""
    if isinstance(value, dict):
        return {key: VERSIONS[key] if key in VERSIONS else without_versions(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_versions(item) for item in value]
    return value


def test_a_saved_run_is_scored_as_it_was(saved):
    before = json.loads((saved / "run" / "results.json").read_text())
    assert load_run(RunFolder(saved / "run"), "run").baselines.keys() == before["rivals"].keys()
    known = entries(saved)
    assert main(["test", "--run", "run"]) == 0
    after = json.loads((saved / "run" / "results.json").read_text())
    assert after["test"]["test/MAE"] == pytest.approx(before["test"]["test/MAE"], rel=1e-5)
    assert after["val"] == before["val"]
    assert "rivals" not in after
    for name, splits in before["rivals"].items():
        for split, scores in splits.items():
            found = after["baselines"][name][split]  # has more metrics than version 0.1.0
            assert {metric: found[metric] for metric in scores} == pytest.approx(scores, rel=1e-5)
    same_rdkit = rdkit.__version__ == json.loads((saved / "run" / "environment.json").read_text())["packages"]["rdkit"]
    assert not same_rdkit or entries(saved) == known, "the store's entries were rebuilt under other keys"


def test_a_saved_run_is_continued_and_reported(saved):
    assert main(["fit", "--resume", "run", "--trainer.max_epochs", "3"]) == 0
    results = json.loads((saved / "run" / "results.json").read_text())
    assert results["epochs"] == 3
    assert results["steps"] == 12
    assert main(["report", "run", "--output", "report"]) == 0
    assert "GPS" in (saved / "report" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("group", PINNED["entry_points"])
def test_registered_names_stay(group):
    assert set(PINNED["entry_points"][group]) <= set(registry.records(group))


@pytest.mark.parametrize("name", PINNED["table_keys"])
def test_table_keys_stay(name):
    try:
        benchmark = registry.load("benchmarks", name)()
        source = benchmark.source_key()
    except GraphbenchError as error:
        pytest.skip(f"{name} needs more than is installed here: {error}")
    key = {"benchmark": type(benchmark).__name__, "version": benchmark.data_version, "source": source}
    assert digest(without_versions(key)) == PINNED["table_keys"][name]


@pytest.mark.parametrize("name", PINNED["encoding_keys"])
def test_encoding_keys_stay(name):
    encoding = registry.load("encodings", name)()
    if name in CHANGED:
        assert encoding.version == CHANGED[name]
        return
    assert digest({"version": encoding.version, "parameters": encoding.parameters()}) == PINNED["encoding_keys"][name]


@pytest.mark.parametrize("name", PINNED["state_dicts"])
def test_names_and_shapes_of_weights_stay(name):
    architecture = registry.load("architectures", name)
    try:
        model = architecture(tiny_spec("graph-regression", "both"))
    except GraphbenchError:
        model = architecture(tiny_spec("map-recovery", "none"))
    shapes = {key: list(getattr(value, "shape", ())) for key, value in model.state_dict().items()}
    assert digest(shapes) == PINNED["state_dicts"][name]
