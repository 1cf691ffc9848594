"""Mistakes are reported and help is shown before torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from graphbench import registry
from graphbench.cli import main
from graphbench.cli.checks import check_command, check_names, meant
from graphbench.cli.command_line import HOLDERS, CommandLine, options_in
from graphbench.cli.options import help_page
from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations
from graphbench.registry.describe import options_of

#: Command line -> words of the message.
MISTAKES: dict[str, tuple[str, ...]] = {
    "fit --config gps/zink": ("gps/zink", "gps/zinc"),
    "fit --nonsense 3": ("Unknown option --nonsense",),
    "fit --config quickstart --seed_evrything 3": ("--seed_everything",),
    "fit --config quickstart --data.batch_sze 3": ("NCI has no option 'batch_sze'", "--data.batch_size"),
    "fit --config quickstart --data.init_args.batch_sze 3": ("NCI has no option 'batch_sze'",),
    "fit --data ZINCC --model.architecture GPS": ("No benchmark is called 'ZINCC'", "ZINC"),
    "fit --data ZINC --model.architecture GSP": ("GSP", "GPS"),
    "fit --config gps/zinc --model.architecture.hiden_dim 3": ("GPS has no option 'hiden_dim'", "hidden_dim"),
    "fit --config gps/zinc --trainer.max_epoch 3": ("--trainer.max_epochs",),
    "fit --config gps/zinc --model.optimiser x": ("--model.optimizer",),
    "fit --config gps/zinc --model.schedule.warmupp 3": ("--model.schedule.warmup",),
    "params --config gps/zinc --model.hed.dropout 0.1": ("--model.head",),
    "test --rnu somewhere": ("Unknown option --rnu",),
    "fit --config gps/zinc --data mine.csv": ("--data mine.csv", "--data Molecules --data.file mine.csv"),
    "sweep --config gps/zinc --data mine.csv --output x": ("--data mine.csv", "--data Graphs --data.source mine.csv"),
    "tune --config gps/zinc --data ./graphs --run x --space y": ("--data ./graphs", "--data.source ./graphs"),
    "fit --data.file mine.csv --model.architecture GPS": ("--data.file", "--data NAME"),
    "fit --data NCI --model GPS": ("--model.architecture GPS",),
    "fit --data NCI --model.architecture weights.pt": ("weights.pt", "graphbench list architectures"),
    "fit --data NCI --model.architecture.hidden_dim 4": ("--model.architecture NAME",),
    "fit --data NCI --model.architecture GPS --hidden_dim 4": ("--model.architecture.hidden_dim",),
    "fit --data NCI --model.architecture GPS --batch_size 4": ("--data.batch_size",),
    "fit --data NCI --model.architecture GPS --lr 0.1": ("--model.optimizer.lr",),
    "fit --config gps/zinc --trainer 10": ("--trainer.max_epochs",),
    "test --run nowhere --data.root x": ("nowhere is not the folder of a run",),
    "fit gps/zinc": ("Unexpected argument 'gps/zinc'", "--config gps/zinc"),
    "prepare ZINC": ("--data ZINC",),
    "params --data NCI GPS": ("--model.architecture GPS",),
    "test RUN": ("Unexpected argument 'RUN'", "--run RUN"),
    "fit RUN": ("--resume RUN",),
    "predict RUN --input RUN/config.yaml": ("--run RUN",),
    "predict --run RUN RUN/mine.csv": ("this is a file", "--input RUN/mine.csv"),
    "predict --run RUN --input mine.csv": ("--output is missing",),
    "predict --run RUN --input mine.csv --output out.xlsx": (".csv or .parquet",),
    "embed --run RUN": ("--output is missing",),
    "explain --run RUN --output folder": ("--rows is missing",),
    "explain --run RUN --rows 0 5": ("--output is missing",),
    "sweep --config gps/zinc model/gt --output x": ("--config model/gt",),
}
#: Lines that the first check must accept; the commands would continue.
GOOD = (
    "fit --config quickstart --data.batch_size 3 --trainer.callbacks+=AttentionCapacity --trainer.callbacks.layers 3",
    "fit --config gps/zinc --model.architecture.init_args.hidden_dim 3 --model.optimizer.lr 0.1 --seed_everything 3",
    "fit --data NCI --model.architecture GPS --model.head.dropout 0.1 --run somewhere --data-changed accept",
    "fit --data NCI --model.architecture my_package.MyModel --model.architecture.anything 3",
    "fit --data '{class_path: NCI}' --model.architecture GPS",
    "fit --data.help NCI",
    "fit --model.architecture.help=GPS",
    "predict --run RUN RUN --input RUN/mine.csv --output -",
    "explain --run RUN --rows 0 5 7 --output folder",
    "fit --config quickstart --data.seed -1 --trainer.devices [0,1]",
)
SCRIPT = """
import contextlib, io, json, shlex, sys
from graphbench.cli import main
from graphbench.cli.checks import check_command
told = {}
for line in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as said:
        code = main(shlex.split(line))
    told[line] = [code, said.getvalue()]
