"""The site builds without a warning, its links work, it fits on a phone, and its search finds pages."""

from __future__ import annotations

import html
import importlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from chromium import axe_faults, needs_axe, needs_chromium, shown, title_after
from filelock import FileLock
from quick import slow

from graphbench import registry
from graphbench.registry import configurations

ROOT = Path(__file__).parents[2]
pytest.importorskip("myst_nb", reason="pip install '.[docs]'")


class Page(HTMLParser):
    """Links and identifiers of a page."""

    def __init__(self, text):
        super().__init__()
        self.links, self.names = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.names.add(found.get("id"))
        if tag in ("a", "img", "link", "script"):
            self.links += [found[key] for key in ("href", "src") if found.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site, once for all processes of the suite, and return its folder; a warning fails.

    The sources are copied, since catalogues are written beside them.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "site"
    with FileLock(f"{folder}.lock"):
        if not (folder / "built").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("_build", "catalogue", "api"))
            command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "docs", "html"]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, done.stderr[-3000:]
            (folder / "built").touch()
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def test_every_link_inside_leads_somewhere(site, pages):
    broken = []
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            address, anchor = urldefrag(link.partition("?")[0] if "#" not in link else link)
            target = (path.parent / unquote(address.partition("?")[0])).resolve() if address else path
            known = pages[target].names if target in pages else None
            if not target.is_file() or (anchor and known is not None and unquote(anchor) not in known):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize("group", registry.GROUPS)
def test_catalogues_name_everything_that_is_registered(pages, site, group):
    text = (site / "reference" / "catalogue" / f"{group}.html").read_text(encoding="utf-8")
    assert [name for name in registry.records(group) if f">{name}<" not in text] == []


def test_catalogues_lead_to_public_names_recipes_and_files(pages, site):
    catalogue = site / "reference" / "catalogue"
    entry = "../api/graphbench_baselines.html#graphbench_baselines.GPS"
    assert {entry, "configurations.html#zinc"} <= set(pages[catalogue / "architectures.html"].links)
    assert "configurations.html#zinc" in pages[catalogue / "benchmarks.html"].links
    file = "/blob/main/plugins/baselines/configs/gps/zinc.yaml"
    assert any(link.endswith(file) for link in pages[catalogue / "configurations.html"].links)


def test_pages_with_a_source_offer_to_edit_it_and_name_version_and_repository(pages, site):
    for path, page in pages.items():
        name = path.relative_to(site).with_suffix("").as_posix()
        edited = [link for link in page.links if "/edit/main/docs/" in link]
        generated = name.startswith(("reference/api/", "reference/catalogue/"))  # a build leaves them among the others
        if (ROOT / "docs" / f"{name}.md").is_file() and not generated:
            assert [link.partition("/docs/")[2] for link in edited] == [f"{name}.md"]
        else:
            assert edited == [], name
    home = site / "index.html"
    assert "https://github.com/graphbench-lightning/graphbench" in pages[home].links
    assert f"graphbench {version('graphbench-lightning')}" in home.read_text(encoding="utf-8")


def test_every_public_name_has_an_entry(pages, site):
    """The page of its module has a line that links to its description."""
    missing = []
    for name in (ROOT / "tests" / "public_names.txt").read_text(encoding="utf-8").split():
        module, _, word = name.rpartition(".")
        page = pages.get(site / "reference" / "api" / f"{module}.html")
        anchors = {urldefrag(link)[1].rpartition(".")[2] for link in page.links} if page else ()
        if word not in anchors:
            missing.append(name)
    assert missing == []


def test_docstrings_keep_their_examples_and_formulas(site):
    text = (site / "reference" / "api" / "graphbench_baselines.html").read_text(encoding="utf-8")
    entry = text.partition('id="graphbench_baselines.GPS"')[2].partition("</dd></dl>")[0]
    assert "tiny_batch" in entry.partition("Examples")[2]
    assert "arXiv 2205.12454" in entry


