"""`graphbench --version` describes the installation, and the entry point dispatches commands."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

import pytest

import graphbench
from graphbench.cli import COMMANDS, main
from graphbench.cli.commands.list_command import other_distributions


def _fake(site, name, version, **files):
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    for file, text in files.items():
        (info / file.replace("_txt", ".txt")).write_text(text)


def test_version_names_the_distribution_and_what_it_stands_on(capsys):
    assert main(["--version"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"graphbench-lightning {graphbench.__version__}, imported as graphbench from ")
    assert "torch " in out
    assert main(["version"]) == 0
    assert capsys.readouterr().out == out


def test_version_says_which_kernels_are_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("GRAPHBENCH_KERNELS", "torch")
    main(["--version"])
    assert "kernels: none" in capsys.readouterr().out
    monkeypatch.delenv("GRAPHBENCH_KERNELS")
    entry = "[graphbench.kernels]\nmade = made_up:register\n"
    _fake(tmp_path, "some-kernels", "7.8.9", entry_points_txt=entry)
    monkeypatch.syspath_prepend(str(tmp_path))
    main(["--version"])
    assert "some-kernels 7.8.9" in capsys.readouterr().out


def test_another_package_of_that_name_is_noticed(tmp_path, monkeypatch, capsys):
    _fake(tmp_path, "graphbench-lib", "0.2.0", top_level_txt="graphbench\n")
    _fake(tmp_path, "graphbench", "0.0.0.1", RECORD="a.py,,\ngraphbench/__init__.py,,\n")
    _fake(tmp_path, "graphbench-other", "1.0", top_level_txt="graphbench_other\n", RECORD="graphbench_other/a.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert other_distributions() == ["graphbench 0.0.0.1", "graphbench-lib 0.2.0"]
    main(["--version"])
    out = capsys.readouterr().out
    assert "Warning: graphbench-lib 0.2.0 is another project" in out
    assert "pip uninstall graphbench-lib" in out


def test_no_other_distribution_no_warning(capsys):
    main(["--version"])
    assert "Warning" not in capsys.readouterr().out


def test_help_lists_every_command(capsys):
    for arguments in ([], ["--help"], ["-h"]):
        assert main(arguments) == 0
        out = capsys.readouterr().out
        assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_command_exists(name):
    module, _, function = COMMANDS[name][0].partition(":")
    assert callable(getattr(importlib.import_module(f"graphbench.cli.commands.{module}"), function))


def test_unknown_command_suggests_near_matches(capsys):
    assert main(["lsit"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("graphbench: No command is called 'lsit'. Did you mean list")


def test_module_can_be_run():
    done = subprocess.run([sys.executable, "-m", "graphbench", "nwe-plugin"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "new-plugin" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_has_its_own_exit_code(monkeypatch):
    def interrupted(arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("graphbench.cli.commands.list_command.show_version", interrupted)
    assert main(["version"]) == 130


def test_closed_pipe_is_no_traceback():
    code = "import sys; from graphbench.cli import main; sys.exit(main(['list']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    assert process.wait() in (0, 1)


def _processor_seconds(*command):
    start = os.times()
    subprocess.run([sys.executable, "-c", *command], check=True, stdout=subprocess.DEVNULL)
    end = os.times()
    return end.children_user + end.children_system - start.children_user - start.children_system


def test_light_commands_are_quick_and_import_no_torch():
    """Each takes less processor time than importing torch at the same time (a fifth on an idle machine)."""
    code = "import sys; from graphbench.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    limit = _processor_seconds("import torch")
    for command in (["--version"], ["list"], ["list", "--json"], ["--help"]):
        seconds = _processor_seconds(code, *command)
        assert seconds < limit, f"graphbench {' '.join(command)} took {seconds:.2f} s, importing torch {limit:.2f} s"
