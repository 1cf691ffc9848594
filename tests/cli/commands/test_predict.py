"""`graphbench predict --input` against `predict --split` on the same molecules, and `embed`."""

from __future__ import annotations

import io
import json
import shutil
import weakref

import numpy as np
import pandas as pd
import pytest
import torch
from rdkit import Chem

import graphbench
from graphbench.benchmarks.molecules.chemistry.files import stream_molecules
from graphbench.cli import main
from graphbench.data import progress
from graphbench.data.worker_pool import available_cores
from graphbench.inference import predictor


@pytest.fixture(scope="module")
def known(finished_run, molecule_file, tmp_path_factory):
    """Return the SMILES of the test split with their predictions, in the order of the file."""
    path = tmp_path_factory.mktemp("known") / "test.csv"
    assert main(["predict", "--run", str(finished_run), "--output", str(path)]) == 0
    lines = molecule_file.read_text().splitlines()
    frame = pd.read_csv(path)
    return pd.DataFrame(
        {"smiles": [lines[line - 1].split(",")[0] for line in frame["id"]], "expected": frame["prediction_length"]}
    )


def predicted(run, source, output, *options):
    assert main(["predict", "--run", str(run), "--input", str(source), "--output", str(output), *options]) == 0
    return pd.read_parquet(output) if output.suffix == ".parquet" else pd.read_csv(output)


def as_format(frame, path):
    """Write the molecules in the format of the file's suffix."""
    if path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".smi":
        path.write_text("".join(f"{s} name{i}\n" for i, s in enumerate(frame["smiles"])))
    else:
        with Chem.SDWriter(str(path)) as writer:
            for smiles in frame["smiles"]:
                writer.write(Chem.MolFromSmiles(smiles))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".smi", ".sdf", ".parquet"])
def test_new_files_get_the_predictions_of_the_split(finished_run, known, tmp_path, suffix):
    frame = predicted(finished_run, as_format(known, tmp_path / f"new{suffix}"), tmp_path / "out.csv")
    assert frame["prediction_length"].to_numpy() == pytest.approx(known["expected"].to_numpy(), abs=1e-5)
    assert list(frame.columns[-3:]) == ["prediction_length", "outside_training", "problem"]
    assert frame["problem"].isna().all()


def test_a_list_of_smiles_comes_from_standard_input(finished_run, known, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(known["smiles"]) + "\n"))
    frame = predicted(finished_run, "-", tmp_path / "out.csv")
    assert list(frame["smiles"]) == list(known["smiles"])
    assert frame["prediction_length"].to_numpy() == pytest.approx(known["expected"].to_numpy(), abs=1e-5)


def test_a_pipe_may_stand_on_both_sides(finished_run, known, tmp_path, monkeypatch, capfd):
    smiles = "\n".join(known["smiles"]) + "\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(smiles))
    predicted(finished_run, "-", tmp_path / "out.csv")
    monkeypatch.setattr("sys.stdin", io.StringIO(smiles))
    capfd.readouterr()
    assert main(["predict", "--run", str(finished_run), "--input", "-", "--output", "-"]) == 0
    written = capfd.readouterr()
    assert written.out == (tmp_path / "out.csv").read_text()
    assert f"standard output: {len(known['smiles'])} rows" in written.err


@pytest.mark.parametrize("output", ["out.csv", "parts/"])
def test_rows_are_counted_while_they_are_predicted(finished_run, known, tmp_path, monkeypatch, capsys, output):
    monkeypatch.setattr(progress, "DELAY", -1.0)
    source = as_format(known, tmp_path / "new.csv")
    options = ["--run", str(finished_run), "--input", str(source), "--output", f"{tmp_path}/{output}"]
    assert main(["predict", *options]) == 0
    assert f"Predicting: {len(known)} rows so far" in capsys.readouterr().err


