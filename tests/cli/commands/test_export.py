"""graphbench export: the files load, predict the same, and describe the model."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest
import torch
import yaml
from command_line import graphbench as run_graphbench
from hub import Hub

import graphbench
from graphbench import benchmarks
from graphbench.cli import main
from graphbench.errors import BadInput
from graphbench.inference.exporting import card
from graphbench.inference.exporting.onnx_file import session
from graphbench.runs import RunFolder
from graphbench.runs.checkpoints import load_checkpoint
from graphbench.runs.tables import show_number
from graphbench.runs.weights import read_weights, same_weights
from graphbench.testing import encode

SMILES = ["CCO", "c1ccccc1O", "CC(=O)N"]


@pytest.fixture(scope="module")
def exported(finished_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "model"
    assert main(["export", "--run", str(finished_run), "--output", str(folder), "--format", "torch"]) == 0
    return folder


def test_weights_are_those_of_the_best_checkpoint_bit_for_bit(finished_run, exported):
    best = load_checkpoint(finished_run / "checkpoints" / "best.ckpt")["state_dict"]
    assert same_weights(read_weights(exported / "model.safetensors"), best)


def test_an_exported_folder_predicts_as_its_run_does(finished_run, exported):
    expected = graphbench.load(finished_run).predict(SMILES)
    assert graphbench.load(exported).predict(SMILES).equals(expected)
    assert graphbench.load(exported / "model.safetensors").predict(SMILES).equals(expected)


def test_commands_take_an_exported_folder_as_a_run(exported, tmp_path):
    (tmp_path / "new.smi").write_text("\n".join(SMILES))
    output = tmp_path / "out.csv"
    assert main(["predict", "--run", str(exported), "--input", str(tmp_path / "new.smi"), "--output", str(output)]) == 0
    assert len(output.read_text().splitlines()) == 4


def test_an_exported_folder_is_scored_as_its_run_was(finished_run, exported, data_options, tmp_path, capsys):
    folder = shutil.copytree(exported, tmp_path / "copy")
    assert main(["validate", "--run", str(folder), *data_options[2:]]) == 0
    stored = json.loads((finished_run / "results.json").read_text())["val"]["val/MAE"]
    assert show_number(stored) in capsys.readouterr().out


@pytest.mark.slow
def test_the_program_answers_as_the_run_does_without_graphbench(finished_run, exported):
    predictor = graphbench.load(finished_run)
    (part,) = predictor.data.read_objects(SMILES)
    table = part.table.slice(0, 3)
    for encoding in predictor.module.required_encodings():
        encoded = encoding.compute(table)
        table = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    batch = table.batch([0, 1, 2])
    told = json.loads((exported / "inputs.json").read_text())
    found = torch.export.load(exported / "model.pt2").module()({name: batch[name] for name in told["inputs"]})
    assert told["outputs"] == ["length"]
    expected = torch.from_numpy(predictor.predict(SMILES)["prediction_length"].to_numpy())
    assert torch.allclose(found[:, 0], expected, atol=1e-4)


def snippets(folder):
    """Return the blocks of Python on a model card."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)


@pytest.mark.slow
def test_the_card_says_how_a_program_runs_without_graphbench(exported):
    (_, shown) = snippets(exported)
    told = answered(shown, exported)
    torch.testing.assert_close(torch.tensor(told["predictions"]), torch.tensor(told["example"]))


