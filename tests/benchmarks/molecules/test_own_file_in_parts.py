"""A file of molecules read in parts gives the bytes of reading it whole; an interruption loses one part."""

import pytest
from ring_molecules import SMILES

from graphbench.benchmarks.molecules.chemistry import reading
from graphbench.benchmarks.molecules.own_file import Molecules
from graphbench.data.parts import kept
from graphbench.data.parts.shares import Share

# -- parts -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def marred(tmp_path):
    """Write a file with weights, some rows that cannot be used, some repeats and some bounds."""
    rows = ["smiles,value,w"]
    for number, smiles in enumerate([*SMILES, "C1CC", *SMILES[:7], "CC(C)", "N" * 70]):
        value = "low" if number == 11 else f">{number}" if number % 5 == 0 else number / 3
        rows.append(f"{smiles},{value},{1 + number % 3}")
    path = tmp_path / "marred.csv"
    path.write_text("\n".join(rows))
    return path


def arrays_of(store):
    """Return name -> bytes of the arrays of the only table in a store."""
    (folder,) = store.glob("table-*")
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


@pytest.mark.parametrize(
    "options", [{}, {"split": "scaffold"}, {"target": "penalized_logp"}, {"folds": 3, "fold": 1, "repeats": "apart"}]
)
def test_shares_of_a_file_in_parts_give_the_bits_of_reading_it_whole(marred, tmp_path, monkeypatch, options):
    def molecules(store, **further):
        chosen = {"target": "value", "weight": "w", "on_error": "skip", **options, **further}
        return Molecules(str(marred), store=str(tmp_path / store), **chosen)

    molecules("whole").prepare_data()
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    read, read_chunk = [], reading.read_chunk
    monkeypatch.setattr(reading, "read_chunk", lambda recipe, chunk: read.extend(chunk[1]) or read_chunk(recipe, chunk))
    assert molecules("shared").prepare_share(Share(2, 2)) == 3
    assert molecules("shared").prepare_share(Share(1, 2)) == 0
    shared = molecules("shared")
    shared.prepare_data()
    assert len(read) == len(SMILES) + 10, "every molecule once"
    assert arrays_of(tmp_path / "shared") == arrays_of(tmp_path / "whole")
    assert bool(list((tmp_path / "shared" / "parts").iterdir())) == ("folds" in options)  # the other folds need them
    molecules("alone").prepare_data()
    assert arrays_of(tmp_path / "alone") == arrays_of(tmp_path / "whole")


def test_a_reading_that_is_cut_off_loses_the_part_it_is_in(file, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    read, read_chunk = [], reading.read_chunk

    def cut_off(recipe, chunk):
        read.append(chunk[0])
        if read == [0, 8, 16]:
            raise KeyboardInterrupt
        return read_chunk(recipe, chunk)

    monkeypatch.setattr(reading, "read_chunk", cut_off)
    with pytest.raises(KeyboardInterrupt):
        Molecules(str(file), "value", store=str(tmp_path / "store")).prepare_data()
    Molecules(str(file), "value", store=str(tmp_path / "store")).prepare_data()
    assert read == [0, 8, 16, 16, 24]


def test_folds_share_the_reading_of_their_molecules(file, tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    read, plain = [], reading.read_chunk
    monkeypatch.setattr(reading, "read_chunk", lambda recipe, chunk: read.append(chunk[0]) or plain(recipe, chunk))
    for fold in (2, 0, 1):
        assert read == ([] if fold == 2 else [0, 8, 16, 24])
        Molecules(str(file), "value", folds=3, fold=fold, store=str(tmp_path / "store")).prepare_data()
    assert not list((tmp_path / "store" / "parts").iterdir())


def test_parts_stay_while_another_process_adds_to_them(file, tmp_path, monkeypatch):
    def molecules(seed):
        return Molecules(str(file), "value", split_seed=seed, store=str(tmp_path / "store"))

    molecules(0).prepare_data()
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    read, read_chunk = [], reading.read_chunk

    def beside(recipe, chunk):
        read.append(chunk[0])
        molecules(0).prepare_data()  # as `test` of a run on the same file
        return read_chunk(recipe, chunk)

    monkeypatch.setattr(reading, "read_chunk", beside)
    molecules(1).prepare_data()
    assert read == [0, 8, 16, 24]
    assert not list((tmp_path / "store" / "parts").iterdir())


def test_several_files_in_parts_are_one_training_set(file, marred, tmp_path, monkeypatch):
    def stored(name):
        options = {"split": "random", "on_error": "skip", "test_file": str(file), "fractions": (0.8, 0.2, 0.0)}
        benchmark = Molecules([str(marred)], "value", store=str(tmp_path / name), **options)
        benchmark.prepare_data()
        return arrays_of(tmp_path / name)

    whole = stored("whole")
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    assert stored("parts") == whole


@pytest.mark.parametrize("options", [{}, {"split": "scaffold", "id_column": "w"}])
def test_two_training_files_are_joined_on_the_disk_as_in_memory(file, marred, tmp_path, monkeypatch, options):
    # Targets of one file need float64, and some of the other are bounds.
    lines = "".join(f"{smiles},{number + 1e-9},1\n" for number, smiles in enumerate(SMILES))
    (tmp_path / "fine.csv").write_text(f"smiles,value,w\n{lines}")
    if not options:
        options = {"test_file": str(file), "fractions": (0.8, 0.2, 0.0)}

    def stored(name):
        files = [str(marred), str(tmp_path / "fine.csv")]
        benchmark = Molecules(files, "value", store=str(tmp_path / name), on_error="skip", **options)
        benchmark.prepare_data()
        return arrays_of(tmp_path / name)

    whole = stored("whole")
    monkeypatch.setattr(kept, "PART_ROWS", 8)
    assert stored("parts") == whole
    assert not list((tmp_path / "parts" / "parts").iterdir())