for line in json.loads(sys.argv[2]):
    command, *words = shlex.split(line)
    check_command(command, words)
for command in ("fit", "test", "predict", "params", "report", "list", "prepare"):
    with contextlib.redirect_stdout(io.StringIO()) as page:
        try:
            code = main([command, "--help"])
        except SystemExit as exit:
            code = exit.code
    told[command] = [code, page.getvalue()]
heavy = [name for name in ("torch", "pytorch_lightning", "torch_geometric", "pandas", "rdkit") if name in sys.modules]
print(json.dumps([told, heavy]))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """Return the answer to each line, in a folder with a run RUN, and the slow packages that were imported."""
    place = tmp_path_factory.mktemp("early")
    (place / "RUN").mkdir()
    classes = ("graphbench.benchmarks.NCI", "graphbench_baselines.GPS")
    config = "data: {{class_path: {}}}\nmodel: {{architecture: {{class_path: {}}}}}\n".format(*classes)
    (place / "RUN" / "config.yaml").write_text(config)
    (place / "RUN" / "mine.csv").write_text("smiles\nCCO\n")
    command = [sys.executable, "-c", SCRIPT, json.dumps(list(MISTAKES)), json.dumps(GOOD)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=place)
    assert done.returncode == 0, done.stderr
    answers, heavy = json.loads(done.stdout)
    return answers, heavy


def test_nothing_heavy_is_imported_to_tell_a_mistake_or_to_help(told) -> None:
    assert told[1] == []


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_told_in_one_line(told, line: str) -> None:
    code, said = told[0][line]
    assert code == 1
    assert said.count("\n") == 1
    for word in MISTAKES[line]:
        assert word in said


@pytest.mark.parametrize("command", ["fit", "test", "predict", "params", "report", "list", "prepare"])
def test_help_is_shown(told, command: str) -> None:
    code, page = told[0][command]
    assert code == 0
    assert command in page


def test_the_page_of_fit_has_its_own_options_first_and_fits_on_few_screens() -> None:
    page = help_page()
    order = [page.index(word) for word in ("--resume", "--model.architecture", "--data NAME", "max_epochs")]
    assert order == sorted(order)
    assert page.count("\n") < 120
    assert max(map(len, page.splitlines())) <= 100


def test_what_the_sources_say_is_what_python_sees() -> None:
    import inspect

    from pytorch_lightning import Trainer

    from graphbench.training.module import BenchmarkModule

    for target, cls in ((HOLDERS["trainer"], Trainer), (HOLDERS["model"], BenchmarkModule)):
        assert list(options_of(target) or ()) == list(inspect.signature(cls).parameters)
    for name, record in registry.architectures().items():
        known = [parameter for parameter in inspect.signature(record.load()).parameters if parameter != "spec"]
        read = options_of(record.target)
        assert read is None or [option for option in read if option != "spec"] == known, name


def test_options_of_a_run_are_those_of_its_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = (
        "data: {class_path: graphbench.benchmarks.NCI}\nmodel: {architecture: {class_path: graphbench_baselines.GPS}}\n"
    )
    (tmp_path / "config.yaml").write_text(config)
    assert main(["test", "--run", str(tmp_path), "--data.batch_sze", "3"]) == 1
    assert "NCI has no option 'batch_sze'" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["NCI", "my_package.MyData", "{class_path: NCI}", "spec.yaml"])