@pytest.mark.parametrize(
    ("docstring", "expected"),
    [
        ("a * b and |c|", r"a \* b and \|c\|"),
        ("* `x * y`: d*", r"* `x * y`: d\*"),
        ("As in:\n\n    f(*x)\n\nThen *", "As in:\n\n::\n\n    f(*x)\n\nThen \\*"),
        ("| a | b |\n|---|---|\n\nend", "::\n\n    | a | b |\n    |---|---|\n\nend"),
        ("Examples:\n    >>> print(2 * 3)\n    6", "Examples:\n    >>> print(2 * 3)\n    6"),
    ],
)
def test_docstrings_become_restructuredtext(docstring, expected, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_ext")
    readable = importlib.import_module("api").readable
    assert "\n".join(readable(docstring.splitlines())) == expected


def test_recipes_stand_with_what_they_expect(site):
    text = (site / "reference" / "catalogue" / "configurations.html").read_text(encoding="utf-8")
    found = {name: several[0] for name, several in configurations.configurations().items()}
    recipes = [name for name, configuration in found.items() if not configuration.is_overlay]
    assert [name for name in recipes if f">{name}<" not in text] == []
    expected = configurations.facts(found["quickstart"], found).expected
    row = next(row for row in text.split("<tr") if ">quickstart<" in row)
    assert f"{expected.metric} {expected.value:g}" in row


def test_the_page_on_speed_has_every_row_and_says_first_where_another_is_faster(site):
    text = html.unescape((site / "reference" / "catalogue" / "speed.html").read_text(encoding="utf-8"))
    for path in (ROOT / "speed" / "results").glob("*.json"):
        rows = json.loads(path.read_text())["rows"]
        cells = re.findall(r"<td>(?:<p>)?([^<]*)", text)
        assert all(row["case"] in cells and f"{row['ratio']:.2f}" in cells for row in rows)
        assert len(cells) >= 5 * len(rows)
    for part in text.split('Where another one is faster<a class="headerlink"')[1:]:
        ratios = [float(ratio) for ratio in re.findall(r"<td>(?:<p>)?(\d+\.\d\d)<", part[: part.index("</table>")])]
        assert ratios == sorted(ratios, reverse=True)
        assert ratios[-1] > 1


def test_benchmarks_that_are_generated_here_have_a_picture(site):
    text = (site / "reference" / "catalogue" / "benchmarks.html").read_text(encoding="utf-8")
    rows = {row.partition(">")[2].partition("</td>")[0]: row for row in text.split("<tr")[2:]}
    for name, record in registry.benchmarks().items():
        (row,) = [row for cell, row in rows.items() if f">{name}<" in cell]
        picture = re.search(r'src="(\.\./\.\./_images/[^"]+\.png)"', row)
        if name in ("PATTERN", "CSL", "Solids", "NCI"):
            assert picture, name
            assert (site / "reference" / "catalogue" / picture[1]).stat().st_size > 1000
        if record.spec is not None and not record.spec.offline:
            assert "no picture offline" in row, name


def test_every_page_is_reached_from_the_home_page(site, pages):
    """The side bar links all of them, so the home page's links are those of the whole site."""
    open_pages, reached = [site / "index.html"], set()
    while open_pages:
        path = open_pages.pop()
        if path in pages and path not in reached:
            reached.add(path)
            open_pages += [(path.parent / urldefrag(link)[0]).resolve() for link in pages[path].links]
    assert {path.name for path in set(pages) - reached} <= {"genindex.html", "py-modindex.html", "search.html"}


@pytest.mark.parametrize("command", ["fit", "predict", "list"])
def test_the_reference_has_every_option_of_every_command(site, command):
    text = html.unescape((site / "reference" / "catalogue" / "commands.html").read_text(encoding="utf-8"))
    (section,) = re.findall(rf'<section id="{command}">.*?</section>', text, re.DOTALL)
    shown = subprocess.run(
        [sys.executable, "-m", "graphbench", command, "--help"], capture_output=True, text=True, timeout=120
    )
    options = set(re.findall(r"^ +(--[a-z][\w.-]*)", shown.stdout, re.MULTILINE))
    assert options
    assert {option for option in options if option not in section} == set()


def test_the_zoo_has_every_training_on_record(site):
    text = html.unescape((site / "reference" / "catalogue" / "zoo.html").read_text(encoding="utf-8"))
    files = (ROOT / "experiments" / "records").glob("classic-zinc+gin-4.offline-*.json")
    records = [json.loads(file.read_text()) for file in files]
    (row,) = [row for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL) if "GIN, 4 layers" in row]
    score = statistics.fmean(record["test"] for record in records)
    epochs = [str(limit(record["epochs"] for record in records)) for limit in (min, max)]
    for cell in (f"{score:.4f}", f"{records[0]['parameters']:,}", *epochs):
        assert cell in row


