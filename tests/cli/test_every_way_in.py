"""A folder from someone else: every spelling that might import code, in every command, in one warm process."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import yaml
from command_line import SMALL_MODEL, graphbench

import graphbench as package
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.registry.importing import import_object, limited_to
from graphbench.runs.trust import Policy


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Train a run of `Graphs`, whose source may name a function."""
    folder = tmp_path_factory.mktemp("base")
    lines = [
        {"num_nodes": n, "nodes": {"x": [[float(j)] for j in range(n)]}, "edges": [[j, j + 1] for j in range(n - 1)]}
        for n in (4, 5, 6, 7, 8) * 6
    ]
    text = "".join(json.dumps(line | {"y": float(line["num_nodes"])}) + "\n" for line in lines)
    (folder / "g.jsonl").write_text(text)
    data = ["--data", "Graphs", "--data.source", str(folder / "g.jsonl"), "--data.task", "graph-regression"]
    data += ["--data.target", "y", "--data.store", str(folder / "store"), "--data.root", str(folder / "data")]
    short = ["--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1"]
    assert main(["fit", *data, *SMALL_MODEL, *short, "--run", str(folder / "run")]) == 0
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Change to a folder with modules that would leave a canary."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    for name in ("hostile", "émodule"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'canary')!r}, 'w')\ndef load(**k): return []\n")
    return tmp_path


def system(place):
    return {"source": "os:system", "arguments": {"command": f"touch {place / 'canary'}"}}


def nested(config, run, place):
    config["data"]["init_args"] |= system(place)


def as_json(config, run, place):
    config["data"]["init_args"] |= system(place)
    config["data"] = json.dumps(config["data"])


def json_of_arguments(config, run, place):
    config["data"]["init_args"] = json.dumps(config["data"]["init_args"] | system(place))


def dotted(config, run, place):
    data = config.pop("data")
    config["data.class_path"] = data["class_path"]
    config |= {f"data.init_args.{name}": value for name, value in (data["init_args"] | system(place)).items()}


def dotted_beside(config, run, place):
    config |= {f"data.init_args.{name}": value for name, value in system(place).items()}


def dotted_inside(config, run, place):
    del config["data"]["init_args"]["source"]
    config["data"] |= {f"init_args.{name}": value for name, value in system(place).items()}


def dotted_deeper(config, run, place):
    config["data"]["init_args"]["arguments.command"] = f"touch {place / 'canary'}"
    config["data"]["init_args"]["source"] = "os:system"


def referenced(config, run, place):
    (run / "data.yaml").write_text(yaml.safe_dump(config["data"] | {"init_args": system(place)}))
    config["data"] = str(run / "data.yaml")


def referenced_beside(config, run, place):
    (run / "data.yaml").write_text(yaml.safe_dump(config["data"] | {"init_args": system(place)}))
    config["data"] = "data.yaml"


def referenced_arguments(config, run, place):
    (run / "init.yaml").write_text(yaml.safe_dump(config["data"]["init_args"] | system(place)))
    config["data"]["init_args"] = str(run / "init.yaml")


def referenced_list(config, run, place):
    (run / "callbacks.yaml").write_text("- class_path: hostile.Callback\n")
    config["trainer"]["callbacks"] = str(run / "callbacks.yaml")


def another_config(config, run, place):
    (run / "more.yaml").write_text(yaml.safe_dump({"data": config["data"] | {"init_args": system(place)}}))
    config["config"] = [str(run / "more.yaml")]


def class_in_a_list(config, run, place):
    config["trainer"]["callbacks"] = [{"class_path": "hostile.Callback"}]


def class_of_data(config, run, place):
    config["data"]["class_path"] = "hostile.load"


def class_as_any(config, run, place):
    config["data"]["init_args"]["arguments"] = {"x": {"class_path": "hostile.load"}}


def metric(config, run, place):
    config["model"]["metrics"] = ["hostile.load"]


def optimizer(config, run, place):
    config["model"]["optimizer"] = "hostile.load"


def function(config, run, place):
    config["data"]["init_args"]["source"] = "hostile:load"


def function_through_a_listed_module(config, run, place):
    config["data"]["init_args"] |= system(place) | {"source": "torchmetrics.utilities.imports:sys.modules"}


def foreign_letters(config, run, place):
    config["data"]["init_args"]["source"] = "émodule:load"


def pyg(config, run, place):
    raw = run / "data" / "CornellTemporalHyperGraphDataset" / "email-Eu" / "transductive" / "raw"
    raw.mkdir(parents=True)
    for split in ("train", "val", "test"):
        touch = f"(__import__('os').system('touch {place / 'canary'}'), [0, 1])[1]"
        (raw / f"{split}_df.csv").write_text(f'nodes,timestamp\n"{touch}",1.0\n')
    config["data"]["init_args"] |= {
        "source": "CornellTemporalHyperGraphDataset:email-Eu", "root": str(run / "data")
    }  # fmt: skip


def pyg_argument(config, run, place):
    config["data"]["init_args"]["source"] = "TUDataset:../../elsewhere"


def library(config, run, place):
    config["data"]["init_args"]["source"] = "graphbench-lib:set"