def test_names_mappings_and_files_of_settings_pass(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text("class_path: NCI\n")
    check_names(CommandLine.parse(["--data", value, "--model.architecture", value]))
    check_names(CommandLine.parse([f"--data={value}"]))


def test_a_file_is_no_name_though_it_reads_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`a.b` may be a module's class, unless there is a file of that name."""
    monkeypatch.chdir(tmp_path)
    check_names(CommandLine.parse(["--data", "a.b"]))
    Path("a.b").write_text("secret,content\n")
    with pytest.raises(BadInput, match=r"--data a\.b: this option takes the name of a benchmark") as refused:
        check_names(CommandLine.parse(["--data", "a.b"]))
    assert "secret" not in str(refused.value)


def test_settings_that_are_not_there_are_no_name() -> None:
    with pytest.raises(BadInput, match=r"no/spec\.yaml"):
        check_names(CommandLine.parse(["--data.class_path", "no/spec.yaml"]))


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("lr", "model.optimizer.lr"),
        ("num_epochs", "trainer.max_epochs"),
        ("batch_size", "data.batch_size"),
        ("nonsense", None),
    ],
)
def test_options_of_other_programs_have_a_name_here(option: str, expected: str | None) -> None:
    assert meant(option, {"data": "CSL"}) == expected


GPS = "data: {class_path: NCI}\nmodel: {architecture: {class_path: GPS, init_args: {num_layers: 2}}}\n"
#: Content of a file -> words of the message.
MISTAKES_IN_FILES: dict[str, tuple[str, ...]] = {
    GPS + "modle: 3\n": ("mine.yaml", "--modle", "--model"),
    GPS + "seed: 3\n": ("--seed_everything",),
    GPS + "modle: 3\nx-own: 3\n": ("--modle", "one of data, model, trainer, seed_everything, expected"),
    "x-own: &a {num_layers: 2}\ndata: NCI\nmodel: {architecture: {class_path: GPS, init_args: *a}}\n": (
        "--config mine.yaml: Unknown option --x-own. A key at the top of a file must be one of data, model",
        "An anchor (&NAME) needs no key of its own",
    ),
    GPS + "max_epochs: 3\n": ("Did you mean --trainer.max_epochs? A key at the top",),
    GPS + "hidden_dim: 3\n": ("Did you mean --model.architecture.hidden_dim? A key at the top",),
    GPS + "trainer:\n\tmax_epochs: 3\n": ("--config mine.yaml is not valid YAML: line 4 is indented with a tab",),
    GPS + "trainer: {max_epoch: 1}\n": ("mine.yaml", "--trainer.max_epochs"),
    GPS + "model: {head: {}}\n": ("model occurs twice, in line 2 and in line 3",),
    "data: {class_path: NCI, batch_size: 3}\nmodel: {architecture: GPS}\n": ("batch_size must be below init_args",),
    "data: {class_path: NCI, init_args: {batch_sze: 3}}\nmodel: {architecture: GPS}\n": ("--data.batch_size",),
    "data: {name: NCI}\nmodel: {architecture: GPS}\n": ("--data.name", "none is named"),
    "data: mine.csv\nmodel: {architecture: GPS}\n": ("--data Molecules --data.file mine.csv",),
    "data: NCI\nmodel: {class_path: GPS}\n": ("model: {architecture: NAME}",),
    "data: NCI\nmodel: {architecture: {class_path: GPS, hidden_dim: 8}}\n": ("hidden_dim must be below init_args",),
    "data: NCI\nmodel: {architecture: GPS, lr: 0.1}\n": ("--model.optimizer.lr",),
    "data: NCI\nmodel: {architecture: GPS, head: {num_layer: 2}}\n": ("--model.head.num_layers",),
}


