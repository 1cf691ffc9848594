"""`graphbench reproduce` as users type it; slow tests build and train every recipe."""

from __future__ import annotations

import csv
import json

import pytest
from parsed import model_of

from graphbench.cli import main
from graphbench.cli.commands import reproduce
from graphbench.cli.console import count_parameters
from graphbench.experiments import trainings as experiments
from graphbench.experiments.reproduce.tables import read_table, table_files, tables
from graphbench.experiments.status import read_status

#: The fewest tables with all ways to build a model: options, overlays, a released model, and a second plug-in.
FEW = ("electric-flow/figure-1", "deepgraph/appendix-h", "sfi-former/table-3", "sft/table-4")


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """Record commands instead of running them; each training leaves a score of a half."""
    made = []

    def command(*words):
        made.append(words)
        if words[0] != "fit":
            return
        stored = {"metric": "log_loss", "higher_is_better": False, "data": "generated", "parameters": 9, "epochs": 1,
                  "steps": 2, "val": {"val/log_loss": 0.5}, "test": {"test/log_loss": 0.5}}  # fmt: skip
        folder = tmp_path / "out" / "runs" / words[-1].rpartition("/")[2]
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps(stored))

    monkeypatch.setattr(experiments, "graphbench", command)
    monkeypatch.setattr(reproduce, "visible_gpus", list)
    return made


ASKED = ["reproduce", "electric-flow/figure-1", "--only", "heat-fc", "--columns", "layers-1", "layers-3"]


def test_what_is_missing_is_trained_once_and_the_table_is_written(trained, tmp_path):
    output = ["--output", str(tmp_path / "out"), "--seeds", "2", "--trainer.accelerator=cpu"]
    assert main([*ASKED, *output]) == 0
    fits = [words for words in trained if words[0] == "fit"]
    assert len(fits) == 4
    assert fits[0][:3] == ("fit", "--config", "linear-transformer/electric-flow-figure-1")
    assert {"--trainer.max_steps=3100", "--data.init_args.target=heat", "--trainer.accelerator=cpu"} <= set(fits[0])
    assert main([*ASKED, *output]) == 0
    assert len([words for words in trained if words[0] == "fit"]) == 4
    with (tmp_path / "out" / "electric-flow-figure-1.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["column"], row["obtained"], row["seeds"]) for row in rows] == [
        ("1 layer", "0.5", "2"), ("3 layers", "0.5", "2"),
    ]  # fmt: skip


def test_records_of_finished_runs_are_kept_and_make_a_page(trained, tmp_path):
    kept, page = tmp_path / "records", tmp_path / "RESULTS.md"
    words = ["--output", str(tmp_path / "out"), "--seeds", "2", "--records", str(kept), "--page", str(page)]
    assert main([*ASKED, *words]) == 0
    assert len(list(kept.glob("*.json"))) == 4
    (row,) = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| e^(-0.5 L), FC")]
    assert row.count("0.5000 ± 0.0000 (2 seeds, altered: its configuration is gone)") == 2
    assert "**short**" in row


def test_a_job_that_may_not_train_is_refused(trained, tmp_path, capsys):
    output = ["--output", str(tmp_path / "out"), "--seeds", "2", "--trainer.accelerator=cpu"]
    assert main([*ASKED, *output, "--job", "0", "--no-train"]) == 1
    said = capsys.readouterr().err
    assert "--job 0" in said
    assert "--no-train" in said
    assert not trained


def test_a_job_of_an_array_writes_no_table(trained, tmp_path):
    assert main([*ASKED, "--output", str(tmp_path / "out"), "--seeds", "1", "--job", "1"]) == 0
    assert [word for word in trained[0] if "max_steps" in word] == ["--trainer.max_steps=6100"]
    assert not list((tmp_path / "out").glob("*.csv"))


