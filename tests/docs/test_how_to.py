"""The pages of `docs/how-to/` do what they say when a reader runs them in one folder.

A ```console block is run and must succeed; if a ```text block follows, it must end in exactly that line, where `...`
stands for any text. ```python and ```yaml blocks whose first line names a file are written there, other Python blocks
are run, and ```toml blocks register classes as installing a package would. ```bash blocks need what no test has: other
machines, schedulers, days.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
from quick import one_of_each, slow
from rdkit import RDConfig

from graphbench import registry
from graphbench.cli import checks, main
from graphbench.errors import GraphbenchError

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w/.-]+\.(?:py|yaml))\n")
PACKAGE = "graphbench_my_model"


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """Return language, content and the line expected after it, empty if there is none."""
    return FENCE.findall(page.read_text(encoding="utf-8"))


def commands(content: str) -> list[list[str]]:
    """Return each command line as words, without comments; a backslash joins lines."""
    lines = content.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Yield the folder in which pages are run: `mine.csv`, `mine.yaml`, `runs/mine` and the reader's own package."""
    folder = tmp_path_factory.mktemp("how-to")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("GRAPHBENCH_STORE", str(folder / "store"))
        patch.syspath_prepend(str(folder / "graphbench-my-model" / "src"))
        lines = (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()
        smiles = [word for word in (line.split()[0] for line in lines) if 6 <= len(word) <= 20 and word.isalnum()][:24]
        Path("mine.csv").write_text("smiles,solubility\n" + "".join(f"{s},{len(s)}\n" for s in smiles))
        assert main(["new-plugin", "my-model"]) == 0
        for _, content, _ in blocks(DOCS / "how-to.md"):
            write(content)
        assert main(["fit", "--config", "mine.yaml", "--run", "runs/mine"]) == 0
        yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
    registry.refresh()


def write(content: str) -> Path | None:
    """Write the file that a block names in its first line and return its path; None if it names none."""
    named = FILE.match(content)
    if named is None:
        return None
    path = Path(named[1]) if named[1].endswith(".yaml") else Path("graphbench-my-model", named[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    importlib.invalidate_caches()
    return path


def register(content: str) -> None:
    """Write entry points as `pip install -e` would."""
    found = re.sub(r'\[project\.entry-points\."([\w.]+)"\]', r"[\1]", content).replace('"', "")
    number = len(list(Path("graphbench-my-model", "src").glob("*.dist-info")))
    info = Path("graphbench-my-model", "src", f"{PACKAGE}_{number}-0.1.0.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: graphbench-my-model-{number}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(found)
    registry.refresh()


def run_contracts(path: Path) -> None:
    """Run the inherited tests of a file without another pytest; the contracts' own tests cover precisions."""
    names: dict[str, object] = {"__name__": "contracts"}
    exec(compile(path.read_text(), str(path), "exec"), names)
    contracts = [thing for name, thing in names.items() if name.startswith("Test") and isinstance(thing, type)]
    assert contracts
    for contract in contracts:
        methods = [name for name in dir(contract) if name.startswith("test_") and "trains_in" not in name]
        assert methods
        for name in methods:
            try:
                getattr(contract(), name)()
            except (pytest.skip.Exception, unittest.SkipTest):
                continue


def check_command(words: list[str], said: str, capsys) -> None:
    """Run a command; it succeeds, or fails with the line that the page shows."""
    assert words[0] == "graphbench"
    capsys.readouterr()
    if "--card-memory" in words and not said:  # needs a process that has computed no gradient
        code = subprocess.run([sys.executable, "-m", *words], check=False).returncode
    else:
        code = main(words[1:])
    last = (capsys.readouterr().err.strip().splitlines() or [""])[-1]
    if not said:
        assert code == 0, f"{words}: {last}"
        return
    shown = " ".join(said.split())
    pattern = ".*".join(re.escape(part.strip()) for part in shown.split("..."))
    assert code == 1, words
    assert re.fullmatch(pattern.replace(r".*", r"\s*.*\s*"), last), f"{words}\n{last}"


#: Pages whose commands take long; each has its own quick tests.
LONG = {"card-memory"}


@pytest.mark.parametrize(
    "page",
    [
        *one_of_each([page for page in PAGES if page.stem not in LONG], number=7),
        *(slow(page) for page in PAGES if page.stem in LONG),
    ],
    ids=lambda page: page.stem,
)
def test_the_page_does_what_it_says(page, place, capsys):
    names: dict[str, object] = {"__name__": "guide"}
    for language, content, said in blocks(page):
        if language == "console":
            for words in commands(content):
                check_command(words, said, capsys)
        elif language == "toml":
            register(content)
        elif language == "python":
            path = write(content)
            if path is None:
                exec(compile(content, str(page), "exec"), names)
            elif path.parent.name == PACKAGE:
                names |= vars(importlib.import_module(f"{PACKAGE}.{path.stem}"))
            else:
                run_contracts(path)
        elif language == "yaml":
            write(content)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_says_when_and_what_can_go_wrong(page):
    text = page.read_text(encoding="utf-8")
    assert "**When:**" in text
    assert "\n## What can go wrong\n" in text
    assert 30 <= len(text.splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_options_of_commands_that_are_not_run_exist(page, tmp_path, monkeypatch):
    """These are what the command line refuses at once: unknown options, configurations and classes."""
    monkeypatch.chdir(tmp_path)
    refused = []
    for language, content, _ in blocks(page):
        if language == "yaml":
            write(content)
        lines = content.replace("\\\n", " ").splitlines() if language == "bash" else ()
        for line in lines:
            options = re.search(r"(?:graphbench|graphbench\)) +fit (.*?)(?:  #.*)?$", line)
            if options:
                told = options[1].replace("--config CONFIG", "--config quickstart")
                try:
                    checks.check_command("fit", shlex.split(told.replace("--config mine.yaml", "--config quickstart")))
                except GraphbenchError as error:
                    refused.append(str(error))
    assert refused == []


def test_numbers_that_differ_from_those_of_slurm_are_refused_in_the_words_of_the_page(place, monkeypatch, capsys):
    monkeypatch.setenv("SLURM_JOB_NAME", "fit")
    for name in ("JOB_ID", "NTASKS", "NTASKS_PER_NODE", "NNODES"):
        monkeypatch.setenv(f"SLURM_{name}", "1")
    for name in ("NODEID", "PROCID", "LOCALID"):
        monkeypatch.setenv(f"SLURM_{name}", "0")
    command = "graphbench fit --config mine.yaml --config trainer/ddp --run runs/slurm"
    said = re.search(r"^graphbench: You set .*$", (DOCS / "how-to" / "slurm.md").read_text(), re.MULTILINE)
    assert said
    check_command(shlex.split(command), said[0], capsys)


def test_a_task_of_several_that_srun_has_not_started_is_refused_instead_of_waiting_for_the_others(
    place, monkeypatch, capsys
):
    monkeypatch.setenv("SLURM_JOB_NAME", "fit")
    for name, value in {"JOB_ID": 1, "NTASKS": 2, "NTASKS_PER_NODE": 2, "NNODES": 1, "PROCID": 0, "LOCALID": 0}.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    monkeypatch.setenv("SLURM_NODEID", "0")
    command = "graphbench fit --config mine.yaml --config trainer/ddp --run runs/slurm"
    said = re.search(r"^graphbench: The SLURM job .*$", (DOCS / "how-to" / "slurm.md").read_text(), re.MULTILINE)
    assert said
    check_command(shlex.split(command), said[0], capsys)
