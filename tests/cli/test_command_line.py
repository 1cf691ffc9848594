"""Every way to write an option, with every command: it takes effect, or is refused in one line that names it."""

from __future__ import annotations

import io
import random
import shlex

import pytest
import torch

from graphbench.cli import COMMANDS, main
from graphbench.cli.command_line import HOLDERS, SLOTS, CommandLine, spell_out
from graphbench.cli.lightning import GraphbenchCLI, resolve
from graphbench.cli.options import OWN, import_named

#: A model and its data in one file.
RECIPE = "data: {class_path: NCI, init_args: {batch_size: 8}}\nmodel: {architecture: {class_path: GPS}}\n"
#: The line that its other spellings are compared with; it sets the batch size and the depth.
PLAIN = "--config q.yaml --data.batch_size 4 --model.architecture.num_layers 2"
FILES = {
    "q.yaml": RECIPE,
    "data.yaml": "class_path: NCI\ninit_args: {batch_size: 4}\n",
    "model.json": '{"class_path": "GPS", "init_args": {"num_layers": 2}}',
    "over.yaml": "data: {batch_size: 4}\nmodel: {architecture: {init_args: {num_layers: 2}}}\n",
    "point.yaml": "data.batch_size: 4\n",
}
#: Command lines that mean the same as `PLAIN`.
SPELLINGS = (
    "-c q.yaml --data.batch_size 4 --model.architecture.num_layers 2",
    "-cq.yaml --data.batch_size=4 --model.architecture.num_layers=2",
    "-c=q.yaml --data.init_args.batch_size=4 --model.architecture.init_args.num_layers 2",
    "--config=q.yaml --data '{batch_size: 4}' --model.architecture '{num_layers: 2}'",
    """--config+=q.yaml --data='{"batch_size":4}' --model.architecture '{"num_layers": 2}'""",
    "--config q.yaml --data.init_args '{batch_size: 4}' --model.architecture.init_args '{num_layers: 2}'",
    "-c q.yaml -c over.yaml",
    "-c q.yaml --config+ over.yaml",
    "-c q.yaml --data data.yaml --model.architecture model.json",
    "--data NCI --data.batch_size 4 --model.architecture GPS --model.architecture.num_layers 2",
    "--data.class_path NCI --data.batch_size 4 --model.architecture=GPS --model.architecture.num_layers 2",
    "--data data.yaml --model '{architecture: {class_path: GPS, init_args: {num_layers: 2}}}'",
    "--data '{class_path: NCI, init_args: {batch_size: 4}}' --model.architecture model.json",
    "-c q.yaml -c point.yaml --model.architecture.num_layers 2",
)
#: What a command needs besides a configuration; `OUT` is something that it may write.
NEEDS = {
    "validate": "--checkpoint w.ckpt",
    "test": "--checkpoint w.ckpt",
    "predict": "--checkpoint w.ckpt -o OUT.csv",
    "embed": "--checkpoint w.ckpt -o OUT.csv",
    "explain": "--checkpoint w.ckpt -o OUT --rows 0 1",
    "fit": "--run OUT",
    "sweep": "-o OUT",
    "tune": "--run OUT --space space.yaml",
}
#: Commands that build a model from a configuration.
BUILDING = (*OWN, "sweep", "tune")


class Reached(Exception):
    """Raised with the words that a command would have parsed."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Change to a folder with the files that command lines name."""
    monkeypatch.chdir(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "space.yaml").write_text("model.architecture.dropout: {values: [0.1]}\n")
    torch.save({"state_dict": {}}, tmp_path / "w.ckpt")
    return tmp_path


@pytest.fixture
def reached(place, monkeypatch, capsys):
    """Return a function that returns the words of a command line that reach the parser of LightningCLI."""

    def stop(self, arguments, *args, **options):
        raise Reached(list(arguments))

    def run(line):
        with monkeypatch.context() as patched:
            patched.setattr(GraphbenchCLI, "__init__", stop)
            try:
                main(shlex.split(line))
            except Reached as end:
                return end.args[0]
        raise AssertionError(f"{line}: {capsys.readouterr().err}")

    return run