def test_missing_jobs_are_units_of_a_launcher_and_the_last_one_writes_the_table(trained, tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    launched = []
    monkeypatch.setattr(reproduce, "launch", lambda *arguments: launched.append(arguments) or [])
    options = [
        "--launcher",
        "submitit",
        "--launcher.time",
        "60",
        "--launcher.cluster",
        "local",
        "--launcher.per-task=3",
    ]
    assert main([*ASKED, "--output", str(tmp_path / "out"), *options]) == 1, "nothing has a score"
    assert not trained
    (((stage,), cluster, _, last, _),) = launched
    assert cluster.per_task == 3
    assert len({unit.name for unit in stage}) == 6, "two depths, three seeds as in the paper"
    asked = ("reproduce", *ASKED[1:], "--output", str(tmp_path / "out"))
    assert [unit.words for unit in stage] == [(*asked, "--job", str(number)) for number in range(6)]
    assert last.words == (*asked, "--no-train")


@pytest.fixture
def without_a_model(monkeypatch, tmp_path):
    """Find tables as if there were no model Sequoia."""

    def find(name):
        text = table_files()[name][0].read_text(encoding="utf-8")
        path = tmp_path / "table.yaml"
        path.write_text(text.replace('recipe: "sequences/sequoia-{column}"', "missing: Sequoia"), encoding="utf-8")
        return read_table(path, name)

    monkeypatch.setattr(reproduce, "find_table", find)


@pytest.mark.usefixtures("without_a_model")
def test_without_training_the_table_says_what_is_missing(trained, tmp_path):
    words = ["reproduce", "sft/table-4", "--columns", "listops", "--no-train", "--output", str(tmp_path / "out")]
    assert main(words) == 0
    assert not trained
    text = (tmp_path / "out" / "sft-table-4.md").read_text(encoding="utf-8")
    assert "| Sequoia | 37.70<br>no model |" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sft/table-4"], "--output DIR is missing"),
        ([], "Name a table"),
        (["sft/table-44", "--output", "x"], "Did you mean sft/table-4"),
        (["sft/table-4", "--output", "x", "--only", "sfd"], "--only sfd"),
        (["sft/table-4", "--output", "x", "--sedes", "3"], "--sedes"),
        (["sft/table-4", "--output", "x", "--trainer.max_epoch=3"], "Did you mean --trainer.max_epochs"),
        (["sft/table-4", "--output", "x", "--json"], "--json belongs to --list"),
        (["sft/table-4", "--list", "--only", "bigbird", "--only", "sfd"], "--only sfd"),
        (["sft/table-4", "--output", "x", "--seeds", "0"], "--seeds must be an integer of at least 1"),
        (["sft/table-4", "--output", "x", "--job", "99"], "--job 99: the plan has jobs 0 to 4"),
    ],
)
def test_wrong_options_are_refused_before_anything_runs(words, told, capsys, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 1
    assert told in capsys.readouterr().err
    assert not trained


def test_rows_and_columns_that_are_named_one_by_one_are_all_listed(capsys):
    words = ["--only", "bigbird", "--only", "reformer", "--columns", "listops", "--columns", "text"]
    assert main(["reproduce", "sft/table-4", "--list", "--json", *words]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    cells = [(cell["row"], cell["column"]) for cell in table["cells"]]
    assert cells == [(row, column) for row in ("bigbird", "reformer") for column in ("listops", "text")]


@pytest.mark.slow
def test_the_list_as_json_has_every_value(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    found = {table["name"]: table for table in json.loads(capsys.readouterr().out)}
    assert found["sft/table-4"]["printed"] == 50
    assert sum(len(table["cells"]) for table in found.values()) == sum(len(table.cells) for table in tables().values())


@pytest.mark.usefixtures("without_a_model")
def test_the_list_of_a_prefix_shows_rows_and_ways(capsys):
    assert main(["reproduce", "deepgraph", "--list"]) == 0
    text = capsys.readouterr().out
    assert "deepgraph/table-1: " in text
    assert "san/zinc + san/overlays/zinc-sparse" in text
    assert "deepgraph/zinc + deepgraph/overlays/zinc-24" in text
    assert main(["reproduce", "sft/table-4", "--list"]) == 0
    assert "missing: Sequoia" in capsys.readouterr().out


def _builds(names):
    """Return recipe and options of the models of tables, each once."""
    cells = [cell for name, table in tables().items() if name in names for cell in table.cells if cell.recipe]
    found = {(cell.recipe, cell.options) for cell in cells if cell.way in ("recipe", "count")}
    return sorted(found)


def _parameters(recipe, options):
    configs = [word for name in recipe for word in ("--config", name)]
    return count_parameters(model_of(*configs, *options))


@pytest.mark.parametrize("name", FEW)
def test_a_recipe_of_a_table_builds(name):
    assert _parameters(*_builds([name])[0]) > 0


@pytest.mark.slow
def test_every_recipe_of_every_table_builds():
    for recipe, options in _builds(tables()):
        assert _parameters(recipe, options) > 0, (recipe, options)


@pytest.fixture
def in_this_process(monkeypatch):
    """Run commands in this process, where torch is loaded once."""

    def command(*words):
        if main(list(words)):
            raise experiments.CommandFailed(" ".join(words), 1)

    monkeypatch.setattr(experiments, "graphbench", command)
    monkeypatch.setattr(reproduce, "visible_gpus", list)


def test_a_smoke_test_ends_with_a_validation_score(in_this_process, tmp_path, capsys):
    smoke = ["--scale", "smoke", "--output", str(tmp_path), "--trainer.accelerator=cpu"]
    assert main(["reproduce", "electric-flow/figure-1", "--only", "heat-fc", "--columns", "layers-1", *smoke]) == 0
    (run,) = (config.parent for config in (tmp_path / "runs").glob("*/config.yaml"))
    with (tmp_path / "electric-flow-figure-1.smoke.csv").open(encoding="utf-8") as file:
        (row,) = csv.DictReader(file)
    assert float(row["obtained"]) == pytest.approx(
        json.loads((run / "results.json").read_text())["val"]["val/log_loss"], abs=5e-3
    )
    assert [unit.state for unit in read_status(tmp_path)] == ["done"]


@pytest.mark.slow
def test_every_recipe_of_every_table_trains_a_few_steps(in_this_process, tmp_path):
    """All tables at --scale smoke."""
    assert (
        main(["reproduce", *tables(), "--scale", "smoke", "--output", str(tmp_path), "--trainer.accelerator=cpu"]) == 0
    )
    for name, table in tables().items():
        trained = [cell for cell in table.cells if cell.way == "recipe"]
        scored = [cell for cell in trained if cell.metric.startswith("test/")]
        with (tmp_path / f"{name.replace('/', '-')}.smoke.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert sum(row["way"] == "recipe" and bool(row["obtained"]) for row in rows) >= len(scored), name