def test_every_row_comes_out_in_order_and_bad_ones_say_why(finished_run, known, tmp_path):
    (tmp_path / "new.csv").write_text(
        f'note,smiles\n"a, b",{known["smiles"][0]}\nring,C1CC\nnothing,\nshort\nhuge,{"C" * 5001}\n'
        f"1.10,{known['smiles'][1]}\n"
    )
    frame = predicted(finished_run, tmp_path / "new.csv", tmp_path / "out.csv").astype(object).fillna("")
    assert list(frame["note"]) == ["a, b", "ring", "nothing", "short", "huge", "1.10"]
    reasons = ["", "RDKit cannot read the molecule", "the molecule has no atoms", "the row has another number of cells"]
    for said, reason in zip(frame["problem"], [*reasons, "the molecule is too large", ""], strict=True):
        assert said.startswith(reason) if reason else said == ""
    assert [value == "" for value in frame["prediction_length"]] == [bool(said) for said in frame["problem"]]
    assert float(frame["prediction_length"].iloc[5]) == pytest.approx(known["expected"][1], abs=1e-5)


def test_predictions_depend_neither_on_parts_nor_on_batch_mates(finished_run, known, tmp_path, monkeypatch):
    source = as_format(known, tmp_path / "new.csv")
    whole = predicted(finished_run, source, tmp_path / "whole.csv")
    benchmark = "graphbench.benchmarks.molecules.base.stream_molecules"
    monkeypatch.setattr(benchmark, lambda source, column, size, wanted: stream_molecules(source, column, 5, wanted))
    parts = predicted(finished_run, source, tmp_path / "parts.parquet", "--data.eval_batch_size", "3")
    assert list(parts["smiles"]) == list(whole["smiles"])
    assert parts["prediction_length"].to_numpy() == pytest.approx(whole["prediction_length"].to_numpy(), abs=1e-5)


def test_a_second_model_answers_beside_the_first(finished_run, known, tmp_path, capsys):
    frame = known.assign(**{"": "", "problem": "mine"})  # a blank name, as spreadsheets export it
    source = as_format(pd.concat([frame, pd.DataFrame({"smiles": ["C1CC"]})], ignore_index=True), tmp_path / "new.csv")
    predicted(finished_run, source, tmp_path / "first.csv")
    second = predicted(finished_run, tmp_path / "first.csv", tmp_path / "second.parquet")
    assert "1 without prediction (column problem_3)" in capsys.readouterr().err
    for name in ("prediction_length_2", "prediction_length_3"):
        given = second[name].iloc[:-1].astype(float).to_numpy()
        assert given == pytest.approx(known["expected"].to_numpy(), abs=1e-5)
    assert second["problem"].tolist() == ["mine"] * len(known) + [""]


def test_what_training_never_saw_is_marked(finished_run, tmp_path):
    facts = json.loads((finished_run / "training.json").read_text())
    most = facts["nodes"][1]
    (tmp_path / "new.smi").write_text(f"CCCCCCCO\nC[Si](C)(C)CCCC\n{'C' * (most + 9)}\n")
    frame = predicted(finished_run, tmp_path / "new.smi", tmp_path / "out.csv").astype(object).fillna("")
    assert frame["outside_training"][0] == ""
    assert "atom type Si" in frame["outside_training"][1]
    assert f"{most + 9} atoms, training had at most {most}" in frame["outside_training"][2]
    assert (frame["prediction_length"] != "").all()


def test_a_moved_run_needs_nothing_else(finished_run, known, tmp_path, monkeypatch):
    shutil.copytree(finished_run, tmp_path / "elsewhere" / "run")
    config = tmp_path / "elsewhere" / "run" / "config.yaml"
    config.write_text(config.read_text().replace("/mine.csv", "/gone.csv"))
    monkeypatch.chdir(tmp_path / "elsewhere")
    frame = predicted("run", as_format(known, tmp_path / "new.csv"), tmp_path / "out.csv")
    assert frame["prediction_length"].to_numpy() == pytest.approx(known["expected"].to_numpy(), abs=1e-5)
    (tmp_path / "elsewhere" / "run" / "training.json").unlink()
    old = predicted("run", tmp_path / "new.csv", tmp_path / "out.csv")
    assert old["outside_training"].isna().all()  # training is unknown; only racemates would be marked