def answered(shown, folder):
    """Run a card's Python in a process without graphbench and return its predictions."""
    script = "import sys\nsys.modules['graphbench'] = None\n" + shown
    script += "\nprint(json.dumps({'predictions': predictions.tolist(), 'example': description['example']}))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime"))), reason="needs the extra onnx"
)
def test_an_onnx_file_answers_as_the_run_does_by_the_lines_on_its_card(finished_run, tmp_path):
    folder = tmp_path / "model"
    assert main(["export", "--run", str(finished_run), "--output", str(folder), "--format", "onnx"]) == 0
    (_, shown) = snippets(folder)
    assert len([line for line in shown.splitlines() if line and not line.startswith("import")]) <= 5
    told = answered(shown, folder)
    assert torch.tensor(told["predictions"]).shape == (2, 1)
    torch.testing.assert_close(torch.tensor(told["predictions"]), torch.tensor(told["example"]))
    for name in ("model.onnx", "inputs.json"):
        assert f"| `{name}` |" in (folder / "README.md").read_text()
    # the run's molecules in onnxruntime
    predictor = graphbench.load(folder)
    (part,) = predictor.data.read_objects(SMILES)
    table = encode(part.table.slice(0, 3), predictor.module.required_encodings())
    batch = table.batch([0, 1, 2])
    inputs = json.loads((folder / "inputs.json").read_text())["inputs"]
    found = session((folder / "model.onnx").read_bytes())({name: batch[name] for name in inputs})
    expected = torch.from_numpy(graphbench.load(finished_run).predict(SMILES)["prediction_length"].to_numpy())
    torch.testing.assert_close(found[:, 0], expected.to(found.dtype), atol=1e-4, rtol=1e-4)


def test_no_place_of_this_machine_is_in_an_export(finished_run, exported, molecule_file):
    config = yaml.safe_load((exported / "config.yaml").read_text())
    assert config["data"]["init_args"]["file"] == "mine.csv"
    assert config["data"]["init_args"]["root"] == "data"
    assert config["data"]["init_args"]["store"] is None
    for file in exported.iterdir():
        if file.suffix in (".yaml", ".json", ".md"):
            assert str(molecule_file.parent) not in file.read_text(), file.name
            assert str(finished_run.parent) not in file.read_text(), file.name


def test_the_card_states_data_scores_licence_and_parameters(finished_run, exported):
    card = (exported / "README.md").read_text()
    head = yaml.safe_load(card.split("---\n")[1])
    results = json.loads((finished_run / "results.json").read_text())
    assert "license" not in head
    assert "Nobody has stated a licence for the weights" in card
    assert head["tags"] == ["graphbench", "GPS", "Molecules"]
    (metric,) = head["model-index"][0]["results"][0]["metrics"]
    assert metric == {"type": "MAE", "name": "MAE (validation)", "value": results["val"]["val/MAE"]}
    assert f"{results['parameters']:,} trainable parameters" in card
    assert f"| GPS | {show_number(results['val']['val/MAE'])} |" in card.replace(" | ", " | ")
    splits = json.loads((finished_run / "data.json").read_text())["splits"]
    assert f"| graphs, train | {splits['train']['graphs']} |" in card
    assert "| targets | length |" in card
    assert "that of your file" in card
    epoch = load_checkpoint(RunFolder(finished_run).best)["epoch"]  # Lightning counts from 0
    assert f"weights of epoch {epoch + 1})" in card
    for file in exported.iterdir():
        assert file.name == "README.md" or f"| `{file.name}` |" in card


def test_names_of_a_user_are_no_markup_on_the_card(finished_run, monkeypatch):
    """A name adds no tag, no link and no cell of the table."""
    model = graphbench.load(finished_run)
    monkeypatch.setattr(model.data, "target_labels", lambda: ("<img src=x onerror=alert(1)>|[a](b)\n# c",))
    text = card.model_card(model.module, model.data, RunFolder(finished_run), {}, "<b>mine</b>")
    (line,) = (line for line in text.splitlines() if line.startswith("| targets |"))
    assert re.sub(r"\\.", "", line).count("|") == 3
    body = text.split("---\n", 2)[2]
    assert not re.search(r"(?<!\\)[<\[]", body.replace("[graphbench](", "").replace('["', '"'))


