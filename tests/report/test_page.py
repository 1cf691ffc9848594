"""The page as a reader gets it: complete, self-contained, safe, and no wider than a phone."""

import html
import json
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from chromium import axe_faults, in_scheme, needs_axe, needs_chromium, title_after
from PIL import Image

from graphbench.errors import BadInput
from graphbench.report import write_report

VOID = {"meta", "br", "img", "hr", "link", "input"}


class Page(HTMLParser):
    """Collects elements, their attributes and the text outside style, and checks that elements are nested."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


@pytest.fixture
def write(tmp_path):
    """Return a function that writes a page about runs and returns its text."""

    def write_page(*folders):
        write_report(folders, tmp_path / "report.html")
        return (tmp_path / "report.html").read_text(encoding="utf-8")

    return write_page


@pytest.fixture(scope="module")
def full(runs_in, tmp_path_factory, add_layers, add_predictions):
    """Return a page with every section: three seeds of one model, one run of another."""
    root = tmp_path_factory.mktemp("full")
    make_run = runs_in(root)
    folders = [make_run(f"gps-{seed}", seed=seed, scores=(0.7 + seed / 100, 0.25)) for seed in range(3)]
    long = {"positional_encoders_of_the_architecture": "a" * 60, "other": 1}
    folders.append(make_run("gcn", architecture="GCN", scores=(0.8, 0.95), **long))
    add_layers(folders[0])
    add_layers(folders[0], stem="rank_progression", measures=("effective_rank",))
    add_layers(folders[0], stem="gradients", measures=("gradient_norm", "condition"), base=0.01)
    add_predictions(folders[0], 0.25)
    table = folders[0].path / "predictions-test.csv"
    pd.read_csv(table).assign(smiles="c1cc(Cl)c(S)cc1OCN").to_csv(table, index=False)
    (folders[0].diagnostics / "train_test_gap.csv").write_text(
        "epoch,step,split,measure,train,unseen,gap,stage\n1,10,val,MAE,0.5,0.7,0.2,fit\n2,20,val,MAE,0.4,0.7,0.3,fit\n"
    )
    Image.new("L", (400, 400), 255).save(folders[0].diagnostics / "attention.png")
    write_report(folders, root / "report.html")
    return (root / "report.html").read_text(encoding="utf-8")


def test_all_sections_are_there_in_order(full):
    headings = re.findall(r"<h[12]>(.*?)</h[12]>", full)
    assert headings == [
        "2 models on NCI",
        "Results",
        "Learning curves",
        "Predictions on the test split",
        "Residuals on the test split",
        "Largest errors",
        "What happens with depth",
        "Attention capacity by layer",
        "Gradients and weights by depth",
        "Rank of the node tokens by depth",
        "Gap between training and unseen graphs",
        "Pictures",
        "Configuration",
        "Hardware and software",
        "The table as text",
    ]


def test_the_table_of_contents_leads_to_every_section(full):
    page = Page(full)
    targets = [attributes["href"][1:] for tag, attributes in page.elements if tag == "a"]
    sections = [attributes["id"] for tag, attributes in page.elements if tag == "section" and "id" in attributes]
    assert targets == sections
    assert len(targets) == len(re.findall("<h2>", full))


def test_every_number_says_what_it_is(full):
    text = Page(full).text
    for phrase in (
        "4 runs, seeds 0, 1, 2, started on 2026-03-01",
        "MAE , lower is better. Scores are from the checkpoint with the best validation MAE",
        "± is the standard deviation over seeds (n – 1)",
        "0, 1, 2 (n = 3)",
        "0.7100 ± 0.0100",
        "2, 2, 2 of 3",
        "Abacus, 2 cores; no GPU; Python 3.11.7; torch 2.13.0",
        "the others (gps-1, gps-2) differ in the seed",
    ):
        assert phrase in text, phrase


def test_logarithmic_axes_are_labelled_with_numbers(full):
    (panel,) = re.findall(r'<svg[^>]*aria-label="Condition[^>]*>.*?</svg>', full, re.DOTALL)[:1]
    labels = [float(text) for text in re.findall(r"<text[^>]*>([\d.]+(?:e[+-]\d+)?)</text>", panel)]
    assert {0.01, 0.1, 1.0} <= set(labels)
    assert "mathdefault" not in full


def test_the_page_loads_nothing_and_runs_nothing(full):
    page = Page(full)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "form", "base"}
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        for name in ("src", "href", "xlink:href", "srcset", "action"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert not re.search(r"https?://|@import|url\((?!#)", full)
    assert "default-src 'none'" in full


def test_identifiers_are_unique(full):
    found = [attributes["id"] for _, attributes in Page(full).elements if "id" in attributes]
    assert len(found) == len(set(found)) > 20


def test_figures_have_words_for_those_who_cannot_see_them(full):
    elements = Page(full).elements
    assert {"svg", "img"} <= {tag for tag, _ in elements}
    for tag, attributes in elements:
        if tag == "svg":
            assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
        if tag == "img":
            assert attributes["alt"]


def test_names_and_values_from_files_are_escaped(make_run, add_layers, write):
    evil = "<script>alert('x')</script>"
    folder = make_run("a", architecture=evil, option=evil)
    other = make_run(
        "b", architecture=evil, option="</pre><img src=x onerror=alert(1)>", results={"benchmark": "NCI", "seed": evil}
    )
    folder.environment.write_text('{"processor": "<script>", "<b>": "</dl><script>"}')
    add_layers(folder, stem="x<script>", measures=(evil,))
    (folder.diagnostics / "y<script>.csv").write_text("a\n1\n")
    page = Page(write(folder, other))
    assert "script" not in {tag for tag, _ in page.elements}
    assert not any(attributes.get("src") == "x" for _, attributes in page.elements)
    assert evil in page.text


def test_a_single_run_has_no_deviations(make_run, write):
    text = Page(write(make_run("a"))).text
    assert "GPS on NCI" in text
    assert "±" not in text.split("What the columns are")[0]
    assert "baseline" in text


def test_problems_come_first(make_run, write):
    folder = make_run("torn")
    folder.metrics.unlink()
    folder.results.write_text("{")
    text = Page(write(folder, make_run("whole", seed=1))).text
    assert text.index("Missing or broken") < text.index("Results")
    assert "torn : results.json cannot be read" in text
    assert "torn : There is no metrics.csv" in text


def test_a_folder_that_never_began_is_left_out_or_refused(make_run, write, caplog):
    whole, bare = make_run("whole"), make_run("bare", seed=1)
    for path in (bare.results, bare.metrics, bare.environment):
        path.unlink()
    assert "bare" not in Page(write(whole, bare)).text
    assert "bare is skipped: it stopped before its first checkpoint" in caplog.text
    with pytest.raises(BadInput, match="there is no checkpoint and no score to report"):
        write(bare)


@pytest.mark.slow
def test_different_hardware_is_a_warning(make_run, write):
    one, other = make_run("a"), make_run("b", seed=1)
    other.environment.write_text('{"processor": "Other"}')
    assert "times, speeds and memory are not comparable" in Page(write(one, other)).text
    assert "not comparable" not in Page(write(one, make_run("c", seed=2))).text


def test_a_repeated_seed_is_a_warning(make_run, write):
    assert "seed 0 was run more than once" in Page(write(make_run("a"), make_run("b"))).text


def test_of_many_models_the_best_are_drawn_and_named(make_run, write, monkeypatch):
    monkeypatch.setattr("graphbench.report.page._DRAWN", 3)
    text = write(*(make_run(f"r{heads}", num_heads=heads, scores=(heads / 10, 0.5)) for heads in range(1, 21)))
    assert "of the first 3 of 20 models" in text
    labels = "|".join(re.findall(r'<svg[^>]*aria-label="([^"]*)"', text))
    assert sorted(set(map(int, re.findall(r"num_heads (\d+)", labels)))) == [1, 2, 3]
    assert text.count("num_heads 20") >= 2  # in the table, and with its options


def test_two_benchmarks_are_told_apart(make_run, write):
    page = write(make_run("a"), make_run("b", results={"benchmark": "ZINC"}))
    text = Page(page).text
    assert "GPS on 2 benchmarks" in text
    assert "Results on NCI" in text
    assert "Results on ZINC" in text
    assert 'id="p1-curves"' in page


def test_the_page_is_the_same_every_time(make_run, add_layers, write):
    folder = make_run("a")
    add_layers(folder)
    assert write(folder) == write(folder)


#: Measures the page of an <iframe> and lists its visible faults.
MEASURE = r"""
const shown = element => element.getClientRects().length > 0;
const linear = c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => .2126 * linear(r / 255) + .7152 * linear(g / 255) + .0722 * linear(b / 255);
const outside = (box, frame) => box.left < frame.left - 1 || box.right > frame.right + 1
  || box.top < frame.top - 1 || box.bottom > frame.bottom + 1;