@needs_chromium
def test_a_click_on_a_heading_sorts_a_table(site, tmp_path):
    script = """
        const click = () => document.querySelector('iframe').contentDocument.querySelectorAll('th button')[8].click();
        const read = () => [...document.querySelector('iframe').contentDocument.querySelectorAll('tbody tr')]
            .map(row => row.cells[8].textContent.replace(/,/g, '')).join(',');
        onload = () => { click(); const up = read(); click(); document.title = up + ';' + read(); };
    """
    frame = tmp_path / "sorting.html"  # not in the site's folder, which processes of the suite share
    page = site / "reference/catalogue/zoo.html"
    frame.write_text(
        f'<!DOCTYPE html><body><iframe src="{page.as_uri()}"></iframe><script>{script}</script>', encoding="utf-8"
    )
    title = title_after(frame, tmp_path / "profile")
    up, down = ([int(one) for one in part.split(",") if one != "-"] for part in title.split(";"))
    assert up == sorted(up)
    assert down == up[::-1]
    assert len(set(up)) > 20


#: One page of each kind: Furo, MyST, notebooks, catalogues and docstrings.
KINDS = (
    "index.html", "faq.html", "glossary.html", "lightning.html", "how-to/loss.html", "explanation/diagnostics.html",
    "tutorials/own-graphs.html", "reference/catalogue/benchmarks.html", "reference/api/graphbench.diagnostics.html",
    "reference/catalogue/zoo.html", "reference/catalogue/configurations.html", "how-to/from-chemprop.html",
)  # fmt: skip


@needs_chromium
@pytest.mark.parametrize("which", ["kinds", slow("all")])
@pytest.mark.parametrize("width", [390, 1400])
def test_no_page_scrolls_sideways(site, pages, tmp_path, which, width):
    """Load every page in a frame as wide as a phone or a desktop window, and measure it from outside."""
    names = [str(path.relative_to(site)) for path in sorted(pages)] if which == "all" else KINDS
    opening = f'<iframe style="width:{width}px;height:800px;border:0" src='
    frames = "".join(f'{opening}"{(site / name).as_uri()}"></iframe>' for name in names)
    measure = (
        "onload = () => { document.title = [...document.querySelectorAll('iframe')].map(f => {"
        "const e = f.contentDocument.documentElement; return e.scrollWidth - e.clientWidth; }); }"
    )
    frame = tmp_path / "pages.html"  # not in the site's folder, which processes of the suite share
    frame.write_text(f"<!DOCTYPE html><body>{frames}<script>{measure}</script>", encoding="utf-8")
    title = title_after(frame, tmp_path / "profile")
    widths = dict(zip(names, map(int, title.split(",")), strict=True))
    assert {name: width for name, width in widths.items() if width > 0} == {}


@needs_chromium
def test_search_finds_a_page(site, tmp_path):
    text = shown(site / "search.html", tmp_path / "profile", query="?q=SIGTERM")
    results = re.search(r'<div id="search-results">.*', text, re.DOTALL)
    assert results
    assert "reliability.html" in results[0]


@needs_chromium
@needs_axe
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_fault(site, tmp_path, theme):
    assert axe_faults(site, KINDS, tmp_path / "profile", theme) == []
