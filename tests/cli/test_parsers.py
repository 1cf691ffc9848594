"""Mistakes in a command's own options: one line with the option, the value and what is right, and exit code 1."""

from __future__ import annotations

import argparse
import csv
import shlex
from pathlib import Path

import pytest
from command_line import SMALL_MODEL

from graphbench.cli import COMMANDS, main
from graphbench.cli.parsers import CommandParser

#: Command line -> parts of the message.
MISTAKES = {
    # an option that does not exist
    "export --ouput x --run y": ["Unknown option --ouput. Did you mean --output? `graphbench export --help` lists"],
    "push here hf:a/b --privat": ["Unknown option --privat. Did you mean --private?"],
    "config quickstart --cpoy": ["Unknown option --cpoy. Did you mean --copy?"],
    "list --jsn": ["Unknown option --jsn. Did you mean --json?"],
    "new-plugin mine --dir x": ["Unknown option --dir. Did you mean --directory?"],
    "completion bash --wrds": ["Unknown option --wrds."],
    "version --verbose": ["Unknown option --verbose. `graphbench version --help` lists all options."],
    "report x --otput y": ["Unknown option --otput. Did you mean --output?"],
    "tune --sapce x --run y": ["Unknown option --sapce. Did you mean --space?"],
    "sweep --config gps/zinc --outptu y": ["Unknown option --outptu. Did you mean --output?"],
    "reproduce sft/table-4 --outptu=x": ["--outptu=x: not an option of graphbench reproduce. Did you mean --output?"],
    "embed --levle node": ["Unknown option --levle. Did you mean --level?"],
    "explain --row 3": ["Unknown option --row. Did you mean --rows"],
    "prepare --rnu x": ["Unknown option --rnu. Did you mean --run?"],
    "profile --stpes 3": ["Unknown option --stpes. Did you mean --steps?"],
    "params --jsn": ["Unknown option --jsn. Did you mean --json?"],
    # one that is missing
    "export": ["graphbench export needs --run (folder of a finished fit) and --output (folder to write)."],
    "export --run x": ["graphbench export needs --output (folder to write)."],
    "push": ["graphbench push needs FOLDER (a run, or", "and hf:OWNER/NAME (target"],
    "tune --config gps/zinc": ["graphbench tune needs --space (", "and --run (folder of the study)."],
    "sweep --config gps/zinc": ["graphbench sweep needs --output (folder of the sweep"],
    "report": ["graphbench report needs RUN (folder of a run"],
    "report --output x": ["graphbench report needs RUN"],
    "config": ["graphbench config needs name (such as quickstart or gps/zinc)."],
    "new-plugin": ["graphbench new-plugin needs name (such as my-model"],
    "completion": ["graphbench completion needs shell (bash or zsh)."],
    # a value that is missing, empty, too many, or none of the choices
    "predict --run": ["--run needs a value: folder of a finished fit; several"],
    "fit --run": ["--run needs a value: folder of the new run."],
    "explain --rows": ["--rows needs a value: rows to explain"],
    "embed --run x --level": ["--level needs a value: graph (default)"],
    "export --run x --output": ["--output needs a value: folder to write."],
    "export --run x --output ''": ["--output is empty. Give it a value, or leave it out."],
    "predict --run ''": ["--run is empty."],
    "report ''": ["RUN is empty."],
    "list --json=yes": ["--json takes no value, but got 'yes'."],
    "list benchmarks all": ["graphbench list does not accept 'all'. `graphbench list --help` shows what it accepts."],
    "version all": ["graphbench version does not accept 'all'."],
    "export --run x --output y --format tflite": ["--format must be one of weights, torch, onnx, but got 'tflite'."],
    "tune --space x --run y --pruning best": ["--pruning must be one of median, none, but got 'best'."],
    "sweep --config gps/zinc --output y --resplit rings": ["--resplit must be one of random", "'rings'"],
    "reproduce sft/table-4 --scale tiny": ["--scale must be one of full, short, smoke, but got 'tiny'."],
    "completion fish": ["completion must be one of bash, zsh, but got 'fish'."],
    # one that is given twice, of which one would be lost
    "test --run a --run b": ["--run is given twice"],
    "embed --run=a --run-folder b": ["--run-folder is given twice"],
    "export --run a -o x --output y": ["--output is given twice"],
    "sweep --config gps/zinc --output y --seeds 0 1 --seeds 2": ["--seeds is given twice"],
    "prepare --data NCI --launcher local --launcher.at-once 2 --launcher.at_once 3": ["--launcher.at_once is given"],
    # a text for a number, and a number out of range
    "tune --space x --run y --trials many": ["--trials must be an integer, but got 'many'."],
    "tune --space x --run y --trials 1.5": ["--trials must be an integer, but got '1.5'."],
    "tune --space x --run y --trials 0": ["--trials must be an integer of at least 1, but got 0."],
    "sweep --config gps/zinc --output y --jobs two": ["--jobs must be an integer, but got 'two'."],
    "sweep --config gps/zinc --output y --folds x": ["--folds must be an integer, but got 'x'."],
    "reproduce sft/table-4 --output x --seeds x": ["--seeds must be an integer, but got 'x'."],
    "reproduce sft/table-4 --output x --job x": ["--job must be an integer, but got 'x'."],
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(line)) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("graphbench: ")
    assert told.err.count("\n") == 1
    for part in MISTAKES[line]:
        assert part in told.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["profile", "--steps", "5"], "--steps must be an integer of at least 6, but got 5."),
        (["profile", "--steps", "²"], "--steps must be an integer of at least 6, but got '²'."),
        (["profile", "--steps", "9" * 5000], "--steps must be an integer of at least 6, but got '999"),
        (["profile", "--depth", "0"], "--depth must be an integer of at least 1, but got 0."),
        (["explain", "--output", "x", "--rows", "0", "-1"], "--rows must be an integer of at least 0, but got -1."),
        (
            ["explain", "--output", "x", "--rows", "0", "--steps", "1e2"],
            "--steps must be an integer of at least 2, but got '1e2'.",
        ),
    ],
)
def test_numbers_of_commands_that_build_a_model(command, said, capsys):
    name, *options = command
    assert main([name, "--data", "NCI", *SMALL_MODEL, *options]) == 1
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_this_parser(command, capsys, monkeypatch):
    """No command shows argparse's usage page, or exits with its code 2, for an unknown option."""
    made = argparse.ArgumentParser.__init__

    def ours(parser, *args, **options):
        if str(options.get("prog", "")).startswith("graphbench "):
            assert isinstance(parser, CommandParser)
        made(parser, *args, **options)

    monkeypatch.setattr("argparse.ArgumentParser.__init__", ours)
    assert main([command, "--an-option-that-nobody-has", "3"]) == 1
    told = capsys.readouterr()
    assert "an-option-that-nobody-has" in told.err or "needs" in told.err
    assert "usage:" not in told.out + told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    "line",
    [
        "new-plugin mine --directory {}",
        "config quickstart --copy {}/below",
        "sweep --config gps/zinc --output {}",
        "sweep --config gps/zinc --output {}/below",
        "tune --config gps/zinc --space x --run {}/below",
        "reproduce sft/table-4 --output {}/below",
        "reproduce --records x --page {}/below",
        "export --run x --output {}/below",
        "sweep --config gps/zinc --output=-{}",
    ],
)
def test_a_place_that_cannot_be_is_one_line(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    assert main(shlex.split(line.format(tmp_path / "file"))) == 1
    told = capsys.readouterr().err
    assert str(tmp_path / "file") in told
    assert told.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_read_only_is_one_line(tmp_path, monkeypatch, capsys):
    """`os.access` is patched: a chmod does not stop root, who often runs tests in containers."""
    monkeypatch.setattr("graphbench.cli.parsers.os.access", lambda path, mode: False)
    assert main(["new-plugin", "mine", "--directory", str(tmp_path / "new")]) == 1
    assert f"--directory {tmp_path / 'new'}: {tmp_path} is not writable." in capsys.readouterr().err


def test_a_name_that_the_file_system_refuses_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new-plugin", "x" * 300]) == 1
    assert capsys.readouterr().err == f"graphbench: graphbench-{'x' * 300} cannot be used: File name too long.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux alone has a device that is always full")
