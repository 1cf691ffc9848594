"""`graphbench verify`: an honest run is added with a person's name, and alterations by a sender are found."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from sklearn.metrics import recall_score

from graphbench.cli import main
from graphbench.cli.commands import verify
from graphbench.experiments.records import read_records
from graphbench.experiments.reproduce.page import Page
from graphbench.registry.configurations import Configuration
from graphbench.runs.tables import show_number

SETTINGS = """# Small graphs for any model.
seed_everything: 0
expected: {parameters: 3000, epochs: 2, data: generated}
data: {class_path: PATTERN, init_args: {source: generated, sizes: [8, 4, 4], batch_size: 4}}
model:
  optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 0.03}}
trainer: {max_epochs: 2}
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("budget") / "tiny.yaml"
    path.write_text(SETTINGS)
    return Configuration("equal-budget/tiny", path, "graphbench-lightning", "0.1.0")


@pytest.fixture(scope="module")
def sent(table):
    """Return the folder of a run as its sender packs it, without checkpoints."""
    words = ["--config", str(table.path), "--model.architecture=GCN", "--model.architecture.hidden_dim=24"]
    words += ["--model.architecture.num_layers=4", "--model.architecture.dropout=0.0", "--trainer.accelerator=cpu"]
    folder = table.path.parent
    words += [f"--data.root={folder}", f"--data.store={folder / 'store'}"]
    assert main(["fit", *words, "--run", str(folder / "sent")]) == 0
    assert main(["test", "--run", str(folder / "sent")]) == 0
    shutil.rmtree(folder / "sent" / "checkpoints")
    return folder / "sent"


