"""A value that the parser refuses gives one line with option, value and what would be right, in every spelling."""

from __future__ import annotations

import shlex

import pytest
import yaml
from jsonargparse import ArgumentParser

from graphbench import registry
from graphbench.cli import main
from graphbench.training.arguments import parameters, type_hints

FILES = {
    "q.yaml": "data: {class_path: NCI}\nmodel: {architecture: {class_path: GPS, init_args: {num_layers: 2}}}\n",
    "length.yaml": "trainer: {max_epochs: x}\n",
    "stop.yaml": "trainer: {callbacks: [{class_path: Timer}, {class_path: EarlyStopping, init_args: {patience: x}}]}\n",
    "mine.csv": "a,b\n",
}
#: Options over a small model -> the option that is wrong, and words of the message.
MISTAKES = {
    # a value of another type
    "--data.batch_size x": ("--data.batch_size is 'x'", "int"),
    "--data.batch_size=": ("--data.batch_size is ''", "int"),
    "--data '{batch_size: x}'": ("--data.batch_size is 'x'", "int"),
    "--model.architecture.init_args.hidden_dim 1.5": ("--model.architecture.hidden_dim is '1.5'", "int"),
    "--model.head '{num_layers: x}'": ("--model.head.num_layers is 'x'", "int"),
    "--model.schedule.warmup x": ("--model.schedule.warmup is 'x'", "int"),
    "--model.optimizer.lr x": ("--model.optimizer.lr is 'x'", "float"),
    "--model.optimizer SGD --model.optimizer.momentum x": ("--model.optimizer.momentum is 'x'", "float"),
    "--model.metrics R2": ("--model.metrics is 'R2'", "Sequence"),
    "--model.metrics '[{class_path: torchmetrics.classification.MulticlassF1Score}]'": (
        "--model.metrics", "MulticlassF1Score", "required: num_classes"),
    "--trainer '{max_epochs: x}'": ("--trainer.max_epochs is 'x'", "int or None"),
    "--trainer.precision 17": ("--trainer.precision is '17'", "'16-mixed'"),
    "--seed_everything x": ("--seed_everything is 'x'", "int"),
    "--expected.value x": ("--expected.value is 'x'", "float or None"),
    "--config length.yaml": ("--trainer.max_epochs is 'x'", "int"),
    "--config stop.yaml": ("--trainer.callbacks.patience is 'x'", "int"),
    "--data ElectricFlow --data.graphs CSL --data.graphs.batch_size x": ("--data.graphs.batch_size is 'x'", "int"),
    "--data ElectricFlow --data.graphs nope": ("--data.graphs is 'nope'", "expected"),
    "--model.architecture SFiFormer --model.architecture.proximal.num_steps 2.5": (
        "--model.architecture.proximal.num_steps is '2.5'", "int"),
    "--data Solids --data.max_turn nan": ("--data.max_turn is 'nan'", "finite number"),
    # a list for a single value
    "--data.batch_size+=8": ("--data.batch_size+", "not a list"),
    "--trainer.max_epochs+ 8": ("--trainer.max_epochs+", "not a list"),
    # an option that a class does not have, or needs
    "--model.optimizer SGD --model.optimizer.l 3": ("SGD has no option 'l'", "--model.optimizer.lr?"),
    "--trainer.callbacks+=Timer --trainer.callbacks.duratio 3": ("Timer has no", "--trainer.callbacks.duration?"),
    "--trainer.logger '{class_path: CSVLogger, init_args: {sav_dir: x}}'": ("CSVLogger", "--trainer.logger.save_dir?"),
    "--model.architecture SFiFormer --model.architecture.proximal.nm_steps 2": (
        "--model.architecture.proximal.nm_steps", "--model.architecture.proximal.num_steps?"),
    "--trainer.callbacks+=EarlyStopping": ("--trainer.callbacks.monitor must be given",),
    "--trainer.logger CSVLogger": ("--trainer.logger.save_dir must be given",),
    "--expected.valu 3": ("--expected.valu", "--expected.value?"),
    # a class that does not exist
    "--trainer.logger WandbLoger": ("--trainer.logger", "'WandbLoger'", "WandbLogger?"),
    "--trainer.callbacks+=EarlyStoping": ("--trainer.callbacks", "'EarlyStoping'", "EarlyStopping?"),
    "--trainer.callbacks '[{class_path: EarlyStoping}]'": ("--trainer.callbacks", "'EarlyStoping'", "EarlyStopping?"),
    "--trainer.callbacks+=nowhere.Mine": ("--trainer.callbacks is 'nowhere.Mine'", "No module named 'nowhere'"),
    "--trainer.callbacks+=os.Mine": ("--trainer.callbacks is 'os.Mine'", "no class Mine in os"),
    "--model.architecture os.path": ("--model.architecture is 'os.path'", "no class"),
    "--model.optimizer nothing": ("--model.optimizer is 'nothing'", "AdamW"),
    "--model.optimizer mine.csv": ("--model.optimizer mine.csv", "this is a file"),
    "--model.positional_encoding Nope": ("--model.positional_encoding is 'Nope'", "LapPEEncoder"),
    "--data.class_path ''": ("--data.class_path is ''",),
    "--trainer.logger=": ("--trainer.logger is ''", "logger"),
    "--trainer.logger '{save_dir: x}'": ("--trainer.logger.save_dir", "none is named"),
    "--trainer.max_epochs '{a: *b}'": ("--trainer.max_epochs is '{a: *b}'", "int or None"),
}  # fmt: skip


