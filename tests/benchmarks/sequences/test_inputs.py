"""New inputs for models of sequences: tables, lines, files, strings and images; also from the command line."""

import gzip
import io
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from command_line import SMALL_MODEL
from PIL import Image

import graphbench
from graphbench.benchmarks.sequences.listops import TOKENS, ListOps
from graphbench.benchmarks.sequences.long_text import FILES, Retrieval, Text
from graphbench.benchmarks.sequences.pathfinder import Pathfinder
from graphbench.benchmarks.sequences.sequential_images import SequentialFashionMNIST, SequentialImage, _tables
from graphbench.benchmarks.superpixels.images import LabelledImages
from graphbench.cli import main
from graphbench.errors import BadInput

WORDS = ("fine", "dull", "a film", "caf\u00e9", "2 hours; too long")


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """Write ten training and six test reviews, four of them with a byte that is not UTF-8."""
    root = tmp_path_factory.mktemp("data")
    for split, count in (("train", 5), ("test", 3)):
        for label in ("neg", "pos"):
            place = root / "Text" / "aclImdb" / split / label
            place.mkdir(parents=True)
            for number in range(count):
                text = f"{split} {label}: {WORDS[number]}, {'very ' * number}long".encode()
                (place / f"{number}_{number}.txt").write_bytes(text + b"\xe9" * (number == 2))
    return root


