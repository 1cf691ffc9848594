"""Pages as Chromium shows them, and what Deque's axe finds in them."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
#: Deque's accessibility checks, which are not a Python package: `npm pack axe-core`, unpacked.
AXE = Path(os.environ.get("AXE_CORE", ROOT / "build" / "axe-core" / "package" / "axe.min.js"))

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")
needs_axe = pytest.mark.skipif(
    not AXE.is_file(), reason="needs axe-core: npm pack axe-core, unpacked into build/axe-core"
)

#: Axe runs in every frame and writes what it finds into the title: rule, page, element. One rule is off: Sphinx writes
#: signatures of several lines as definition lists without definitions.
_CHECK = """
const load = frame => new Promise(done => {
    const script = frame.contentDocument.createElement('script');
    script.onload = done; script.src = AXE; frame.contentDocument.head.append(script);
});
onload = async () => {
    const found = [];
    for (const frame of document.querySelectorAll('iframe')) {
        frame.contentDocument.body.dataset.theme = THEME;
        await load(frame);
        const rules = {runOnly: ['wcag2a', 'wcag2aa'], rules: {'definition-list': {enabled: false}}};
        const result = await frame.contentWindow.axe.run(frame.contentDocument, rules);
        found.push(['passed', frame.getAttribute('src'), String(result.passes.length)]);
        for (const rule of result.violations) for (const node of rule.nodes)
            found.push([rule.id, frame.getAttribute('src'), node.html.slice(0, 120)]);
    }
    document.title = encodeURIComponent(JSON.stringify(found));
};
"""


def shown(page: Path, profile: Path, *options: str, query: str = "") -> str:
    """Return the DOM of a local page after Chromium has run its scripts.

    Args:
        page: the file.
        profile: a folder for the browser's own files.
        options: more options of the browser.
        query: the query of the address, with its "?".
    """
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync",
        "--disable-quic", "--disable-background-networking", "--disable-component-update",
        "--allow-file-access-from-files", f"--user-data-dir={profile}", "--virtual-time-budget=10000", "--dump-dom",
        *options, f"{page.as_uri()}{query}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def title_after(page: Path, profile: Path, *options: str) -> str:
    """Return the title that the scripts of a page set; arguments as in `shown`."""
    title = re.search(r"<title>(.*?)</title>", shown(page, profile, *options), re.DOTALL)
    assert title
    return html.unescape(title[1])


def in_scheme(scheme: str) -> str:
    """Return the option for a reader who prefers a "dark" or "light" page."""
    return f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}"  # blink's mojom enumeration


def axe_faults(folder: Path, names: Sequence[str], profile: Path, scheme: str) -> list[list[str]]:
    """Return the violations of WCAG 2, A and AA, on pages of a folder: rule, page, element.

    They include contrast, names of links and buttons, and order of headings. Fail if a page was not checked.
    """
    pages = [(folder / name).as_uri() for name in names]
    frames = "".join(f'<iframe style="width:1200px;height:900px;border:0" src="{page}"></iframe>' for page in pages)
    script = _CHECK.replace("AXE", json.dumps(AXE.as_uri())).replace("THEME", json.dumps(scheme))
    page = profile.with_suffix(".html")  # not in the folder, which processes of the suite share
    head = f'<!DOCTYPE html><meta name="color-scheme" content="{scheme}"><title></title>'
    page.write_text(f"{head}<body>{frames}<script>{script}</script>", encoding="utf-8")
    found = json.loads(unquote(title_after(page, profile, in_scheme(scheme))))
    assert {name for rule, name, number in found if rule == "passed" and int(number) > 5} == set(pages)
    return [one for one in found if one[0] != "passed"]
