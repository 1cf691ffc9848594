"""Build data, model and trainer from a command line: one LightningCLI for all commands that need torch."""

from __future__ import annotations

import contextlib
import inspect
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import yaml
from jsonargparse import ArgumentError
from jsonargparse.typing import register_type
from pytorch_lightning.callbacks import Checkpoint, LearningRateMonitor, ModelCheckpoint, ProgressBar, Timer
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger
from pytorch_lightning.plugins import AsyncCheckpointIO, CheckpointIO

from graphbench.callbacks.checkpoints import BestCheckpoint, LastCheckpoint
from graphbench.callbacks.csv_logger import RunCSVLogger
from graphbench.callbacks.exact_resume import ExactResume
from graphbench.callbacks.no_validation import NoValidation
from graphbench.callbacks.non_finite import NonFinite
from graphbench.callbacks.progress import EpochLines, FirstBoard, Forecast, RunProgressBar
from graphbench.callbacks.throughput import Throughput
from graphbench.callbacks.trackers import TrackerRuns, check_loggers, go_on
from graphbench.cli.command_line import OPTION_TOPS, CommandLine
from graphbench.cli.complaints import explain_construction
from graphbench.cli.console import count_parameters, in_terminal
from graphbench.cli.options import AS_FUNCTION, DEFAULT_OPTIMIZER, own_parser, parse_request, with_optimizer
from graphbench.cli.parse_errors import explain
from graphbench.cli.ranks import FolderWatch, OrderlyStop, Signals, meet_on_loopback
from graphbench.cli.trainer_checks import check_launcher, check_trainer, whole_numbers_first
from graphbench.contracts.benchmark import Benchmark
from graphbench.contracts.devices import choose_accelerator
from graphbench.data.files.foreign import load_yaml
from graphbench.errors import BadInput
from graphbench.registry.expected import Expected
from graphbench.runs import RunFolder, trust
from graphbench.runs.checkpoints import RunCheckpointIO
from graphbench.training.lightning_internals import replace_signal_handling
from graphbench.training.module import BenchmarkModule

register_type(torch.device, str, torch.device)  # a default of Lightning's averaging, which has to go into config.yaml
# Also for subclasses of str, such as a default of Lightning's Timer.
yaml.SafeDumper.add_multi_representer(str, lambda dumper, text: dumper.represent_str(getattr(text, "value", str(text))))

TRAINER_DEFAULTS = {
    "enable_model_summary": False,  # a run's first log line counts parameters
    "use_distributed_sampler": False,
    "log_every_n_steps": 20,
    "num_sanity_val_steps": 0,
}

#: Suffix of an architecture's option -> its largest value, far beyond the models in papers: OGBGNN with 1,876 layers
#: and GIN of width 32,026 took more than ten seconds to build.
_LARGEST = {"layers": 1000, "_dim": 4096, "heads": 4096}
#: Largest value of every other integer except a seed: no tensor is larger.
_LARGEST_INTEGER = 2**31 - 1
#: Text that jsonargparse writes, with a warning, for an object that it cannot serialize.
_NOT_WRITTEN = "Unable to serialize instance"
whole_numbers_first(pl.Trainer.__init__)