@pytest.mark.parametrize("by", ["flush", "close", "rows"])
def test_a_full_disk_is_said_with_the_file_that_was_written(by, monkeypatch, capsys):
    """The system names no file if a write or a flush fails, as in Optuna's journal and Lightning's tables."""

    def write(_):
        with Path("/dev/full").open("w") as file:
            if by == "rows":
                csv.writer(file).writerows([["x" * 100]] * 1000)
            else:
                file.write("x")
            if by == "flush":
                file.flush()

    monkeypatch.setattr("graphbench.cli.commands.list_command.show_version", write)
    assert main(["version"]) == 1
    assert capsys.readouterr().err == "graphbench: /dev/full cannot be used: No space left on device.\n"


def test_help_goes_before_what_is_wrong(capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", "--help", "--nonsense"])
    assert end.value.code == 0
    assert "usage: graphbench export" in capsys.readouterr().out


def test_options_of_several_values_may_be_given_again():
    parser = CommandParser("push")
    parser.add_argument("--rows", nargs="+", action="extend")
    parser.add_argument("--number", type=int)
    parser.add_argument("place", nargs="?")
    for _ in range(2):  # nothing is kept from one command line to the next
        found = parser.parse_args(["--rows", "1", "--number", "3", "--rows", "2", "4"])
        assert vars(found) == {"rows": ["1", "2", "4"], "number": 3, "place": None}


def test_runs_of_an_ensemble_may_be_named_one_by_one(capsys):
    assert main(["predict", "--run", "a", "--run", "b", "--input", "x.csv", "--output", "y.csv"]) == 1
    assert "b is not the folder of a run" in capsys.readouterr().err


def test_what_looks_like_an_option_may_be_a_value():
    parser = CommandParser("push")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--number", type=int)
    parser.add_argument("--message")
    found = parser.parse_args(["--number", "-3", "--message=--odd", "-", "--", "--word"])
    assert (found.number, found.message, found.words) == (-3, "--odd", ["-", "--word"])