@pytest.mark.parametrize("content", MISTAKES_IN_FILES)
def test_a_mistake_in_a_file_is_told_in_one_line(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    assert main(["fit", "--config", "mine.yaml"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in MISTAKES_IN_FILES[content]:
        assert word in said


def test_nothing_heavy_is_imported_for_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GPS + "modle: 3\n")
    script = (
        "import sys; from graphbench.cli import main; code = main(['fit', '--config', 'mine.yaml']);"
        "print(code, [name for name in ('torch', 'pandas', 'rdkit') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.split("\n")[0] == "1 []"


def refusal(words: list[str]) -> str:
    """Return what the first check says of a command line."""
    try:
        check_command("params", words)
    except BadInput as error:
        return str(error)
    return ""


def test_every_shipped_configuration_passes() -> None:
    alone = [name for name, (configuration,) in configurations().items() if not configuration.is_overlay]
    assert len(alone) > 200
    assert {name: said for name in alone if (said := refusal(["--config", name]))} == {}


@pytest.mark.parametrize(
    "words",
    [
        ["--config", "gps/zinc", "--model.architecture", "GCN"],  # options of GPS are dropped with it
        ["--config", "gps/zinc", "--config", "narrow.yaml"],
        ["--config", "gps/zinc", "--config", "other.yaml"],
        ["--data={class_path: NCI, init_args: {batch_size: 8}}", "--model.architecture", "GPS", "--data.seed", "3"],
    ],
)
def test_an_overlay_may_leave_the_class_out_or_change_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "narrow.yaml").write_text("data: {batch_size: 3}\nmodel: {architecture: {hidden_dim: 8}}\n")
    (tmp_path / "other.yaml").write_text("model: {architecture: {class_path: GCN, init_args: {hidden_dim: 8}}}\n")
    assert refusal(words) == ""


def test_anchors_go_before_the_values_that_they_name(tmp_path: Path) -> None:
    (tmp_path / "anchored.yaml").write_text(GPS + "trainer: {max_epochs: &length 3, min_epochs: *length}\n")
    assert refusal(["--config", str(tmp_path / "anchored.yaml")]) == ""


def test_an_overlay_is_held_against_the_classes_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.yaml").write_text(GPS)
    (tmp_path / "overlay.yaml").write_text("data: {batch_size: 3}\n")
    (tmp_path / "wrong.yaml").write_text("data: {init_args: {batch_sze: 3}}\n")
    assert refusal(["--run", ".", "--config", "overlay.yaml"]) == ""
    assert "NCI has no option 'batch_sze'" in refusal(["--run", ".", "--config", "wrong.yaml"])


def test_options_in_words_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["params", "--data={class_path: NCI, init_args: {batch_sze: 8}}", "--model.architecture", "GPS"]
    assert main(line) == 1
    assert "NCI has no option 'batch_sze'" in capsys.readouterr().err


def test_a_class_in_words_is_imported_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["params", "--data={class_path: NCI, init_args: {batch_size: 8}}"]
    assert main([*line, "--model.architecture={class_path: GCN, init_args: {num_layers: 1}}"]) == 0
    in_words = capsys.readouterr().out
    plain = ["--data", "NCI", "--data.batch_size", "8", "--model.architecture", "GCN"]
    assert main(["params", *plain, "--model.architecture.num_layers", "1"]) == 0
    assert capsys.readouterr().out == in_words != ""


def test_names_of_options_are_those_of_the_command_line() -> None:
    content = {"seed_everything": 3, "trainer": {"max_epochs": 2}, "model": {"architecture": {"init_args": {"dim": 3}}}}
    assert list(options_in(content)) == [
        ("seed_everything", False), ("trainer.max_epochs", False), ("model.architecture.dim", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["deepgraph/overlays/zinc-24", "deepgraph/zinc"], "zinc-24.yaml has no effect: "),
        (["deepgraph/zinc", "deepgraph/overlays/zinc-24"], ""),
        (["deepgraph/zinc", "callbacks/ema", "callbacks/early_stopping"], ""),
    ],
)
def test_an_overlay_before_what_it_lies_over_is_refused(names: list[str], told: str) -> None:
    said = refusal([word for name in names for word in ("--config", name)])
    assert told in said if told else not said


def test_short_forms_of_options_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.yaml").write_text("data: {batch_size: 3}\n")
    (tmp_path / "long.yaml").write_text(
        "data: {class_path: NCI, init_args: {batch_size: 4}}\nmodel: {architecture: GPS}\n"
    )
    assert "short.yaml has no effect" in refusal(["--config", "short.yaml", "--config", "long.yaml"])
    assert refusal(["--config", "long.yaml", "--config", "short.yaml"]) == ""
