"""`graphbench predict --output DIR/` as users type it: kills, shares and resumes, against one file and one call."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter

import pandas as pd
import pytest
from forked import forked, start, wait

from graphbench.benchmarks.molecules import base as molecules
from graphbench.benchmarks.molecules.chemistry.files import stream_molecules
from graphbench.cli import main
from graphbench.inference.parts import PartsFolder


@pytest.fixture
def known(molecule_file):
    """Return 24 molecules."""
    return pd.read_csv(molecule_file)[["smiles"]].iloc[:24]


def written(folder):
    """Return the files of a table in parts, without locks and half-written files."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def in_parts(run, source, folder, *options):
    return [
        "predict",
        "--run",
        run,
        "--input",
        source,
        "--output",
        f"{folder}/",
        *([] if "--part-rows" in options else ["--part-rows", "10"]),
        *options,
    ]


@pytest.fixture
def blocks_of_five(monkeypatch):
    """Read files of molecules five rows at a time, so that a short one has many parts."""
    benchmark = "graphbench.benchmarks.molecules.base.stream_molecules"
    monkeypatch.setattr(benchmark, lambda source, column, size, wanted: stream_molecules(source, column, 5, wanted))


@pytest.fixture
def long_file(known, tmp_path):
    """Write a table of molecules, one of them unreadable."""
    frame = pd.concat([known, pd.DataFrame({"smiles": ["C1CC"]}), known], ignore_index=True)
    frame["number"] = range(len(frame))
    frame.to_csv(tmp_path / "long.csv", index=False)
    return tmp_path / "long.csv"


def test_parts_are_the_table_of_one_file(finished_run, long_file, tmp_path, blocks_of_five, capsys):
    words = ["predict", "--run", str(finished_run), "--input", str(long_file)]
    assert main([*words, "--output", str(tmp_path / "whole.parquet")]) == 0
    whole = pd.read_parquet(tmp_path / "whole.parquet")
    capsys.readouterr()
    assert main([str(word) for word in in_parts(finished_run, long_file, tmp_path / "parts")]) == 0
    assert f"all 5 parts exist, with {len(whole)} rows, 1 without prediction" in capsys.readouterr().err
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "parts"), whole, check_exact=True)


def test_shares_and_a_crash_give_the_same_bits(finished_run, long_file, tmp_path, blocks_of_five, monkeypatch, capsys):
    """A process stops in its second part, then ranks of a launcher resume: they read only the missing parts."""

    def command(name, *options):
        return main([str(word) for word in in_parts(finished_run, long_file, tmp_path / name, *options)])

    assert command("whole") == 0
    commit, reader = PartsFolder._commit, molecules.read_chunk
    read = []

    def crash(self, number, tables, part):
        if number == 1:
            raise KeyboardInterrupt
        commit(self, number, tables, part)

    monkeypatch.setattr(molecules, "available_cores", lambda: 1)
    monkeypatch.setattr(molecules, "read_chunk", lambda recipe, chunk: read.extend(chunk[1]) or reader(recipe, chunk))
    monkeypatch.setattr(PartsFolder, "_commit", crash)
    assert command("torn") == 130
    monkeypatch.setattr(PartsFolder, "_commit", commit)
    assert command("torn") == 1
    assert "1 parts of this share exist. Continue with --if-exists resume" in capsys.readouterr().err
    assert command("torn", "--if-exists", "resume", "--calibrate") == 1
    read.clear()
    for rank in (1, 0):
        with monkeypatch.context() as patch:
            patch.setenv("RANK", str(rank))
            patch.setenv("WORLD_SIZE", "2")
            assert command("torn", "--if-exists", "resume", "--part", "auto") == 0
    assert written(tmp_path / "torn") == written(tmp_path / "whole")
    smiles = pd.read_csv(long_file)["smiles"].tolist()
    assert Counter(read) == Counter(smiles[10:])


@pytest.mark.slow
def test_parts_of_another_model_or_input_are_refused(finished_run, long_file, known, tmp_path, capsys):
    def refused(*words):
        assert main([str(word) for word in words]) == 1
        return capsys.readouterr().err.strip().splitlines()[-1]

    resumed = ["--if-exists", "resume"]
    begun = in_parts(finished_run, long_file, tmp_path / "parts", "--part-rows", "1024")
    assert main([str(word) for word in begun]) == 0
    capsys.readouterr()
    other = tmp_path / "other.csv"
    known.to_csv(other, index=False)
    words = [other if word == long_file else word for word in begun]
    assert "input.bytes was" in refused(*words, *resumed)
    last = finished_run / "checkpoints" / "last.ckpt"
    assert "models.0.weights was" in refused(*begun, *resumed, "--checkpoint", last)
    assert "options.further.0 was absent" in refused(*begun, *resumed, "--data.eval_batch_size", "3")
    assert "part_rows was 1024, now 2048" in refused(*["2048" if word == "1024" else word for word in begun], *resumed)
    assert "--if-exists resume" in refused(*begun)


def test_options_of_parts_that_do_not_fit_are_one_line(finished_run, tmp_path, capsys):
    def refused(*words):
        assert main(["predict", "--run", str(finished_run), *map(str, words)]) == 1
        return capsys.readouterr().err.strip()

    parts = ["--input", "new.smi", "--output", f"{tmp_path}/parts/"]
    assert "standard input can be read only once" in refused("--input", "-", *parts[2:])
    assert "--part is about a folder of parts" in refused(*parts[:3], tmp_path / "out.csv", "--part", "1/2")
    assert "for --input FILE, not for a split" in refused(*parts[2:])
    assert "--part must be a share such as 3/8" in refused(*parts, "--part", "3")
    assert "--part-rows must be an integer of at least 1" in refused(*parts, "--part-rows", "0")
    assert "--if-exists must be one of fail, resume" in refused(*parts, "--if-exists", "replace")
    assert not (tmp_path / "parts").exists()


@pytest.mark.slow
def test_a_process_that_is_killed_at_any_moment_loses_no_row(finished_run, known, tmp_path, blocks_of_five):
    """SIGKILL at twenty random moments: every row is there once, with the bits of an undisturbed prediction."""
    frame = pd.concat([known] * 20, ignore_index=True).assign(number=lambda table: range(len(table)))
    source = tmp_path / "long.csv"
    frame.to_csv(source, index=False)
    begin = time.monotonic()
    assert forked(tmp_path / "out", *in_parts(finished_run, source, tmp_path / "whole")).code == 0
    duration = time.monotonic() - begin
    whole, random_numbers, killed, folder, left = written(tmp_path / "whole"), random.Random(7), 0, 0, []
    assert pd.read_parquet(tmp_path / "whole")["number"].astype(int).tolist() == list(range(len(frame)))
    while killed < 20:
        folder += 1
        for _ in range(5):
            words = in_parts(finished_run, source, tmp_path / str(folder), "--if-exists", "resume")
            child, output = start(tmp_path / "out", *words)
            time.sleep(random_numbers.uniform(0.0, duration))
            os.kill(child, signal.SIGKILL)
            killed += wait(child, output).code == -signal.SIGKILL
            left.append(len(list((tmp_path / str(folder)).glob("part-*"))))
        assert forked(tmp_path / "out", *words).code == 0
        assert written(tmp_path / str(folder)) == whole
    assert any(0 < parts < len(whole) - 2 for parts in left), "some were killed within their parts"
