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
    "params": ("profile:params", "count trainable parameters; reads no data except your own and those of Graphs"),
    "prepare": ("prepare:prepare", "fill the store with data and encodings ahead of a fit"),
    "profile": ("profile:profile", "measure throughput, memory and operations"),
    "sweep": ("sweep:sweep", "train and compare several models, seeds and folds in one command"),
    "study": ("study:study", "answer the four questions of a reviewer about a model: control, depth, budget, cost"),
    "tune": ("tune:tune", "search for better options by validation scores, with Optuna"),
    "explain": ("explain:explain", "show which atoms and bonds (nodes, edges) a prediction depends on"),
    "export": ("export:export", "write a run's model as a folder that others can load, or as a program"),
    "push": ("export:push", "upload a run's model, or an exported folder, to the Hugging Face Hub"),
    "report": ("report:report", "compare runs on one page, and as Markdown, CSV and LaTeX"),
    "reproduce": (
        "reproduce:reproduce",
        "train what a published table lacks, and write it with printed and obtained values",
    ),
    "verify": ("verify:run", "check a run that someone sent, and add it to the equal-budget tables"),
    "status": ("report:status", "show the progress of a sweep, a study, a table or a prediction"),
    "list": ("list_command:list_installed", "show what is installed: architectures, benchmarks, configurations, ..."),
    "config": ("list_command:show_config", "print an installed configuration, or copy it to a file"),
    "new-plugin": ("new_plugin:run", "write a small installable package with a model of your own"),
    "completion": ("completion:run", "print a script that completes names and options in bash or zsh"),
    "version": ("list_command:show_version", "show the versions of graphbench and its dependencies"),
}
#: Errors of files and folders that a user named, or of the disk or file server that they are on.
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
    """Run one command; user errors are shown without a traceback.

    Args:
        arguments: the command line after `graphbench`; defaults to that of the process.

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
            sys.stdout.flush()  # a failed flush at interpreter exit would print a traceback
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
    except BrokenPipeError:  # the reader, such as `head`, exited; exiting must not flush to it
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
    """Replace standard streams that were closed, as by `>&-`, with the null device: Python leaves None.

    Standard output is opened read-only: writing an answer that nobody can receive is an error.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def _open_file(error: OSError) -> str | None:
    """Return the file that was being written, which Python's error does not name when a disk is full; None if unknown.

    It is the one that is open in the innermost of the functions that the error passed through.
    """
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            if not isinstance(value, io.IOBase) or value in (sys.stdout, getattr(sys.stdout, "buffer", None)):
                continue
            with contextlib.suppress(ValueError):  # a writer that was detached from its file
                name = getattr(value, "name", None)  # a number for a handle
                if set("wax+") & set(str(getattr(value, "mode", ""))) and isinstance(name, str | bytes):
                    return os.fsdecode(name)
    return None


def _failed_output(error: OSError) -> str | None:
    """Name standard output if an empty line cannot be written, as on a full disk; exiting must not flush to it."""
    try:
        os.write(sys.stdout.fileno(), b"" if error.errno == errno.EBADF else b"\n")
    except io.UnsupportedOperation:  # not a file of the system
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
        except FileNotFoundError:  # MKL would abort the process with a message about its libraries
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
    """Show a command's help and return True if it is requested, else check the words; both before torch is imported."""
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