def settings(words):
    """Return the options of data and model, without those that a command adds."""
    config = resolve(words)
    return config["data"], config["model"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_is_in_force_in_every_command(reached, spelling):
    plain = CommandLine.parse(shlex.split(PLAIN)).located().words
    import_named(plain)
    expected = settings(plain)
    assert expected[0]["init_args"]["batch_size"] == 4
    assert expected[1]["architecture"]["init_args"]["num_layers"] == 2
    seen = []
    for command in BUILDING:
        if command == "sweep" and len(CommandLine.parse(shlex.split(spelling)).named("--config")) != 1:
            continue  # each configuration is a separate model
        words = reached(f"{command} {spelling} {NEEDS.get(command, '')}")
        if words not in seen:
            seen.append(words)
    at_most = [words for words in seen if settings(words) != expected]
    assert not at_most


def test_an_installed_configuration_is_found_by_its_name(reached, place):
    (place / "quickstart.yaml").write_text("a file that nobody names")
    whole = reached("params --config quickstart")
    for command in BUILDING:
        for spelling in ("-c quickstart", "-cquickstart", "--config=quickstart", "--config+=quickstart"):
            words = reached(f"{command} {spelling} {NEEDS.get(command, '')}")
            assert whole[1] in words, (command, spelling)


#: Words that no command accepts -> words of the message.
REFUSED = {
    "-c q.yaml -x 3": "-x",
    "-c q.yaml --nonsense=3": "--nonsense",
    "-c q.yaml --data.batch_sze=3": "--data.batch_size",
    "-c q.yaml --data.batch_sze+=3": "--data.batch_size",
    "-c q.yaml --data '{batch_sze: 3}'": "--data.batch_size",
    "-c q.yaml --data.init_args '{batch_sze: 3}'": "--data.batch_size",
    "-c q.yaml --trainer '{max_epoch: 3}'": "--trainer.max_epochs",
    "-c q.yaml --model '{architecture: {init_args: {num_layers: 3}}}'": "--model.architecture",
    "-c q.yaml --model.head '{num_layer: 3}'": "--model.head.num_layers",
    "-c q.yaml --data+=NCI": "--data+=NCI",
    "-c q.yaml --data.class_path+=NCI": "--data.class_path",
    "-c q.yaml --model.architecture+ GPS": "--model.architecture",
    "-c q.yaml --seed_everything+=3": "--seed_everything",
    "-c q.yaml --data.batch_size": "--data.batch_size needs a value",
    "-c q.yaml --data.batch_size=": "--data.batch_size",
    "-c": "--config needs a value",
    "-c=": "--config",
    "-c nowhere.yaml": "--config nowhere.yaml",
    "-c q.yaml -c": "--config needs a value",
    "-c q.yaml q.yaml": "Unexpected argument 'q.yaml'",
}


@pytest.mark.parametrize("spelling", REFUSED)
def test_what_cannot_be_is_one_line_in_every_command(place, capsys, spelling):
    before = {path.name for path in place.iterdir()}
    for command in BUILDING:
        assert main(shlex.split(f"{command} {NEEDS.get(command, '')} {spelling}")) == 1
        said = capsys.readouterr().err
        assert said.startswith("graphbench: "), said
        assert said.count("\n") == 1, said
        assert REFUSED[spelling] in said, (command, said)
    assert {path.name for path in place.iterdir()} == before


@pytest.mark.parametrize("name", ["run", "output", "split", "checkpoint", "data_changed", "level", "steps"])
def test_own_options_are_no_lists(place, capsys, name):
    option = f"--{name.replace('_', '-')}"
    for command in (command for command in OWN if name in OWN[command]):
        assert main([command, "-c", "q.yaml", f"{option}+=x"]) == 1
        said = capsys.readouterr().err
        assert f"{option}+=x" in said
        assert said.count("\n") == 1


#: A line that each other command accepts, except for its output.
OTHERS = {
    "export": "--run RUN", "report": "RUN", "push": "RUN hf:a/b", "reproduce": "sft/table-4", "config": "quickstart",
    "list": "benchmarks", "new-plugin": "mine", "completion": "bash", "version": "", "status": "RUN",
    "study": "--model quickstart", "verify": "RUN",
}  # fmt: skip


@pytest.mark.parametrize("spelling", ["-o", "-o=", "-oOUT.csv", "-o OUT.csv", "-o=OUT.csv"])
def test_a_short_output_is_taken_or_named(place, capsys, spelling):
    """The run has no checkpoint: commands that accept the output do not name the option, all others do."""
    (place / "RUN").mkdir()
    (place / "RUN" / "config.yaml").write_text(RECIPE)
    for command in COMMANDS:
        line = f"{OTHERS.get(command, '--run RUN' if command in OWN else '-c q.yaml')} {NEEDS.get(command, '')}"
        line = line.replace("--checkpoint w.ckpt", "").replace("-o OUT.csv", "").replace("-o OUT", "")
        line = line.replace("--run OUT", "" if "--run RUN" in line else "--run RUN")
        takes = command in ("predict", "embed", "explain", "sweep", "study", "export", "report", "reproduce", "profile")
        if takes and "OUT" in spelling and command in ("sweep", "study", "reproduce"):
            line += " --seeds 0" if command == "reproduce" else " --jobs 0"
        line += " --steps 1" if takes and "OUT" in spelling and command == "profile" else ""
        assert main(shlex.split(f"{command} {line} {spelling}")) == 1, command
        said = capsys.readouterr().err
        assert said.count("graphbench: ") == said.splitlines()[-1].count("graphbench: ") == 1, said
        assert ("--output" in said) != (takes and "OUT" in spelling), (command, said)


#: Options and values, good and bad, that lines are drawn from.
NAMES = """--config -c --data --data.class_path --data.init_args --data.batch_size --model --model.architecture
--model..x --model.architecture.hidden_dim --model.architecture.init_args --model.optimizer
--model.optimizer.lr --model.head -- --trainer --trainer.callbacks --trainer.callbacks.monitor
--trainer.callbacks.0 --trainer.logger --expected -x --.data --trainer.max_epochs --expected.value
--seed_everything --json --model.schedule.warmup --data.x.y.z --. - --model.positional_encoding
--model.architecture.a.b"""
VALUES = """q.yaml|quickstart|bytes.yaml|list.yaml|odd.yaml|odd.json|.|-|~|NCI|GPS|SGD|EarlyStopping|{|[|{}|[]|null|true
3|-3|x|é|os.path|nope.Nope|1e400|&a *a|{a: *b}|!!python/object:os.system|{init_args: 3}||a b|[1, {class_path: Timer}]
{class_path: [1]}|{init_args: {a: 1}}|{1: 2}|{class_path: 3}|[{class_path: 3}]|{architecture: [1]}
{architecture: {class_path: 3}}|{class_path: GPS, init_args: null}"""


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 9))])
def test_whatever_the_words_they_are_taken_or_refused_in_one_line(place, monkeypatch, capsys, seed):
    (place / "bytes.yaml").write_bytes(b"\xff\xfe")
    (place / "list.yaml").write_text("- 1\n")
    (place / "odd.yaml").write_text("data: [1, 2]\nmodel: {architecture: [GPS], head: 3}\n1: 2\nexpected: 7\n")
    (place / "odd.json").write_text('{"class_path": 3, "init_args": [1], "logger": [1, {"a": 2}]}')
    monkeypatch.setattr("sys.stdin", io.StringIO(""))  # which `-` names
    drawn, names, values = random.Random(seed), NAMES.split(), VALUES.replace("\n", "|").split("|")
    for _ in range(60):
        words = ["-c", "q.yaml"] if drawn.random() < 0.7 else []
        for _ in range(drawn.randint(1, 3)):
            name, value = drawn.choice(names), drawn.choice(values)
            words += drawn.choice([[f"{name}={value}"], [f"{name}+={value}"], [name, value], [name, value], [name]])
        code = main(["params", *words])
        said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("Seed set to")]
        assert [line.partition(":")[0] for line in said] == ["graphbench"] * code, (words, said)