def test_a_new_training_starts_from_an_export_with_frozen_parts_and_rates(exported, data_options, tmp_path):
    from command_line import SMALL_MODEL

    folder, source = tmp_path / "tuned", shutil.copytree(exported, tmp_path / "source")
    options = [
        "--model.init_from", str(source), "--model.freeze", "architecture.layers.0*,architecture.node_encoder",
        "--model.learning_rates", "head=1e-2,architecture.layers.1.*=1e-4", "--trainer.max_epochs", "1",
    ]  # fmt: skip
    assert main(["fit", *data_options, *SMALL_MODEL, *options, "--run", str(folder)]) == 0
    before = read_weights(exported / "model.safetensors")
    after = load_checkpoint(folder / "checkpoints" / "last.ckpt")["state_dict"]
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert not any(name.startswith(("architecture.layers.0.", "architecture.node_encoder.")) for name in moved)
    assert any(name.startswith("architecture.layers.1.") for name in moved)
    assert any("task.head" in name for name in moved)
    # It resumes from its checkpoint, even if the weights that it started from are gone.
    shutil.rmtree(source)
    assert main(["fit", "--resume", str(folder), "--trainer.max_epochs", "2"]) == 0


def test_a_part_that_is_not_there_is_one_line_before_anything_runs(data_options, tmp_path, capsys):
    from command_line import SMALL_MODEL

    options = ["--model.freeze", "architecture.layer.0", "--run", str(tmp_path / "run")]
    assert main(["fit", *data_options, *SMALL_MODEL, *options]) == 1
    told = capsys.readouterr().err
    assert "no parameter's name matches 'architecture.layer.0'. Did you mean architecture.layers.0" in told
    assert not (tmp_path / "run").exists()