class GraphbenchCLI(LightningCLI):
    """LightningCLI with one module class, benchmarks by name, and the specification linked between them.

    Args:
        arguments: the command line after the command's name.
        run: folder that the trainer writes to.
        fresh: whether to choose a folder if none is given; without either, nothing is left behind.
        continue_at: optimizer step from which a run resumes; None for a new run.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        run: RunFolder | None = None,
        fresh: bool = False,
        continue_at: int | None = None,
    ) -> None:
        self.run_folder = run
        self.fresh = fresh
        self.continue_at = continue_at
        #: Whether the folder is removed when the command ends, and whether its name was generated for this run.
        self.is_temporary = self.made_up = False
        #: Whether there is a run whose loggers log.
        self.trains = fresh or run is not None
        line = CommandLine.parse(arguments)
        if not self.trains and (rest := line.without("--trainer.logger")) != line:
            ParsedCLI(arguments, fresh=True)  # checks what was typed as a fit would
            arguments = rest.words
        with trust.enforced():
            super().__init__(
                BenchmarkModule,
                Benchmark,
                subclass_mode_data=True,
                save_config_callback=None,
                trainer_class=pl.Trainer if self.trains else UntrackedTrainer,
                trainer_defaults=dict(TRAINER_DEFAULTS),
                seed_everything_default=0,
                auto_configure_optimizers=False,
                parser_kwargs={"exit_on_error": False, "allow_abbrev": False},
                args=with_optimizer(arguments),
                run=False,
            )

    @property
    def run(self) -> RunFolder:
        """Return the run folder; only for commands with a run."""
        assert self.run_folder is not None
        return self.run_folder

    @property
    def callbacks(self) -> list[pl.Callback]:
        """Return the trainer's list of callbacks, which Lightning does not annotate."""
        return self.trainer.callbacks  # type: ignore[attr-defined,no-any-return]

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        """Link the data's specification to the model, and add the expected results of a run."""
        parser.add_argument("--expected", type=Expected, default=Expected(), help="what a run should reach")
        parser.link_arguments("data.spec", "model.spec", apply_on="instantiate")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and turn the parser's errors into one readable line."""
        tops = tuple(f"{parser.env_prefix}_{top}".upper() for top in (*OPTION_TOPS, "config", "seed_everything"))
        if parser.default_env and (named := [name for name in os.environ if name.startswith(tops)]):
            raise BadInput(
                f"{named[0]} and JSONARGPARSE_DEFAULT_ENV are set: options come only from the command line and its "
                "files, so a run can be compared with its recipe. Unset one of them."
            )
        try:
            super().parse_arguments(parser, args)
        except ArgumentError as error:
            raise BadInput(explain(error, parser, args or ())) from error
        seed = self.config.get("seed_everything")
        if not isinstance(seed, bool) and isinstance(seed, int) and not 0 <= seed < 2**32:
            raise BadInput(f"--seed_everything is {seed}; expected a number from 0 to {2**32 - 1}.")

    def instantiate_classes(self) -> None:
        """Build data, model and trainer, and handle signals in place of Lightning."""
        # Before building the model, which could take minutes or all memory.
        self._check_sizes()
        given, settings = self.config, self.settings()
        # Otherwise Lightning dumps all options again, with the linked specification among those of the model.
        self.config_dump = {**settings, "model": dict(settings["model"])}
        self.config = self._with_trackers()
        try:
            super().instantiate_classes()
        except Exception as error:
            if (message := explain_construction(error, self.config.get)) is None:
                raise
            raise BadInput(message) from error
        finally:
            self.config = given
        # Built parts, such as encoders, have no plain form; weights that it reads are compared with its options.
        self.model.save_hyperparameters(settings["model"])
        self.signals = Signals(self.trainer)
        replace_signal_handling(self.trainer, self.signals)
        self.stop = OrderlyStop(self.signals)
        if self.run_folder is not None:
            self._watch()
        self.store = meet_on_loopback(self.trainer)  # kept: torch finds the server while this object lives

    def _with_trackers(self) -> Any:
        """Return the configuration with the settings that resume a continued run in its trackers."""
        check_loggers(self._logger_settings(self.config))
        if self.continue_at is None or self.run_folder is None:
            return self.config
        config = self.config.clone()
        go_on(self._logger_settings(config), self.run_folder)
        return config

    def _logger_settings(self, config: Any) -> list[Any]:
        """Return the class and options of each configured logger."""
        value = config.get("trainer.logger") if self.trains else None
        return [] if isinstance(value, bool) else _as_list(value)

    def _watch(self) -> None:
        """Let the processes compare notes when all work of a step is done and before checkpoints are written."""
        writers = [number for number, callback in enumerate(self.callbacks) if isinstance(callback, Checkpoint)]
        self.callbacks.insert(writers[0] if writers else len(self.callbacks), self.stop)
        self.callbacks.insert(0, FolderWatch(self.stop))

    def _check_sizes(self) -> None:
        """Refuse depths and widths that take minutes, or all memory, to build."""
        for name, value in dict(self.config.get("model.architecture.init_args", {})).items():
            if isinstance(value, int) and "seed" not in name:
                largest = next((most for suffix, most in _LARGEST.items() if name.endswith(suffix)), _LARGEST_INTEGER)
                if value > largest:
                    raise BadInput(f"--model.architecture.{name} is {value}; expected at most {largest:,}.")

    def instantiate_trainer(self, **kwargs: Any) -> pl.Trainer:
        """Return the trainer with the platform's callbacks, writing to the run folder."""
        self.datamodule.require(self.model.required_encodings())
        config = dict(self.config_init.get("trainer", {})) | kwargs
        callbacks = _as_list(config.get("callbacks"))
        check_trainer(config, callbacks, _as_list(self.config.get("trainer.callbacks")), self.model)
        self._choose_folder(config)
        if self.run_folder is not None:
            self._write_into(self.run_folder, config, callbacks)
        else:
            config |= {"logger": False, "enable_checkpointing": False}
            callbacks = [one for one in callbacks if not isinstance(one, Checkpoint)]  # nothing to write into
        config["accelerator"] = choose_accelerator(config["accelerator"])
        config["plugins"] = _with_checkpoint_io(_as_list(config.get("plugins")))
        if config.get("enable_progress_bar") is not False:
            self._show_progress(config, callbacks)
        # Last, since it saves the state that the other callbacks have at the end of the epoch.
        config["callbacks"] = sorted(callbacks, key=lambda callback: isinstance(callback, LastCheckpoint))
        try:
            trainer = self.trainer_class(**config)
            check_launcher(trainer, config.get("strategy", "auto"))
            return trainer
        except BaseException:
            if self.made_up:
                shutil.rmtree(self.run.path, ignore_errors=True)
                with contextlib.suppress(OSError):  # `runs/` holds others
                    self.run.path.parent.rmdir()
            raise

    def _choose_folder(self, config: dict[str, Any]) -> None:
        """Choose a temporary folder for a trial of a few batches, or a new one if none was named."""
        if config.get("fast_dev_run") and (self.run_folder is not None or self.fresh):
            self.run_folder, self.is_temporary = RunFolder.temporary(), True
        elif self.run_folder is None and self.fresh:
            if config.get("num_nodes", 1) > 1:
                raise BadInput("Name the folder with --run: several nodes could not agree on one named after the time.")
            self.run_folder = RunFolder.fresh(self.model.spec.name, type(self.model.architecture).__name__)
            self.made_up = True

    def _write_into(self, run: RunFolder, config: dict[str, Any], callbacks: list[pl.Callback]) -> None:
        """Add the loggers, checkpoints and callbacks of a run to the trainer's options."""
        if self.fresh and config.get("default_root_dir") is not None:
            raise BadInput("--trainer.default_root_dir: a run is written into its own folder, which --run names.")
        config["default_root_dir"] = str(run.path)
        if settings := self._logger_settings(self.config):
            callbacks.append(TrackerRuns(_as_list(config["logger"]), settings, run, self.continue_at is not None))
        config["logger"] = self._loggers(config.get("logger"), run.path)
        if config.get("enable_checkpointing") is not False:
            callbacks += self._checkpoints(callbacks, run.checkpoints)
        callbacks += [ExactResume(), Throughput(), Forecast(), NoValidation()]
        callbacks += [] if _has(callbacks, NonFinite) else [NonFinite()]
        if config.get("max_time") is None and not _has(callbacks, Timer):
            callbacks.append(Timer())  # keeps counting in a continued run
        callbacks += [LearningRateMonitor(), FirstBoard()] if config["logger"] else []

    def _show_progress(self, config: dict[str, Any], callbacks: list[pl.Callback]) -> None:
        """Show a bar in a terminal, and a line per epoch if there is no terminal or the user configured the bar."""
        terminal, has_bar = in_terminal(), _has(callbacks, ProgressBar)
        if not terminal and not has_bar:
            config["enable_progress_bar"] = False
        if self.run_folder is not None and not (terminal and has_bar):
            if not _has(callbacks, Checkpoint):  # Lightning mistakes `EpochLines`, a subclass, for one
                config.pop("enable_checkpointing", None)
            callbacks.append(EpochLines())
        if terminal and not has_bar:
            callbacks.append(RunProgressBar())

    def _loggers(self, configured: Any, folder: Path) -> Any:
        """Return the loggers: `metrics.csv` always, TensorBoard unless others are configured."""
        if configured is False:
            return False

        def repeats_ours(logger: Any) -> bool:
            return isinstance(logger, CSVLogger) and Path(logger.log_dir).resolve() == folder.resolve()

        others = [logger for logger in _as_list(configured) if not repeats_ours(logger)]
        if configured in (None, True):
            others = [TensorBoardLogger(save_dir=str(folder), name="", version="", purge_step=self.continue_at)]
        return [*others, RunCSVLogger(folder, self.continue_at)]

    def _checkpoints(self, configured: list[pl.Callback], folder: Path) -> list[pl.Callback]:
        """Return callbacks for the best and the last epoch, unless the user's own `best` or last one replaces them."""
        users = [callback for callback in configured if isinstance(callback, ModelCheckpoint)]
        here = [one for one in users if one.dirpath is None or Path(one.dirpath).resolve() == folder.resolve()]
        for callback in here:
            callback.dirpath = str(folder)  # else it would be the folder of whichever logger comes first
            callback.save_last = None  # `last.ckpt` is written already
        best = BestCheckpoint(
            dirpath=folder, filename="best", enable_version_counter=False,
            monitor=self.model.monitor, mode=self.model.monitor_mode,
        )  # fmt: skip
        best.shared_key = any(one.state_key == best.lightning_key for one in users)
        ours: list[pl.Callback] = [] if any(one.filename == "best" for one in here) else [best]
        return ours if _has(configured, LastCheckpoint) else [*ours, LastCheckpoint()]

    def resolved_config(self) -> str:
        """Return the configuration with every default written out, as YAML."""
        text: str = self.parser.dump(self.config, skip_unset=False, skip_validation=True)  # parsing validated it
        if _NOT_WRITTEN not in text:
            return text
        return yaml.safe_dump(_with_plain_values(load_yaml(text), self.config), sort_keys=False)

    def settings(self) -> dict[str, Any]:
        """Return the resolved configuration as plain values, as in the run's `config.yaml`."""
        return dict(load_yaml(self.resolved_config()))