@pytest.fixture
def run(sent, table, tmp_path, monkeypatch):
    """Return a copy as on another machine, whose only table is the small one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHBENCH_STORE", str(sent.parent / "store"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(verify, "configurations", lambda: {table.name: (table,)})
    return shutil.copytree(sent, tmp_path / "sent")


def edit(path: Path, change) -> None:
    """Change the content of a YAML or JSON file."""
    content = yaml.safe_load(path.read_text())
    change(content)
    path.write_text(json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content))


def failing(run: Path, capsys, *words: str) -> str:
    """Run a verification that must fail and return the line of its first failure."""
    assert main(["verify", str(run), *words]) == 1
    return next(line for line in capsys.readouterr().out.splitlines() if line.startswith("FAILS"))


def test_an_honest_run_is_added_with_its_person(run, capsys):
    records = run.parent / "records"
    records.mkdir()
    for person in ("Ada L.", "Grace H."):
        assert main(["verify", str(run), "--records", str(records), "--by", person]) == 0
    assert "FAILS" not in capsys.readouterr().out
    one, other = read_records([records])
    stored = json.loads((run / "results.json").read_text())
    assert (one.name, one.by, other.by, one.recipe) == ("GCN", "Ada L.", "Grace H.", ("equal-budget/tiny",))
    assert (one.test, one.parameters) == (stored["test"]["test/class_accuracy"], stored["parameters"])
    assert {"--model.architecture=GCN", "--model.architecture.init_args.hidden_dim=24"} <= set(one.options)
    assert len(one.curve) == 2
    page = Page([]).text([one, other])
    assert "GCN, run by Ada L. |" in page
    assert "GCN, run by Grace H. |" in page


def test_a_recipe_that_leaves_the_architecture_open_is_altered_by_none(sent):
    assert yaml.safe_load((sent / "config.yaml").read_text())["expected"]["altered"] == []


def test_the_score_is_that_of_sklearn_on_the_rows(run, capsys):
    """Accuracy weighted by class is the mean recall of the classes."""
    assert main(["verify", str(run)]) == 0
    frame = pd.read_csv(run / "predictions-test.csv")
    expected = recall_score(frame["target_class"], frame["prediction_class"], average="macro")
    assert f"class_accuracy {show_number(expected)}" in capsys.readouterr().out


def test_altered_scores_and_targets_are_found(run, capsys):
    path = run / "predictions-test.csv"
    edit(run / "results.json", lambda content: content["test"].update({"test/class_accuracy": 0.99}))
    assert "0.99" in failing(run, capsys)
    frame = pd.read_csv(path)
    frame["target_class"] = frame["target_class"].to_numpy()[::-1]  # only the benchmark's targets count
    frame.to_csv(path, index=False)
    edit(run / "results.json", lambda content: content["test"].update({"test/class_accuracy": 0.0}))
    assert "results.json says 0.0" in failing(run, capsys)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda frame: frame.iloc[:-1], "rows"),
        (lambda frame: frame.iloc[::-1], "order"),
        (lambda frame: frame.assign(node=frame["node"].to_numpy()[::-1]), "nodes"),
        (lambda frame: frame.drop(columns=[n for n in frame if n.startswith(("prediction", "probability"))]), "lacks"),
    ],
)
def test_predictions_must_be_of_the_split_row_by_row(run, capsys, damage, said):
    path = run / "predictions-val.csv"
    damage(pd.read_csv(path)).to_csv(path, index=False)
    assert said in failing(run, capsys)


def test_missing_predictions_are_named(run, capsys):
    (run / "predictions-test.csv").write_bytes(b"id,prediction\n\xff")
    assert "predictions-test.csv is not a table of predictions" in failing(run, capsys)
    (run / "predictions-test.csv").unlink()
    assert "predictions-test.csv is missing" in failing(run, capsys)


def test_parameters_are_counted(run, capsys):
    edit(run / "results.json", lambda content: content.update(parameters=123))
    assert "parameters" in failing(run, capsys)


@pytest.mark.parametrize("place", ["model", "model.architecture", "data"])
def test_foreign_code_is_refused_also_where_the_reader_trusts_it(run, capsys, tmp_path, monkeypatch, place):
    """A class that is not registered is neither imported nor run."""
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('ran').touch()\nclass Net: pass\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(content):
        if place == "model":
            content["model"]["optimizer"] = {"class_path": "evil.Net", "init_args": {}}
        elif place == "data":
            content["data"] = {"class_path": "evil.Net", "init_args": {}}
        else:
            content["model"]["architecture"] = {"class_path": "evil.Net", "init_args": {}}

    edit(run / "config.yaml", change)
    from graphbench.runs import trust

    with trust.admitting_all():  # as if the reader had given --trust for this file
        trust.restrict_to(trust.Policy(run / "config.yaml", trust=True, foreign={"evil.Net"}))
        trust.remember(run / "config.yaml")
    said = failing(run, capsys)
    assert "evil.Net" in said
    assert not (tmp_path / "ran").exists()
    assert "evil" not in sys.modules


def test_callbacks_and_loggers_of_a_sender_are_not_built(run, capsys):
    """They may write anywhere, and a training step needs none of them."""
    edit(
        run / "config.yaml",
        lambda content: content["trainer"].update(
            callbacks=[{"class_path": "evil.Callback", "init_args": {}}], logger={"class_path": "evil.Logger"}
        ),
    )
    assert main(["verify", str(run)]) == 0
    assert "evil" not in sys.modules


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content["data"]["init_args"].update(batch_size=2), "data.batch_size is 2 instead of 4"),
        (lambda content: content["model"]["optimizer"]["init_args"].update(lr=0.5), "model.optimizer.lr is 0.5"),
        (lambda content: content["trainer"].update(max_epochs=9), "trainer.max_epochs is 9 instead of 2"),
        (lambda content: content["model"]["architecture"]["init_args"].update(dropout=0.5), "dropout is 0.5"),
    ],
)
def test_a_run_outside_the_budget_is_not_added(run, capsys, change, said):
    edit(run / "config.yaml", change)
    assert said in failing(run, capsys, "--records", str(run.parent), "--by", "Ada")
    assert not list(run.parent.glob("*.json"))


def test_a_run_that_ended_early_is_not_added(run, capsys):
    edit(run / "results.json", lambda content: content.update(epochs=1))
    assert "1 epochs" in failing(run, capsys, "--records", str(run.parent), "--by", "Ada")


def test_no_text_of_a_sender_reaches_the_page_as_html(run, capsys):
    edit(run / "environment.json", lambda content: content.update(processor="<script>x</script>"))
    assert main(["verify", str(run), "--records", str(run.parent), "--by", "Ada"]) == 1
    assert "<script>" in capsys.readouterr().err
    assert main(["verify", str(run), "--records", str(run.parent), "--by", "a|b"]) == 1
    assert "--by" in capsys.readouterr().err
    assert not list(run.parent.glob("*.json"))


def test_a_table_needs_a_person_and_a_folder(run, capsys):
    for words in (["--records", str(run.parent)], ["--by", "Ada"], ["--records", "gone", "--by", "Ada"]):
        assert main(["verify", str(run), *words]) == 1
        assert "--records" in capsys.readouterr().err


def test_a_loss_that_is_not_finite_is_no_step(run, capsys, monkeypatch):
    monkeypatch.setattr(torch.nn.Linear, "reset_parameters", lambda self: self.weight.data.fill_(float("nan")))
    assert "training step" in failing(run, capsys)
