"""graphbench push and graphbench.load("hf:..."), by the Hub's own client, against a stand-in on this machine."""

import json

import pytest
from command_line import graphbench
from hub import Hub

from graphbench.cli import main

SMILES = ["CCO", "c1ccccc1O", "not a molecule"]
#: What nobody may fetch: loading it would run it.
PLANTED = {"model.pkl": b"never", "best.ckpt": b"never", "model.py": b"never"}

#: What one process does: push a run, load it by name and predict, then again without a network.
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
    """The stand-in after a push, and what the process that pushed said."""
    folder = tmp_path_factory.mktemp("hub")
    script, out = folder / "script.py", folder / "out.json"
    script.write_text(SCRIPT.format(smiles=SMILES))
    with Hub(planted=PLANTED) as hub, pytest.MonkeyPatch.context() as patch:
        for name, value in hub.environment(folder / "cache").items():
            patch.setenv(name, value)
        done = graphbench(finished_run, out, script=script)
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
