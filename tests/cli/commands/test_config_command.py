"""`graphbench config NAME` prints and copies configurations; names work wherever files do, from any folder."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from graphbench.cli import main

QUICKSTART = Path(__file__).parents[3] / "configs" / "quickstart.yaml"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_is_printed_as_it_is(capsys):
    assert main(["config", "quickstart"]) == 0
    assert capsys.readouterr().out == QUICKSTART.read_text()


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (["--copy"], "quickstart.yaml"),
        (["--copy", "mine/first.yaml"], "mine/first.yaml"),
        (["--copy", "."], "quickstart.yaml"),
    ],
)
def test_it_is_copied(arguments, file, empty_folder, capsys):
    assert main(["config", "quickstart", *arguments]) == 0
    assert (empty_folder / file).read_text() == QUICKSTART.read_text()
    assert f"--config {file}" in capsys.readouterr().out
    assert main(["config", "quickstart", *arguments]) == 1
    assert "exists already, and nothing is overwritten" in capsys.readouterr().err


def test_unknown_names_are_refused_with_near_ones(capsys):
    assert main(["config", "gps/zink"]) == 1
    error = capsys.readouterr().err
    assert "no installed configuration has that name. Did you mean gps/zinc" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", ["fit", "params", "prepare", "profile"])
def test_every_command_refuses_an_unknown_name(command, capsys):
    assert main([command, "--config", "gps/zink"]) == 1
    assert "--config gps/zink: there is no such file" in capsys.readouterr().err


def test_names_and_files_go_over_each_other(empty_folder, capsys):
    (empty_folder / "mine.yaml").write_text("expected: {value: 0.5}\n")
    with pytest.raises(SystemExit, match="0"):
        main(["fit", "--config", "quickstart", "--config=trainer/ddp", "--config", "mine.yaml", "--print_config"])
    config = yaml.safe_load(capsys.readouterr().out)
    assert config["trainer"]["devices"] == 2
    assert config["expected"]["value"] == 0.5
    assert config["expected"]["metric"] == "test/MAE"


def test_an_unknown_key_of_what_is_expected_is_refused_by_name(empty_folder, capsys):
    (empty_folder / "mine.yaml").write_text("expected: {valeu: 0.5}\n")
    assert main(["params", "--config", "quickstart", "--config", "mine.yaml"]) == 1
    assert "expected has no key 'valeu'. Did you mean value?" in capsys.readouterr().err
    assert main(["params", "--config", "quickstart", "--expected.valeu", "1"]) == 1
    assert "valeu" in capsys.readouterr().err