def test_documents_of_a_folder_are_found_whatever_the_case_of_their_suffix(tmp_path, caplog):
    for name in ("a.txt", "B.TXT", "deeper/c.txt", ".d.txt", "e.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    with caplog.at_level("INFO"):
        (part,) = Text(max_length=20).read_input(str(tmp_path))
    assert part.frame["file"].tolist() == ["B.TXT", "a.txt", "deeper/c.txt"]
    assert bytes(part.table.columns["x"].flatten().tolist()) == b"B.TXTa.txtdeeper/c.txt"
    assert "left out: 1 (.md)" in caplog.text


def test_documents_have_the_class_of_their_folder_as_in_training(reviews, tmp_path):
    (part,) = Text(root=str(reviews)).read_labelled(str(reviews / "Text" / "aclImdb" / "test"))
    assert part.table.columns["y"][:, 0].tolist() == [0, 0, 0, 1, 1, 1]
    for name in ("positive/a.txt", "neg/positive/b.txt", "pos/other/c.txt", "d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("fine")
    (part,) = Text().read_labelled(str(tmp_path))
    found = dict(zip(part.frame["file"], part.table.columns["y"][:, 0].tolist(), strict=True))
    assert found == {"positive/a.txt": 1, "neg/positive/b.txt": 1, "pos/other/c.txt": 1, "d.txt": -1}


@pytest.fixture(scope="module")
def run(reviews, tmp_path_factory):
    """Fit for one epoch and yield the folder of the run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "spec", replace(Text.spec, split_sizes=(10, 6, 6)))
        folder = tmp_path_factory.mktemp("runs") / "texts"
        data = ["--data", "Text", "--data.root", str(reviews), "--data.max_length", "40"]
        assert main(["fit", *data, *SMALL_MODEL, "--trainer.max_epochs", "1", "--run", str(folder)]) == 0
        yield folder


def predicted(run, source, output, *options):
    assert main(["predict", "--run", str(run), "--input", str(source), "--output", str(output), *options]) == 0
    return pd.read_csv(output, keep_default_na=False)


def probabilities(frame):
    return frame[["probability_negative", "probability_positive"]].to_numpy(float)


def test_reviews_of_the_test_split_get_its_predictions(run, reviews, tmp_path):
    assert main(["predict", "--run", str(run), "--output", str(tmp_path / "split.csv")]) == 0
    expected = pd.read_csv(tmp_path / "split.csv").filter(like="probability_").to_numpy()
    found = predicted(run, reviews / "Text" / "aclImdb" / "test", tmp_path / "new.csv")
    assert list(found["file"][:4]) == ["neg/0_0.txt", "neg/1_1.txt", "neg/2_2.txt", "pos/0_0.txt"]
    assert probabilities(found) == pytest.approx(expected, abs=1e-5)
    assert (found["problem"] == "").all()
    assert (found["outside_training"] != "").any()  # letters and lengths that the training reviews do not have


@pytest.mark.slow
def test_tables_lines_and_strings_agree(run, tmp_path, monkeypatch):
    texts = [word for word in WORDS if ";" not in word]
    expected = probabilities(graphbench.load(run, accelerator="cpu").predict(texts))
    pd.DataFrame({"id": range(4), "Text": texts}).to_csv(tmp_path / "a.csv", index=False)
    pd.DataFrame({"review": texts}).to_csv(tmp_path / "b.csv", index=False, sep=";")
    pd.DataFrame({"text": texts, "n": range(4)}).to_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts)))
    for source, options in (
        (tmp_path / "a.csv", []),
        (tmp_path / "b.csv", ["--input-column", "review"]),
        (tmp_path / "c.parquet", []),
        (tmp_path / "d.txt", []),
        ("-", []),
    ):
        found = predicted(run, source, tmp_path / "out.csv", *options)
        assert probabilities(found) == pytest.approx(expected, abs=1e-5), source
    assert list(predicted(run, tmp_path / "a.csv", tmp_path / "out.csv"))[:3] == ["id", "Text", "prediction_class"]


def test_wrong_sources_are_one_line(run, tmp_path, capsys):
    (tmp_path / "a.csv").write_text("txt,n\nfine,1\n")
    (tmp_path / "b.json").write_text("[]")
    (tmp_path / "c.txt").write_text("")
    (tmp_path / "d.csv").write_text('text\nfine\n"dull\n')
    (tmp_path / "e.txt").write_bytes(b"caf\xe9")
    for name, said in (
        ("a.csv", "no column 'text'. Its columns: 'txt', 'n'. Did you mean 'txt'?"),
        ("b.json", "texts are read from .csv, .tsv, "),
        ("c.txt", "it holds no texts"),
        ("d.csv", "a quote that opens on line 3 is not closed"),
        ("e.txt", "not UTF-8 text (byte "),
        ("missing.csv", "there is no such file"),
    ):
        output = tmp_path / "out.csv"
        assert main(["predict", "--run", str(run), "--input", str(tmp_path / name), "--output", str(output)]) == 1
        told = capsys.readouterr().err.strip().splitlines()
        assert len(told) == 1
        assert said in told[0]
        assert not output.exists()


def test_an_empty_text_is_a_problem_of_its_row(run, tmp_path):
    (tmp_path / "a.csv").write_text("text,n\nfine,1\n,2\n")
    found = predicted(run, tmp_path / "a.csv", tmp_path / "out.csv")
    assert list(found["problem"]) == ["", "a text is empty"]
    assert found["prediction_class"][1] == ""


def test_expressions_are_read_as_they_were_sampled(tmp_path):
    data = ListOps(sizes=(20, 4, 4), min_length=3, max_length=40, store=str(tmp_path / "store"))
    data.setup()
    table = data.tables["test"]
    ptr = table.ptr["node"].tolist()
    words = [TOKENS[code] for code in table.columns["x"][:, 0].tolist()]
    texts = [" ".join(words[start:stop]) for start, stop in pairwise(ptr)]
    as_published = ["( " + text.replace(" ]", " ) ]") + " )" for text in texts]  # parentheses carry no information
    pd.DataFrame({"Source": as_published, "Target": 0}).to_csv(tmp_path / "new.tsv", index=False, sep="\t")
    (part,) = data.read_input(str(tmp_path / "new.tsv"))
    for found, expected in ((part.table, table), (next(data.read_objects(texts)).table, table)):
        batch, truth = found.batch(range(4)), expected.batch(range(4))
        assert torch.equal(batch.x, truth.x)
        assert torch.equal(batch.pos, truth.pos)
        assert torch.equal(batch.ptr, truth.ptr)
    (part,) = data.read_objects(["[MAX 1 2 ]", "[ADD 1 2 ]", "( )"])
    assert part.rows == [0]
    assert part.problems[1].startswith("'[ADD' is not a token of ListOps")
    assert part.problems[2] == "there is no token"


def test_what_is_no_whole_expression_is_a_problem_of_its_row(tmp_path):
    (tmp_path / "new.txt").write_text("[MAX 1 2\n[MAX 1 2 ]\n( [MAX 1 ) 2 ) ] )\n[MIN 3 [SM 4 5 ]\n1 ]\n")
    (part,) = ListOps().read_input(str(tmp_path / "new.txt"))
    assert part.rows == [1, 2]
    assert list(part.problems) == [0, 3, 4]
    assert part.problems[0] == "token 1, [MAX, opens a list that no ] closes"


def test_pairs_of_papers_are_read_as_those_of_the_release(tmp_path, monkeypatch):
    monkeypatch.setattr(Retrieval, "spec", replace(Retrieval.spec, split_sizes=(2, 2, 2)))
    (tmp_path / "Retrieval").mkdir()
    pairs = [("first paper", "the second, longer paper"), ("short", "a")]
    for name in FILES.values():
        lines = [f"0.0\tA\tB\t{first}\t{second}\n" for first, second in pairs]
        (tmp_path / "Retrieval" / name).write_text("".join(lines))
    data = Retrieval(max_length=12, root=str(tmp_path))
    data.setup()
    truth = data.tables["test"].batch([0, 1])
    pd.DataFrame(pairs, columns=["first", "second"]).to_csv(tmp_path / "new.csv", index=False)
    for parts in (data.read_input(str(tmp_path / "new.csv")), data.read_objects(pairs)):
        batch = next(parts).table.batch([0, 1])
        assert torch.equal(batch.x, truth.x)
        assert torch.equal(batch.pos, truth.pos)
    for call, said in (
        (lambda: data.read_input("-"), "rows of 2 texts are read from tables"),
        (lambda: data.read_input(str(tmp_path / "new.csv"), "first"), "reads the columns first and second, not one"),
        (lambda: data.read_objects(["one"]), "input 0 is of type str; expected tuples of 2 strings"),
        (lambda: data.read_objects([np.zeros(3)]), "input 0 is of type ndarray"),
    ):
        with pytest.raises(BadInput, match=said):
            list(call())


@pytest.mark.parametrize("bad", range(1, 7))
def test_a_torn_row_anywhere_in_a_chunk_is_a_problem_of_its_row(tmp_path, bad):
    rows = ["fine,1"] * 7
    rows[bad] = "dull,2,3"
    (tmp_path / "texts.csv").write_text("\n".join(["text,n", *rows]))
    parts = list(Text(max_length=12).read_input(str(tmp_path / "texts.csv"), size=3))
    assert [len(part.frame) for part in parts] == [3, 3, 1]
    torn = [3 * number + row for number, part in enumerate(parts) for row in part.problems]
    assert torn == [bad]


#: File name -> function that writes a table of texts in this format.
FORMATS = {
    "a.csv": lambda frame, path: frame.to_csv(path, index=False),
    "a.tsv": lambda frame, path: frame.to_csv(path, index=False, sep=";"),
    "a.tab": lambda frame, path: frame.to_csv(path, index=False, sep="\t", encoding="utf-16"),
    "a.csv.gz": lambda frame, path: frame.to_csv(path, index=False),
    "a.jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
    "a.parquet": lambda frame, path: frame.to_parquet(path, index=False),
    "index.parquet": lambda frame, path: frame.set_index("text").to_parquet(path),
    "a.xlsx": lambda frame, path: frame.to_excel(path, index=False),
    "a.txt": lambda frame, path: path.write_text("\n".join(frame["text"]), encoding="utf-8-sig"),
    "a.txt.gz": lambda frame, path: path.write_bytes(gzip.compress("\n".join(frame["text"]).encode("utf-16"))),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_texts_as_they_are(tmp_path, name):
    if name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    texts = ["fine", " two  blanks ", 'caf\u00e9, or "tea"', "2 hours; too long", "NA"]
    if name.endswith(".xlsx"):
        texts[1] = texts[1].strip()
    frame = pd.DataFrame({"n": range(len(texts)), "text": texts, "note": "x"})
    FORMATS[name](frame, tmp_path / name)
    data = Text(max_length=40)
    found = list(data.read_input(str(tmp_path / name), size=2))
    (expected,) = data.read_objects(texts)
    assert sum(len(part.frame) for part in found) == len(texts)
    assert [part.problems for part in found] == [{}] * 3
    assert torch.equal(torch.cat([part.table.columns["x"] for part in found]), expected.table.columns["x"])


def saved(folder, images):
    folder.mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize(
    ("data", "shape"),
    [
        (SequentialFashionMNIST(), (28, 28)),
        (SequentialImage(), (32, 32, 3)),
        (Pathfinder(image_size=12, path_dashes=2, distractors=0), (12, 12)),
    ],
    ids=["fashion", "cifar", "pathfinder"],
)
def test_pixels_become_the_tokens_of_training(data, shape, tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (3, *shape)).astype(np.uint8)
    folder = saved(tmp_path / "images", images)
    Image.fromarray(images[0][:5]).save(folder / "small.png")
    (folder / "torn.png").write_bytes(b"\x89PNG")
    (part,) = data.read_input(str(folder))
    assert list(part.frame["file"]) == ["0.png", "1.png", "2.png", "small.png", "torn.png"]
    (truth,) = _tables(LabelledImages(images, np.zeros(3)))
    assert (part.table.columns["x"] == truth.columns["x"]).all()
    assert part.table.num_nodes.tolist() == truth.num_nodes.tolist()
    assert part.rows == [0, 1, 2]
    side = shape[0]
    assert part.problems[3] == f"the image has {side} x 5 pixels; expected {side} x {side}"
    assert "cannot be read as an image" in part.problems[4]


def test_one_image_and_nothing_else(tmp_path):
    image = saved(tmp_path / "images", [np.zeros((28, 28), dtype=np.uint8)]) / "0.png"
    data = SequentialFashionMNIST()
    assert len(next(data.read_input(str(image))).table) == 1
    for source, column, said in (
        (tmp_path, None, None),
        (tmp_path / "none", None, "there is no such folder"),
        (image, "smiles", "reads a folder of images, which has no column"),
    ):
        if said is None:
            assert len(next(data.read_input(str(source), column)).frame) == 1
        else:
            with pytest.raises(BadInput, match=said):
                list(data.read_input(str(source), column))
