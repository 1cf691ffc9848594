"""A run from someone else: its configuration imports only registered or listed classes, unless it is trusted."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from command_line import SMALL_MODEL

import graphbench
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.registry.importing import current_gate
from graphbench.runs import trust

#: A module that leaves a trace when it is imported, with a callback and a function.
MODULE = """
import pathlib
import pytorch_lightning as pl
TRACE = pathlib.Path({trace!r})
TRACE.touch()

class Callback(pl.Callback):
    pass

def anything(*args, **kwargs):
    return None
"""


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    """Keep what is remembered within the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "graphbench" / "trusted.json"


@pytest.fixture
def trace(tmp_path, monkeypatch):
    """Make `sent_code` importable; return a path that exists after an import."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "sent_code.py").write_text(MODULE.format(trace=str(tmp_path / "trace")))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "sent_code", raising=False)
    yield tmp_path / "trace"
    sys.modules.pop("sent_code", None)


@pytest.fixture
def sent(finished_run, tmp_path):
    """Return a function that copies a finished run and changes a section of its configuration."""

    def change(section, value):
        run = tmp_path / "sent"
        shutil.copytree(finished_run, run, dirs_exist_ok=True)
        config = yaml.safe_load((run / "config.yaml").read_text())
        config["trainer" if section != "data" else "data"] |= value if section == "data" else {section: value}
        (run / "config.yaml").write_text(yaml.safe_dump(config))
        return run

    return change


LISTED = "pytorch_lightning.callbacks"
CALLBACK = {"class_path": "sent_code.Callback"}
COMMANDS = [
    ["test", "--run"],
    ["validate", "--run"],
    ["predict", "--run"],
    ["params", "--run"],
    ["prepare", "--run"],
    ["profile", "--run"],
    ["fit", "--resume"],
]


def test_fits_that_start_together_are_all_trusted(tmp_path, memory, monkeypatch):
    policy, stored = trust.Policy(Path(), trust=True, foreign={"mine.Model"}), trust._stored_checksums
    monkeypatch.setattr(trust.importing, "current_gate", lambda: policy)
    monkeypatch.setattr(trust, "_stored_checksums", lambda: (stored(), time.sleep(0.05))[0])
    configs = [tmp_path / f"{number}.yaml" for number in range(6)]
    for config in configs:
        config.touch()
    with ThreadPoolExecutor(len(configs)) as pool:
        list(pool.map(trust.remember, configs))
    assert json.loads(memory.read_text()).keys() == set(map(str, configs))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_command_imports_what_a_run_names(sent, trace, capsys, command):
    run = sent("callbacks", [CALLBACK])
    assert main([*command, str(run)]) == 1
    said = capsys.readouterr().err
    assert f"{run / 'config.yaml'} names sent_code.Callback" in said
    assert "--trust" in said
    assert "trust=True" in said
    assert "Traceback" not in said
    assert not trace.exists()


@pytest.mark.parametrize(
    ("section", "value", "named"),
    [
        ("callbacks", ["sent_code.Callback"], "sent_code.Callback"),
        ("callbacks", "sent_code.Callback", "sent_code.Callback"),
        ("profiler", {"class_path": "sent_code.Callback"}, "sent_code.Callback"),
        (
            "callbacks",
            [
                {
                    "class_path": "pytorch_lightning.callbacks.LambdaCallback",
                    "init_args": {"setup": "sent_code.anything"},
                }
            ],
            "sent_code.anything",
        ),
        ("callbacks", [{"class_path": "graphbench.runs.subprocess.Popen", "init_args": {"args": "x"}}], "subprocess"),
        ("callbacks", [{"class_path": "graphbench.cli.main"}], "graphbench.cli.main"),
        ("callbacks", [{"class_path": "graphbench.runs.hub.push"}], "graphbench.runs.hub.push"),
        ("callbacks", [{"class_path": "os.system"}], "os.system"),
        ("data", {"class_path": "sent_code.GPS", "init_args": {}}, "sent_code.GPS"),
    ],
)
def test_there_is_no_other_way_in(sent, trace, capsys, section, value, named):
    assert main(["params", "--run", str(sent(section, value))]) == 1
    said = capsys.readouterr().err
    assert named in said
    assert "Traceback" not in said
    assert not trace.exists()


def test_loggers_of_a_sent_run_are_neither_imported_nor_built(sent, trace):
    """Only `fit`, which resumes a run, refuses them."""
    run = sent("logger", "sent_code.Callback")
    assert main(["params", "--run", str(run)]) == 0
    assert not trace.exists()
    assert main(["fit", "--resume", str(run)]) == 1
    assert not trace.exists()


def test_a_file_that_the_configuration_names_has_the_same_limits(sent, trace, tmp_path, capsys):
    run = sent("callbacks", None)
    (tmp_path / "data.yaml").write_text("class_path: sent_code.Callback\n")
    config = yaml.safe_load((run / "config.yaml").read_text()) | {"data": str(tmp_path / "data.yaml")}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["params", "--run", str(run)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not trace.exists()


def test_loading_in_python_has_the_same_limits_and_answer(sent, trace, capsys):
    run = sent("data", {"class_path": "sent_code.Data"})
    with pytest.raises(BadInput, match=r"names sent_code\.Data.*trust=True"):
        graphbench.load(run)
    config = yaml.safe_load((run / "config.yaml").read_text()) | {"data": "sent_code.Data"}
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(BadInput, match=r"names sent_code\.Data.*trust=True"):
        graphbench.load(run)
    assert not trace.exists()
    with pytest.raises(BadInput, match="cannot be built"):
        graphbench.load(run, trust=True)
    assert trace.exists()


def test_a_registered_run_is_loaded_in_python(finished_run):
    assert len(graphbench.load(finished_run, accelerator="cpu").predict(["CCO", "c1ccccc1"])) == 2


def test_listed_classes_need_no_trust(sent, capsys):
    allowed = [
        {"class_path": "pytorch_lightning.callbacks.EarlyStopping", "init_args": {"monitor": "val/loss"}},
        {"class_path": "graphbench.callbacks.throughput.Throughput"},
        {"class_path": "AttentionCapacity"},
    ]
    run = sent("callbacks", allowed)
    assert main(["params", "--run", str(run)]) == 0, capsys.readouterr().err


def test_trust_is_asked_for_once_and_for_this_folder_and_these_classes(sent, trace, memory, tmp_path, capsys):
    run = sent("callbacks", [CALLBACK])
    assert main(["params", "--trust", "--run", str(run)]) == 0, capsys.readouterr().err
    assert trace.exists()
    checksum = hashlib.sha256((run / "config.yaml").read_bytes()).hexdigest()
    assert json.loads(memory.read_text()) == {str((run / "config.yaml").resolve()): checksum}
    assert main(["params", "--run", str(run)]) == 0
    shutil.copytree(run, tmp_path / "elsewhere")
    assert main(["params", "--run", str(tmp_path / "elsewhere")]) == 1
    sent("callbacks", [{"class_path": "sent_code.Other"}])
    assert main(["params", "--run", str(run)]) == 1
    assert "names sent_code.Other" in capsys.readouterr().err


@pytest.mark.parametrize("relative", [False, True])
def test_the_question_names_all_classes_that_the_answer_is_for(sent, trace, capsys, monkeypatch, relative):
    run = sent(
        "callbacks", [{"class_path": "pytorch_lightning.callbacks.Timer"}, CALLBACK, {"class_path": "other.Net"}]
    )
    monkeypatch.chdir(run.parent)
    assert main(["params", "--run", run.name if relative else str(run)]) == 1
    said = capsys.readouterr().err
    assert "names sent_code.Callback" in said
    assert "'other.Net'" in said
    assert "Timer" not in said


def test_the_plug_in_that_a_run_was_made_with_is_named_where_it_is_absent(sent, capsys):
    run = sent("callbacks", [{"class_path": "graphbench_absent.Norms"}])
    environment = json.loads((run / "environment.json").read_text())
    for made_with in ({}, {"graphbench-absent": "0.3 (1234)"}, {"graphbench-absent": "0.3\x1b[2K"}):
        (run / "environment.json").write_text(json.dumps(environment | {"packages": made_with}))
        assert main(["params", "--run", str(run)]) == 1
        said = capsys.readouterr().err
        assert "graphbench_absent.Norms" in said
        assert ("graphbench-absent 0.3 (1234)" in said) == (made_with == {"graphbench-absent": "0.3 (1234)"})
        assert "\x1b" not in said


def test_trust_that_is_kept_covers_no_other_file(sent, trace, tmp_path, capsys):
    """Only the configuration has a checksum: a file that it names may differ the next time."""
    run, other = sent("callbacks", None), tmp_path / "data.yaml"
    config = yaml.safe_load((run / "config.yaml").read_text())
    other.write_text(yaml.safe_dump(config["data"]))
    config["trainer"]["callbacks"] = [CALLBACK]
    (run / "config.yaml").write_text(yaml.safe_dump(config | {"data": str(other)}))
    assert main(["params", "--trust", "--run", str(run)]) == 0, capsys.readouterr().err
    other.write_text("class_path: sent_code.Data\n")
    assert main(["params", "--run", str(run)]) == 1
    assert "another file" in capsys.readouterr().err


def test_own_runs_go_on_without_a_question(data_options, trace, memory, tmp_path, capsys):
    run = tmp_path / "own"
    short = [*SMALL_MODEL, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
    command = ["fit", *data_options, *short, "--trainer.callbacks+=sent_code.Callback", "--run", str(run)]
    assert main(command) == 0, capsys.readouterr().err
    assert main(["fit", "--resume", str(run), "--trainer.max_epochs", "2"]) == 0, capsys.readouterr().err
    assert main(["validate", "--run", str(run)]) == 0, capsys.readouterr().err
    memory.unlink()
    assert main(["validate", "--run", str(run)]) == 1


def test_limits_end_with_their_command(sent, trace):
    from jsonargparse._common import parsing_settings

    before, gate = dict(parsing_settings), current_gate()
    assert main(["params", "--run", str(sent("callbacks", [CALLBACK]))]) == 1
    assert parsing_settings == before
    assert current_gate() is gate


def test_damaged_memory_and_configurations_are_one_line(sent, memory, trace, capsys):
    run = sent("callbacks", [CALLBACK])
    for text in ("{", "[]", '{"x": 1}', "\x00"):
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(text)
        with pytest.raises(BadInput, match=r"sent_code\.Callback"):
            trust.Policy.of(run / "config.yaml").check("sent_code.Callback")
    for text in (b"", b"\xff\xfe", b"a: [", b"- x", b"&a [*a]"):
        (run / "config.yaml").write_bytes(text)
        assert main(["test", "--run", str(run)]) == 1
        assert "Traceback" not in (said := capsys.readouterr().err)
        assert "config.yaml" in said