def test_wrong_inputs_are_one_line_and_leave_the_old_output(finished_run, known, tmp_path, capsys):
    source = as_format(known.rename(columns={"smiles": "smile"}), tmp_path / "new.csv")
    output = tmp_path / "out.csv"
    output.write_text("old")

    def refused(*options, source=source, output=output):
        assert main(["predict", "--run", str(finished_run), "--input", str(source), "--output", str(output), *options])
        said = capsys.readouterr().err.strip().splitlines()
        assert len(said) == 1
        assert output.suffix != ".csv" or output.read_text() == "old"
        return said[0]

    assert "no column 'smiles'. Its columns: 'smile', 'expected'. Did you mean 'smile'?" in refused()
    assert "no column 'Smiley'" in refused("--smiles-column", "Smiley")
    assert "exclude each other" in refused("--split", "test")
    assert "must end in .csv or .parquet" in refused(output=tmp_path / "out.xlsx")
    (tmp_path / "photo.png").write_bytes(b"")
    assert "not from a file that ends in '.png'" in refused(source=tmp_path / "photo.png")
    assert "is a folder" in refused(source=tmp_path)
    assert f"Did you mean {source}?" in refused(source=tmp_path / "nwe.csv")
    for name, text in (("empty.csv", ""), ("header.csv", "smiles,a\n"), ("empty.smi", "\n\n")):
        (tmp_path / name).write_text(text)
        assert "no molecules" in refused(source=tmp_path / name)
    late = "smiles\n" + "CCO\n" * 3000
    (tmp_path / "late.csv").write_bytes(late.encode() + b"\xff\n")
    assert "not UTF-8 text" in refused(source=tmp_path / "late.csv")
    assert main(["predict", "--run", str(finished_run), "--input", str(source)]) == 1
    assert "--output is missing" in capsys.readouterr().err
    assert main(["predict", "--run", str(finished_run), "--smiles-column", "s"]) == 1
    assert "--input FILE, which is missing" in capsys.readouterr().err


def test_other_columns_of_smiles_and_lent_memory(finished_run, known, tmp_path, monkeypatch):
    """A batch that does not fit into memory is halved; one graph that does not fit is a problem of its row."""
    largest = max(range(len(known)), key=lambda row: Chem.MolFromSmiles(known["smiles"][row]).GetNumAtoms())
    limit = Chem.MolFromSmiles(known["smiles"][largest]).GetNumAtoms()
    forward = predictor.Predictor._forward

    def short_of_memory(self, batch, answer):
        if batch.num_nodes >= limit:
            raise MemoryError
        return forward(self, batch, answer)

    monkeypatch.setattr(predictor.Predictor, "_forward", short_of_memory)
    source = as_format(known.rename(columns={"smiles": "structure"}), tmp_path / "new.csv")
    frame = (
        predicted(finished_run, source, tmp_path / "out.csv", "--smiles-column", "structure").astype(object).fillna("")
    )
    assert frame["problem"][largest] == f"too large for the memory of cpu: {limit} nodes"
    small = [row for row in range(len(known)) if frame["problem"][row] == ""]
    assert len(small) >= len(known) // 2
    given = frame["prediction_length"].iloc[small].astype(float).to_numpy()
    assert given == pytest.approx(known["expected"].iloc[small].to_numpy(), abs=1e-5)


@pytest.mark.slow
def test_of_a_long_file_a_few_parts_are_in_memory(finished_run, known, tmp_path, monkeypatch):
    """The parts of the input are released, so a file may be larger than memory."""
    source = as_format(pd.concat([known] * 20, ignore_index=True), tmp_path / "new.csv")
    benchmark = "graphbench.benchmarks.molecules.base.stream_molecules"
    alive: list[weakref.ref[pd.DataFrame]] = []
    most, parts = 0, 0

    def noted(source, column, size, wanted):
        nonlocal most, parts
        for part in stream_molecules(source, column, 2):
            alive[:] = [reference for reference in alive if reference() is not None]
            alive.append(weakref.ref(part.frame))
            most, parts = max(most, len(alive)), parts + 1
            yield part

    monkeypatch.setattr(benchmark, noted)
    frame = predicted(finished_run, source, tmp_path / "out.csv")
    assert len(frame) == 20 * len(known)
    assert parts >= 10 * len(known)
    ahead = 2 * available_cores() if available_cores() > 1 else 0  # those that other processes work on
    assert most <= ahead + 6
    assert most < parts / 4


def embedded(run, output, *options):
    assert main(["embed", "--run", str(run), "--output", str(output), *options]) == 0
    return pd.read_parquet(output) if output.suffix == ".parquet" else pd.read_csv(output)


def values(frame):
    return frame[[name for name in frame if name.startswith("embedding_")]].to_numpy(dtype=np.float32, copy=True)