def test_a_taken_place_and_a_run_without_weights_are_refused(finished_run, exported, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.yaml").write_text("model: {}\n")
    for arguments, told in (
        (["--run", str(finished_run), "--output", str(exported)], "has files already"),
        (["--run", str(tmp_path / "empty"), "--output", str(tmp_path / "out")], "There is no checkpoint"),
        (["--run", str(tmp_path / "nothing"), "--output", str(tmp_path / "out")], "is not the folder of a run"),
    ):
        assert main(["export", *arguments]) == 1
        assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_exported_folder_imports_registered_classes_alone(exported, tmp_path, capsys):
    folder = shutil.copytree(exported, tmp_path / "sent")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["model"]["architecture"]["class_path"] = "subprocess.Popen"
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(BadInput, match=r"names subprocess\.Popen, which is no registered class"):
        graphbench.load(folder)
    assert main(["export", "--run", str(folder), "--output", str(tmp_path / "out")]) == 1
    assert "names subprocess.Popen, which is no registered class" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_card_says_how_to_ask_a_model_of_any_kind():
    for data, said in (
        (benchmarks.NCI(), 'model.predict(["CCO", "c1ccccc1"])'),
        (benchmarks.CSL(), "graphs of PyG or networkx"),
        (benchmarks.Text(), "strings"),
        (benchmarks.Solids(), "arrays [points, 6]"),
        (benchmarks.SequentialImage(), "images of Pillow"),
        (benchmarks.ShapeNetPart(), "graphbench predict --run FOLDER --input FILE_OR_FOLDER"),
    ):
        assert said in card._example(data)


def test_the_card_shows_small_and_large_scores():
    scores = {"val": {"val/MAE": 1.2e-5, "val/RMSE": None}, "baselines": {"mean": {"val": {"val/MAE": 31456.0}}}}
    columns, rows = card._scores("GPS", benchmarks.NCI().spec, scores)
    assert (columns, rows) == (
        ["validation MAE", "validation RMSE"], {"GPS": ["1.200e-05", "-"], "mean": ["3.146e+04", "-"]}
    )  # fmt: skip


PUSHED = ["CCO", "c1ccccc1O", "not a molecule"]
#: Files that must not be fetched: loading them would run code.
PLANTED = {"model.pkl": b"never", "best.ckpt": b"never", "model.py": b"never"}

#: Pushes a run, loads it by name and predicts, then again without a network.
SCRIPT = """
import json, sys
import graphbench
from graphbench.cli import main

run, out = sys.argv[1:]
codes = [main(["push", run, "hf:mine/lengths", "--licence", "mit", "--private"])]
there = graphbench.load("hf:mine/lengths").predict({smiles!r})
here = graphbench.load(run).predict({smiles!r})
import huggingface_hub.constants as constants
constants.HF_HUB_OFFLINE = True
offline = graphbench.load("hf:mine/lengths").predict({smiles!r})
constants.HF_HUB_OFFLINE = False
errors = []
for name in ("hf:mine/nothing", "hf:mine/lengths@v9", "hf:mine"):
    try:
        graphbench.load(name)
    except graphbench.errors.GraphbenchError as error:
        errors.append(str(error))
with open(out, "w") as file:
    json.dump({{"codes": codes, "equal": there.equals(here) and offline.equals(here), "errors": errors,
               "problems": there["problem"].tolist()}}, file)
"""


@pytest.fixture(scope="module")
def pushed(finished_run, tmp_path_factory):
    """Return the stand-in for the Hub after a push, and the answers of the process that pushed."""
    folder = tmp_path_factory.mktemp("hub")
    script, out = folder / "script.py", folder / "out.json"
    script.write_text(SCRIPT.format(smiles=PUSHED))
    with Hub(planted=PLANTED) as hub, pytest.MonkeyPatch.context() as patch:
        for name, value in hub.environment(folder / "cache").items():
            patch.setenv(name, value)
        done = run_graphbench(finished_run, out, script=script)
        yield hub, json.loads(out.read_text()), done


@pytest.mark.slow
def test_a_pushed_run_predicts_by_name_as_it_does_here_and_without_a_network(pushed):
    _, said, _ = pushed
    assert said["codes"] == [0]
    assert said["equal"]
    assert said["problems"][:2] == ["", ""]
    assert said["problems"][2]


def test_one_commit_holds_weights_in_lfs_configuration_and_card(pushed):
    hub, _, done = pushed
    files = hub.models["mine/lengths"]
    assert set(files) - PLANTED.keys() == {
        "model.safetensors",
        "config.yaml",
        "README.md",
        "results.json",
        "training.json",
    }
    assert list(hub.large.values()) == [files["model.safetensors"]]
    assert sum("/commit/" in asked for asked in hub.asked) == 1
    assert hub.private["mine/lengths"]
    assert files["README.md"].decode().startswith("---\nlicense: mit\n")
    assert f"Pushed: {hub.address}/mine/lengths/commit/{hub.commit('mine/lengths')}" in done.stderr + done.stdout


def test_nothing_but_texts_and_safetensors_is_ever_fetched(pushed):
    hub, _, _ = pushed
    fetched = {asked.rpartition("/")[2] for asked in hub.asked if "/resolve/" in asked}
    assert fetched == {"model.safetensors", "config.yaml", "README.md", "results.json", "training.json"}


def test_what_is_not_there_is_one_line(pushed):
    nothing, revision, form = pushed[1]["errors"]
    assert nothing.startswith("hf:mine/nothing cannot be loaded: ")
    assert "hf auth login" in nothing
    assert revision.startswith("hf:mine/lengths@v9 cannot be loaded: ")
    assert "no such revision" in revision
    assert form == "'hf:mine' names no model on the Hugging Face Hub; write hf:owner/name, or with @revision."
    assert all("\n" not in text for text in (nothing, revision, form))


def test_bad_names_and_folders_are_refused_before_anything_is_sent(finished_run, tmp_path, capsys):
    for arguments, told in (
        ([str(finished_run), "mine/lengths"], "names no model on the Hugging Face Hub"),
        ([str(tmp_path), "hf:mine/lengths"], "is not the folder of a run"),
    ):
        assert main(["push", *arguments]) == 1
        assert told in capsys.readouterr().err