const numbers = colour => colour.match(/[\d.]+/g).map(Number);
const measure = frame => {
  const page = frame.contentDocument, view = frame.contentWindow, root = page.documentElement;
  const found = {client: root.clientWidth, scroll: root.scrollWidth, figures: 0, visible: 0, texts: 0,
                 unscrollable: [], broken: [], cut: [], faint: []};
  found.dark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  for (const svg of page.querySelectorAll("figure svg")) {
    const box = svg.getBoundingClientRect();
    found.figures += 1, found.visible += box.width > 150 && box.height > 50;
  }
  for (const table of page.querySelectorAll("table"))
    if (table.scrollWidth > table.parentElement.clientWidth && !table.closest(".wide"))
      found.unscrollable.push(table.textContent.trim().slice(0, 40));
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode, parent = node.parentElement, text = node.data.trim();
    if (!text || !shown(parent) || parent.closest("style")) continue;
    const head = parent.closest("thead");  // of narrow pages for screen readers alone
    if (head && view.getComputedStyle(head).position === "absolute") continue;
    const range = page.createRange(), svg = parent.closest("svg"), style = view.getComputedStyle(parent);
    range.selectNodeContents(node);
    const box = svg ? parent.getBoundingClientRect() : range.getBoundingClientRect();
    const frame = svg ? svg.getBoundingClientRect() : {left: 0, right: root.clientWidth, top: 0, bottom: Infinity};
    if (outside(box, frame) && !parent.closest(".wide, pre")) found.cut.push(text);
    let behind = svg || parent;
    while (behind && /, 0\)$/.test(view.getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
    const ground = numbers(view.getComputedStyle(behind || page.body).backgroundColor);
    const [low, high] = [luminance(numbers(svg ? style.fill : style.color)), luminance(ground)].sort((a, b) => a - b);
    found.texts += 1;
    if ((high + .05) / (low + .05) < 4.5) found.faint.push(text);
    if (parent.closest("th, td, caption, h1, h2, dt, figcaption")) for (const word of node.data.matchAll(/\S+/g)) {
      if (word[0].length > 30 || !/^[A-Za-z0-9.,%]+$/.test(word[0])) continue;  // names that no line can hold
      range.setStart(node, word.index), range.setEnd(node, word.index + word[0].length);
      const tops = new Set([...range.getClientRects()].filter(box => box.width).map(box => Math.round(box.top)));
      if (tops.size > 1) found.broken.push(word[0]);
    }
  }
  page.querySelector("figure img").scrollIntoView();  // for the screenshot
  return found;
};
onload = () => { document.title = JSON.stringify([...document.querySelectorAll("iframe")].map(measure)); };
"""


@needs_chromium
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_chromium_shows_it_whole_and_legible(full, tmp_path, scheme):
    """Show the page in frames as wide as a phone, a tablet and a desktop, and measure it from outside.

    No word breaks over two lines, no text is cut, and a table wider than the page scrolls in its own box. All text,
    including labels in figures, has the contrast that WCAG 2.2 requires (4.5, criterion 1.4.3).
    """
    widths = (390, 1000, 1400)
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(full)}"></iframe>'
        for width in widths
    )
    head = f'<!DOCTYPE html><meta name="color-scheme" content="{scheme}">'
    page = f'{head}<body style="margin:0">{frames}<script>{MEASURE}</script>'
    (tmp_path / "frame.html").write_text(page, encoding="utf-8")
    title = title_after(
        tmp_path / "frame.html", tmp_path / "profile", in_scheme(scheme), "--hide-scrollbars",
        "--window-size=2900,900", f"--screenshot={tmp_path / 'shot.png'}",
    )  # fmt: skip
    for width, found in zip(widths, json.loads(title), strict=True):
        assert found["dark"] == (scheme == "dark")
        assert width - 20 <= found["client"] == found["scroll"] <= width
        assert found["figures"] == found["visible"] > 8
        assert found["texts"] > 100
        for fault in ("unscrollable", "broken", "cut", "faint"):
            assert not found[fault], (fault, width)
    with Image.open(tmp_path / "shot.png") as shot:
        grey = shot.convert("L")
        dark, bright = (
            sum(part) / (shot.width * shot.height) for part in (grey.histogram()[:64], grey.histogram()[192:])
        )
    assert (dark > 0.7 and bright < 0.05) if scheme == "dark" else (dark < 0.05 and bright > 0.7)


@needs_chromium
@needs_axe
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_axe_finds_no_fault(full, tmp_path, scheme):
    """Folds are opened, and the policy that blocks scripts is removed."""
    page = re.sub("<meta http-equiv=[^>]*>", "", full).replace("<details>", "<details open>")
    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    assert axe_faults(tmp_path, ["report.html"], tmp_path / "profile", scheme) == []
