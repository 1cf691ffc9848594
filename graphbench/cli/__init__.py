"""Run `graphbench COMMAND`. A command's module is imported only when it is called.

Every command is a function that takes the arguments after its name and returns an exit code.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from graphbench.cli.process import (
    Stopped,
    exit_code,
    hushed_threads,
    keep_folder_out,
    name_starter,
    settle_waiting,
    stoppable,
)
from graphbench.errors import BadInput, GraphbenchError, UnknownName, visible

#: Command -> its function, as "module:function" of `commands/`, and a summary.
COMMANDS: dict[str, tuple[str, str]] = {
    "fit": ("fit:fit", "train an architecture on a benchmark, or continue a run"),
    "validate": ("score:validate", "score a run on the validation split"),
    "test": ("score:test", "score a run on the test split"),
    "predict": ("predict:predict", "write a run's predictions of a new input, or of a split, to a file"),
    "embed": ("predict:embed", "write a run's representations of graphs or nodes to a file"),
    "params": ("profile:params", "count trainable parameters; reads no data but your own and those of Graphs"),
    "prepare": ("prepare:prepare", "fill the store with data and encodings ahead of a fit"),
    "profile": ("profile:profile", "measure throughput, memory and operations"),
    "sweep": ("sweep:sweep", "train and compare several models, seeds and folds in one command"),
    "study": ("study:study", "answer the four questions of a reviewer about a model: control, depth, budget, cost"),
    "tune": ("tune:tune", "search for better options by validation scores, with Optuna"),
    "explain": ("explain:explain", "show which atoms and bonds (nodes, edges) a prediction rests on"),
    "export": ("export:export", "write a run's model as a folder that others can load, or as a program"),
    "push": ("export:push", "put a run's model, or what was exported, on the Hugging Face Hub"),
    "report": ("report:report", "compare runs on one page, and as Markdown, CSV and LaTeX"),
    "reproduce": (
        "reproduce:reproduce",
        "train what a published table lacks, and write it with printed and obtained values",
    ),
    "verify": ("verify:run", "check a run that somebody sent, and add it to the tables of equal budget"),
    "status": ("report:status", "show how far a sweep, a study, a table or a prediction is"),
    "list": ("list_command:list_installed", "show what is installed: architectures, benchmarks, configurations, ..."),
    "config": ("list_command:show_config", "print an installed configuration, or copy it to a file"),
    "new-plugin": ("new_plugin:run", "write a small installable package with a model of your own"),
    "completion": ("completion:run", "print what makes names and options complete in bash or zsh"),
    "version": ("list_command:show_version", "show which graphbench this is, and the versions below it"),
}
#: Errors of files and folders that a user named, or of the disk or file server that they lie on.
_USER_ERRORS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.EEXIST,
    errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EIO, errno.ESTALE, errno.EBADF,
)  # fmt: skip
#: Commands that neither train nor log.
LIGHT = ("list", "config", "new-plugin", "version", "completion", "status")


def usage() -> str:
    """Return the help page."""
    commands = "\n".join(f"  {name:<12}{summary}" for name, (_, summary) in COMMANDS.items())
    return (
        "usage: graphbench COMMAND [OPTIONS]\n\nTrain, compare and look inside graph transformers.\n\n"
        f"{commands}\n\n`graphbench COMMAND --help` shows the options of a command."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; errors meant for a person are shown without a traceback.

    Args:
        arguments: the command line after `graphbench`; that of the process when left out.

    Returns:
        Exit code: 0 for success, 1 after an error, 130 after Ctrl-C and 143 after SIGTERM, else that of the command.
    """
    settle_waiting()
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    name_starter()
    keep_folder_out()
    try:
        with stoppable(), hushed_threads():
            code = _dispatch(words)
            sys.stdout.flush()  # at Python's end an error of what waits for the disk would be a traceback
            return code
    except Stopped as stop:
        from graphbench.runs.slurm import queue_again_if_preempted

        print(f"graphbench: stopped by {signal.Signals(stop.signum).name}.", file=sys.stderr)
        queue_again_if_preempted()
        return exit_code(stop.signum)
    except GraphbenchError as error:
        print(f"graphbench: {visible(str(error))}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # outside of the main thread's handlers
        return 128 + signal.SIGINT
    except BrokenPipeError:  # the reader, such as `head`, ended; exiting must not flush to it
        _drop_output()
        return 1
    except (MemoryError, RuntimeError) as error:
        from graphbench.data.lost_memory import explain_memory

        message = explain_memory(error)
        if message is None:
            raise
        print(f"graphbench: {visible(message)}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in _USER_ERRORS:
            raise
        name = error.filename if error.filename is not None else _open_file(error) or _failed_output(error)
        if name is None:
            raise
        from graphbench.data.files.writing import place_of

        shown = visible(str(place_of(Path(name))))
        print(f"graphbench: {shown} cannot be used: {os.strerror(error.errno)}.", file=sys.stderr)
        return 1


def _open_closed_streams() -> None:
    """Put the null device in the place of standard streams that were closed, as by `>&-`: Python leaves None.

    Standard output is opened for reading alone: an answer that nobody can get is an error when it is written.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _open_file(error: OSError) -> str | None:
    """Return the file that was being written, which Python's error does not name where a disk is full; None if unknown.

    It is open in one of the functions that the error came through, the innermost that has one.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            if not isinstance(value, io.IOBase) or value in (sys.stdout, getattr(sys.stdout, "buffer", None)):
                continue
            with contextlib.suppress(ValueError):  # a writer that was taken from its file
                name = getattr(value, "name", None)  # a number for a handle
                if set("wax+") & set(str(getattr(value, "mode", ""))) and isinstance(name, str | bytes):
                    return os.fsdecode(name)
    return None


def _failed_output(error: OSError) -> str | None:
    """Name standard output if it takes no empty line, such as a file on a full disk; exiting must not flush to it."""
    try:
        os.write(sys.stdout.fileno(), b"" if error.errno == errno.EBADF else b"\n")
    except io.UnsupportedOperation:  # no file of the system
        return None
    except OSError:
        _drop_output()
        return "standard output"
    return None


def _drop_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    name = {"--version": "version", "-V": "version"}.get(words[0], words[0])
    if name not in COMMANDS:
        raise UnknownName("command", name, COMMANDS, "`graphbench --help` says what each does.")
    if name not in LIGHT:
        try:
            Path.cwd()
        except FileNotFoundError:  # MKL would end the process, in words about its libraries
            raise BadInput("The current folder was removed: change to another one.") from None
        if _showed_help(name, words[1:]):
            return 0
    module, _, function = COMMANDS[name][0].partition(":")
    run: Callable[[list[str]], int] = getattr(importlib.import_module(f"graphbench.cli.commands.{module}"), function)
    if name in LIGHT:
        return run(words[1:])
    from graphbench.cli.console import set_up_logging
    from graphbench.cli.process import keep_memory
    from graphbench.runs import trust

    keep_memory()
    set_up_logging()
    with trust.admitting_all():
        return run(words[1:])


def _showed_help(name: str, words: list[str]) -> bool:
    """Show a command's help if it is asked for, and tell so, else check its words; both before torch is imported."""
    from graphbench.cli.options import OWN, show_help

    if name not in OWN:
        return False
    for option in ("-h", "--help"):
        if option in words:
            if words[words.index(option) + 1 :][:1] == ["all"]:
                words.remove("all")  # LightningCLI's own page, which takes seconds
                return False
            show_help(name)
            return True
    from graphbench.cli.checks import check_command

    check_command(name, words)
    return False