SPELLINGS = [
    nested, as_json, json_of_arguments, dotted, dotted_beside, dotted_inside, dotted_deeper, referenced,
    referenced_beside, referenced_arguments, referenced_list, another_config, class_in_a_list, class_of_data,
    class_as_any, metric, optimizer, function, function_through_a_listed_module, foreign_letters, pyg, pyg_argument,
    library,
]  # fmt: skip
#: Commands that read everything from the run; only `report` does not fail.
COMMANDS = {
    "params": ["params", "--run"],
    "prepare": ["prepare", "--run"],
    "profile": ["profile", "--run"],
    "validate": ["validate", "--run"],
    "test": ["test", "--run"],
    "resume": ["fit", "--trainer.max_epochs", "2", "--resume"],
    "if-exists": ["fit", "--if-exists", "resume", "--run"],
    "predict": ["predict", "--input", "g.jsonl", "--output", "o.csv", "--run"],
    "embed": ["embed", "--output", "o.csv", "--run"],
    "explain": ["explain", "--rows", "0", "--output", "explained", "--run"],
    "export": ["export", "--output", "exported", "--run"],
    "push": ["push", "--to", "hf:mine/model", "--run"],
    "report": ["report", "--output", "page"],
}
#: One spelling for each way to an import: all commands try them.
FOR_ALL = [nested, dotted_inside, referenced, metric, function, pyg]


def sent(base, place, spelling):
    """Return a copy of the run with a hostile spelling."""
    run = place / "sent"
    shutil.copytree(base / "run", run)
    shutil.copy(base / "g.jsonl", place)
    config = yaml.safe_load((run / "config.yaml").read_text())
    spelling(config, run, place)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return run


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.__name__)
def test_no_spelling_is_a_way_in(base, place, capsys, spelling):
    run = sent(base, place, spelling)
    assert main(["params", "--run", str(run)]) == 1
    said = capsys.readouterr().err
    assert str(run / "config.yaml") in said
    assert "--trust" in said
    assert "Traceback" not in said
    if spelling in (referenced_list, class_in_a_list):
        package.load(run)  # it reads only the trainer's precision
    else:
        with pytest.raises((BadInput, package.errors.CorruptData)) as refused:
            package.load(run)
        assert "\n" not in str(refused.value).strip()
    assert not (place / "canary").exists()


@pytest.mark.parametrize("spelling", FOR_ALL, ids=lambda spelling: spelling.__name__)
def test_no_command_is_a_way_in(base, place, capsys, spelling):
    run = sent(base, place, spelling)
    for name, command in COMMANDS.items():
        code = main([*command, str(run)])
        said = capsys.readouterr().err
        assert code == (0 if name == "report" else 1), f"{name}: {said}"
        assert "Traceback" not in said, name
        assert not (place / "canary").exists(), name


@pytest.mark.parametrize("spelling", [nested, dotted_inside, class_as_any, pyg], ids=lambda spelling: spelling.__name__)
def test_a_model_of_the_hub_is_no_way_in(base, place, monkeypatch, spelling):
    pytest.importorskip("huggingface_hub")
    assert main(["export", "--run", str(base / "run"), "--output", str(place / "exported")]) == 0
    config = yaml.safe_load((place / "exported" / "config.yaml").read_text())
    spelling(config, place, place)
    (place / "exported" / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(BadInput, match="trust=True"):
        package.load(place / "exported")
    from graphbench.runs import hub

    monkeypatch.setattr(hub, "_client", lambda purpose: type("Client", (), {
        "snapshot_download": staticmethod(lambda *args, **options: str(place / "exported"))}))  # fmt: skip
    with pytest.raises(BadInput, match="trust=True"):
        package.load("hf:mine/model")
    assert not (place / "canary").exists()


def test_the_environment_is_no_way_round(base, place, monkeypatch, capsys):
    run = sent(base, place, function)
    monkeypatch.setenv("JSONARGPARSE_DEFAULT_ENV", "true")
    prefixes = ("GRAPHBENCH", "PYTEST", "__MAIN__", "PL")
    for name in prefixes:
        monkeypatch.setenv(f"{name}_TRAINER__CALLBACKS", "[{class_path: hostile.Callback}]")
    assert main(["params", "--run", str(run)]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (place / "canary").exists()


def test_what_the_command_line_names_is_its_users(base, place, capsys):
    run = place / "run"
    shutil.copytree(base / "run", run)
    (place / "mine.py").write_text("import pytorch_lightning as pl\nclass Watch(pl.Callback):\n    pass\n")
    import sys

    sys.path.append(str(place))
    try:
        assert main(["params", "--run", str(run), "--trainer.callbacks+=mine.Watch"]) == 0, capsys.readouterr().err
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("mine", None)


def test_the_name_of_the_folder_admits_nothing(base, place, capsys):
    run = sent(base, place, nested)
    os.rename(run, place / "os.system")  # noqa: PTH104
    assert main(["params", "--run", "os.system"]) == 1
    assert main(["params", "--run", "os.system", "--data.root", "os.system"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (place / "canary").exists()


def test_in_a_process_of_its_own(base, place):
    run = sent(base, place, dotted_inside)
    assert "--trust" in graphbench("params", "--run", run, check=False).stderr
    assert not (place / "canary").exists()


def test_an_admitted_module_admits_what_is_defined_in_admitted_ones(tmp_path):
    with limited_to(Policy(tmp_path / "config.yaml")):
        for module, name in (("torchmetrics", "MeanSquaredError"), ("torchmetrics.functional", "mean_squared_error")):
            assert callable(import_object(module, name))
        for name in ("os", "os.system", "partial", "sys"):
            with pytest.raises(BadInput, match=r"config\.yaml names"):
                import_object("torchmetrics.utilities.checks", name)