class UntrackedTrainer(pl.Trainer):
    """Lightning's trainer for commands that log no run: loggers stay plain values, and none is built.

    Their packages and servers may be missing where a trained model is used, and some create a run when built.
    """

    # Not `dict[str, Any]` and `list[Any]`, in which jsonargparse would instantiate descriptions of classes.
    def __init__(self, *args: Any, logger: bool | str | dict | list | None = None, **kwargs: Any) -> None:  # type: ignore[type-arg]
        super().__init__(*args, logger=False, **kwargs)


class ParsedCLI(GraphbenchCLI):
    """Parse a command line without building or seeding anything."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        """Parse, and hide the seed from LightningCLI until it has skipped seeding."""
        super().parse_arguments(parser, args)
        self.parsed_seed = self.config.get("seed_everything")
        self.config["seed_everything"] = False

    def instantiate_classes(self) -> None:
        """Build nothing."""
        self.config["seed_everything"] = self.parsed_seed


def build(command: str, words: Sequence[str], parse_alone: bool = False) -> GraphbenchCLI:
    """Build what `graphbench fit` would train from `words`, for a command that passes them on; no data are read.

    With `parse_alone`, data, model and trainer are not built. Errors are those of the fit.
    """
    request = parse_request(own_parser(command), words, run_option=None)
    return (ParsedCLI if parse_alone else GraphbenchCLI)(request.arguments)


def measure(command: str, words: Sequence[str]) -> tuple[Mapping[str, Any], int]:
    """Return every option of what `build` builds, and the number of its trainable parameters."""
    cli = build(command, words)
    return cli.settings(), count_parameters(cli.model)


def resolve(arguments: Sequence[str]) -> dict[str, Any]:
    """Return all options of a command line with their defaults, as the plain values of a `config.yaml`.

    The default optimizer is written out as its class, so that naming it makes no difference.
    """
    config = ParsedCLI(arguments).settings()
    if config["model"].get("optimizer") in AS_FUNCTION:
        options = inspect.signature(torch.optim.AdamW).parameters.values()
        values = {one.name: one.default for one in options if one.default is not one.empty}
        config["model"]["optimizer"] = {"class_path": DEFAULT_OPTIMIZER, "init_args": values}
    return config


def _with_plain_values(written: Any, parsed: Any, option: str = "-") -> Any:
    """Return a written configuration with the values that jsonargparse could not write but that are plain.

    An example is a name for an option that may also be a function, such as `pruning_fn` of Lightning's `ModelPruning`.

    Raises:
        BadInput: a value cannot be written as text, so the run could be neither tested nor continued.
    """
    if isinstance(written, dict):
        return {key: _with_plain_values(value, parsed[key], f"{option}.{key}") for key, value in written.items()}
    if isinstance(written, list):
        return [_with_plain_values(*pair, option) for pair in zip(written, parsed, strict=True)]
    if not (isinstance(written, str) and written.startswith(_NOT_WRITTEN)):
        return written
    if isinstance(parsed, str):
        return parsed
    raise BadInput(
        f"{option.replace('-.', '--')} is {parsed!r}, an object without a text for config.yaml: the run could be "
        "neither tested nor continued. Expected a value of YAML, a class_path or a name that can be imported."
    )


def _with_checkpoint_io(plugins: list[Any]) -> list[Any]:
    """Write checkpoints with `RunCheckpointIO` unless a plug-in does: a kill leaves Lightning's own incomplete."""
    for plugin in plugins:
        if isinstance(plugin, AsyncCheckpointIO) and plugin.checkpoint_io is None:
            plugin.checkpoint_io = RunCheckpointIO()
    return plugins if _has(plugins, CheckpointIO) else [*plugins, RunCheckpointIO()]


def _has(objects: Sequence[object], kind: type) -> bool:
    return any(isinstance(one, kind) for one in objects)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