@pytest.mark.parametrize("line", MISTAKES)
def test_a_value_that_the_parser_refuses_is_one_line(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    assert main(["params", "-c", "q.yaml", *shlex.split(line)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("graphbench: "), said
    assert said.count("\n") == 1, said
    for part in MISTAKES[line]:
        assert part in said, said


@pytest.mark.parametrize("line", ["--data NCI", "--model.architecture GPS", "--trainer.max_epochs 3"])
def test_a_model_and_its_data_must_be_given(line, capsys):
    assert main(["params", *line.split()]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert ("--data" in said and "--data " not in line + " ") or ("--model.architecture" in said)
    assert "must be given" in said


def accepted(hint, value):
    """Return whether an option of this type accepts a value."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_argument("--value", type=hint)
        parser.parse_object({"value": value})
    except Exception:
        return False
    return True


def lists_of_texts():
    """Return options of data that accept texts in a list, and no numbers."""
    found = {}
    classes = {name: registry.load("benchmarks", name) for name in ("Molecules", "Graphs", "Superpixels")}
    for name, cls in classes.items():
        hints = type_hints(cls)
        for option in parameters(cls):
            if option in hints and accepted(hints[option], ["3", "no"]) and not accepted(hints[option], [3]):
                found[f"{name} data.{option}"] = hints[option]
    return found


LISTS = lists_of_texts()


def test_lists_of_texts_are_known():
    assert {"Molecules data.classes", "Molecules data.target", "Graphs data.target"} <= LISTS.keys()


@pytest.mark.parametrize("member", LISTS)
@pytest.mark.parametrize(
    ("typed", "meant"), [("[3,007,no]", ["3", "007", "no"]), ("[2026-01-01, x]", ["2026-01-01", "x"])]
)
def test_a_list_of_texts_is_spelled_as_it_was_typed(member, typed, meant, tmp_path, monkeypatch, capsys):
    """The message spells these texts as the option accepts them: 007 stays 007, and `no` stays a word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.yaml").write_text(FILES["q.yaml"])
    name, _, option = member.rpartition(" ")
    assert main(["params", "-c", "q.yaml", "--data", name, f"--{option}", typed]) == 1
    said = capsys.readouterr().err
    _, sign, spelling = said.rpartition(f": --{option} ")
    assert sign, said
    (value,) = shlex.split(spelling)
    assert yaml.safe_load(value) == meant
    assert accepted(LISTS[member], meant)