def test_the_head_of_the_model_makes_the_predictions_of_them(finished_run, tmp_path):
    frame = embedded(finished_run, tmp_path / "graphs.parquet")
    assert main(["predict", "--run", str(finished_run), "--output", str(tmp_path / "test.csv")]) == 0
    expected = pd.read_csv(tmp_path / "test.csv")
    assert frame["id"].astype(int).tolist() == expected["id"].tolist()
    task = graphbench.load(finished_run, accelerator="cpu").module.task
    with torch.no_grad():
        head = task.head.mlp(torch.from_numpy(values(frame)))[:, 0] * task.scale + task.offset
    assert head.numpy() == pytest.approx(expected["prediction_length"].to_numpy(), rel=1e-5)


def test_nodes_average_to_their_graph_and_inputs_to_those_of_the_split(finished_run, molecule_file, tmp_path):
    graphs = embedded(finished_run, tmp_path / "graphs.parquet", "--split", "val")
    nodes = embedded(finished_run, tmp_path / "nodes.csv", "--split", "val", "--level", "node")
    assert (nodes["problem"].isna()).all()
    means = nodes.groupby("id", sort=False)[[n for n in nodes if n.startswith("embedding_")]].mean()
    assert means.to_numpy() == pytest.approx(values(graphs), abs=1e-5)
    lines = molecule_file.read_text().splitlines()
    (tmp_path / "new.smi").write_text("".join(lines[int(n) - 1].split(",")[0] + "\n" for n in graphs["id"]) + "C1CC\n")
    new = embedded(finished_run, tmp_path / "new.parquet", "--input", str(tmp_path / "new.smi"))
    assert values(new)[:-1] == pytest.approx(values(graphs), abs=1e-5)
    assert new["problem"].iloc[-1].startswith("RDKit cannot read the molecule")
    assert np.isnan(values(new)[-1]).all()


def test_wrong_requests_are_one_line(finished_run, tmp_path, capsys):
    output = ["--output", str(tmp_path / "e.parquet")]
    for options, said in (
        ([*output, "--level", "edge"], "--level must be one of graph, node"),
        ([], "--output is missing"),
        ([*output, "--split", "holdout"], "--split must be one of train, val, test"),
        ([*output, "--input", "a.smi", "--split", "test"], "exclude each other"),
        ([*output, "--smiles-column", "s"], "--input FILE, which is missing"),
        ([*output, "--input", str(tmp_path / "no.smi")], "there is no such file"),
        ([*output, "--trainer.callbacks+=AttentionMaps"], "--trainer.callbacks: no callback runs here"),
        (
            [*output, "--input", "a.smi", "--trainer.callbacks+=AttentionMaps"],
            "--trainer.callbacks: no callback runs here",
        ),
    ):
        assert main(["embed", "--run", str(finished_run), *options]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert said in told[0]


def test_other_data_than_those_of_the_fit_are_refused(finished_run, molecule_file, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("".join(molecule_file.read_text().splitlines(keepends=True)[:80]))
    options = ["--data.file", str(tmp_path / "other.csv"), "--output", str(tmp_path / "e.parquet")]
    assert main(["embed", "--run", str(finished_run), *options]) == 1
    assert "The data are not those" in capsys.readouterr().err
    assert main(["embed", "--run", str(finished_run), *options, "--data-changed", "accept"]) == 0


@pytest.mark.parametrize("split", ["test", "val"])
def test_predictions_of_other_weights_do_not_take_the_place_of_the_run_s(split, finished_run, tmp_path, capsys):
    run, other = shutil.copytree(finished_run, tmp_path / "run"), tmp_path / "other.ckpt"
    shutil.copy(run / "checkpoints" / "best.ckpt", other)
    options = ["predict", "--run", str(run), "--split", split, "--checkpoint"]
    own = run / f"predictions-{split}.csv"
    assert main([*options, str(run / "checkpoints" / "best.ckpt")]) == 0
    before, _ = own.read_bytes(), capsys.readouterr()
    for output in ([], ["--output", str(own)]):
        assert main([*options, str(other), *output]) == 1
        said = capsys.readouterr().err
        assert "--output" in said
        assert str(other) in said
    assert own.read_bytes() == before
    assert main([*options, str(other), "--output", str(tmp_path / "p.csv")]) == 0
    assert (tmp_path / "p.csv").read_bytes() == before
