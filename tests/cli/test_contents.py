"""What a configuration says and nobody takes is told with the file, before torch is imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from graphbench.cli import main
from graphbench.cli.checks import look
from graphbench.cli.command_line import options_in
from graphbench.errors import BadInput
from graphbench.registry.configurations import configurations

GPS = "data: {class_path: NCI}\nmodel: {architecture: {class_path: GPS, init_args: {num_layers: 2}}}\n"
#: Content of a file -> words of the message.
MISTAKES: dict[str, tuple[str, ...]] = {
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
    GPS + "model: {head: {}}\n": ("model stands twice, in line 2 and in line 3",),
    "data: {class_path: NCI, batch_size: 3}\nmodel: {architecture: GPS}\n": ("batch_size must stand below init_args",),
    "data: {class_path: NCI, init_args: {batch_sze: 3}}\nmodel: {architecture: GPS}\n": ("--data.batch_size",),
    "data: {name: NCI}\nmodel: {architecture: GPS}\n": ("--data.name", "none is named"),
    "data: mine.csv\nmodel: {architecture: GPS}\n": ("--data Molecules --data.file mine.csv",),
    "data: NCI\nmodel: {class_path: GPS}\n": ("model: {architecture: NAME}",),
    "data: NCI\nmodel: {architecture: {class_path: GPS, hidden_dim: 8}}\n": ("hidden_dim must stand below init_args",),
    "data: NCI\nmodel: {architecture: GPS, lr: 0.1}\n": ("--model.optimizer.lr",),
    "data: NCI\nmodel: {architecture: GPS, head: {num_layer: 2}}\n": ("--model.head.num_layers",),
}


@pytest.mark.parametrize("content", MISTAKES)
def test_a_mistake_in_a_file_is_told_in_one_line(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(content)
    assert main(["fit", "--config", "mine.yaml"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in MISTAKES[content]:
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
    """What the first look says of a command line."""
    try:
        look("params", words)
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


def test_names_of_options_are_those_of_the_command_line() -> None:
    content = {"seed_everything": 3, "trainer": {"max_epochs": 2}, "model": {"architecture": {"init_args": {"dim": 3}}}}
    assert list(options_in(content)) == [
        ("seed_everything", False), ("trainer.max_epochs", False), ("model.architecture.dim", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["deepgraph/overlays/zinc-24", "deepgraph/zinc"], "zinc-24.yaml: nothing of it remains, since"),
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
    assert "short.yaml: nothing of it remains" in refusal(["--config", "short.yaml", "--config", "long.yaml"])
    assert refusal(["--config", "long.yaml", "--config", "short.yaml"]) == ""
