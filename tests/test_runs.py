"""The run folder: atomic writes, names, and what it says of folders that hold no run."""

import json
import os

import pytest

from graphbench.errors import BadInput
from graphbench.runs import RunFolder, describe_environment, write_text


def test_a_failed_write_leaves_the_old_text(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "results.json"
    write_text(path, "old")

    def crash(self, target):
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.replace", crash)
    with pytest.raises(OSError, match="disk full"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["results.json"]


def test_results_are_merged_by_top_level_key(tmp_path):
    run = RunFolder(tmp_path)
    assert run.read_results() == {}
    run.update_results({"val": {"val/MAE": 0.5}, "epochs": 3})
    run.update_results({"test": {"test/MAE": 0.1 + 0.2}, "epochs": 4})
    assert json.loads(run.results.read_text()) == {
        "val": {"val/MAE": 0.5},
        "epochs": 4,
        "test": {"test/MAE": 0.1 + 0.2},
    }


def test_a_folder_without_configuration_is_no_run(tmp_path):
    with pytest.raises(BadInput, match=r"no config\.yaml"):
        RunFolder.existing(tmp_path)


def test_ranks_of_one_command_share_the_made_up_name(monkeypatch):
    for name in ("GRAPHBENCH_RUN", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    first = RunFolder.fresh("NCI", "GPS")
    assert first.path.parts[0] == "runs"
    assert first.path.name.startswith("nci-gps-")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert RunFolder.fresh("other", "name") == first
    monkeypatch.delenv("LOCAL_RANK")
    assert RunFolder.fresh("ZINC", "GT").path.name.startswith("zinc-gt-")
    assert os.environ["GRAPHBENCH_RUN"].startswith("runs/zinc-gt-")


def test_the_environment_names_versions_and_hardware():
    import torch

    described = describe_environment()
    assert described["packages"]["torch"] == torch.__version__
    assert described["cores"] == os.cpu_count()
    json.dumps(described)