@pytest.mark.parametrize("option", [*SLOTS, *HOLDERS])
def test_a_file_that_is_no_text_is_named_in_one_line(place, capsys, option):
    (place / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert main(["params", "-c", "q.yaml", f"--{option}", "bytes.yaml"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("graphbench: ")
    assert "bytes.yaml" in line


def test_options_of_the_environment_are_refused(place, monkeypatch, capsys):
    """jsonargparse would read them, and they would change a recipe unseen."""
    monkeypatch.setenv("PL_TRAINER__MAX_EPOCHS", "3")
    monkeypatch.setenv("PL_GLOBAL_SEED", "3")  # Lightning's own
    assert main(["params", "-c", "q.yaml"]) == 0
    monkeypatch.setenv("JSONARGPARSE_DEFAULT_ENV", "true")
    assert main(["params", "-c", "q.yaml"]) == 1
    assert "PL_TRAINER__MAX_EPOCHS" in capsys.readouterr().err
    monkeypatch.delenv("PL_TRAINER__MAX_EPOCHS")
    assert main(["params", "-c", "q.yaml"]) == 0


def test_values_and_options_are_told_apart():
    words = ["--rows", "0", "-1", "--trust", "stray", "-", "--data.seed", "-3", "--json", "--x=--y", "--text", "- a b"]
    line = CommandLine.parse(words, several=("--rows",), flags=("--trust", "--json"))
    assert [(one.name, one.values) for one in line.options] == [
        ("--rows", ("0", "-1")), ("--trust", ()), ("", ("stray",)), ("", ("-",)), ("--data.seed", ("-3",)),
        ("--json", ()), ("--x", ("--y",)), ("--text", ("- a b",)),
    ]  # fmt: skip
    assert line.words == words


def test_the_last_value_counts_whatever_its_spelling():
    words = ["--trainer.devices=3", "--trainer", "{devices: 2, max_epochs: 4}"]
    assert CommandLine.parse(words).value("trainer.devices") == 2
    assert CommandLine.parse([*words, "--trainer.devices", "auto"]).value("trainer.devices") == "auto"
    assert CommandLine.parse(["--data={init_args: {seed: 3}}"]).value("data.seed") == 3
    assert CommandLine.parse(words).value("trainer.accelerator") is None


def test_files_of_data_are_no_settings(place):
    """Such a file may be large and not a mapping: only its benchmark reads it."""
    (place / "graphs.json").write_text("[" + "1," * 200_000 + "1]")
    line = CommandLine.parse(["--data", "Graphs", "--data.source", "graphs.json", "--model.init_from", "graphs.json"])
    assert [content for _, content in line.contents] == [{"data": "Graphs"}]
    import_named(line.words)
    assert line.value("data.source") == "graphs.json"


def test_short_names_are_spelled_out_alone():
    words = ["--message=-c", "-h", "-5", "--config-like", "--configuration+=x"]
    assert spell_out(words) == words
