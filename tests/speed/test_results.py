"""What the pages say about speed agrees with `speed/results/`."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "speed" / "results" / "cpu-1-thread.json").read_text())
ROWS = {
    (int(row["case"].split()[0]), row["contender"], row["against"]): row
    for row in RESULTS["rows"]
    if row["script"] == "sparse_flow" and row["case"].endswith("logits of s.d. 1")
}
PAGE = (ROOT / "plugins" / "sfi-former" / "README.md").read_text()
GPS_PAGE = (ROOT / "plugins" / "baselines" / "README.md").read_text()
SFT_PAGE = (ROOT / "plugins" / "sft" / "README.md").read_text()
#: Header of a column -> contender, baseline, key and factor of its values.
COLUMNS = {
    "softmax": ("fused flow", "softmax", "other", 1e3),
    "SDPA": ("fused flow", "SDPA", "other", 1e3),
    "exact": ("fused flow", "softmax", "seconds", 1e3),
    "composed": ("composed flow", "fused flow", "seconds", 1e3),
    "T = 20": ("T=20", "fused flow", "seconds", 1e3),
    "exact / softmax": ("fused flow", "softmax", "ratio", 1),
    "exact / SDPA": ("fused flow", "SDPA", "ratio", 1),
    "T = 20 / exact": ("T=20", "fused flow", "ratio", 1),
}


def rounds_to(said, value):
    """Return whether `said` (such as `1,135 ms`) is `value` rounded to as many places as it has."""
    number = said.removesuffix(" ms").replace(",", "")
    return float(number) == pytest.approx(value, abs=0.501 * 10.0 ** -len(number.partition(".")[2]))


def speed_table():
    lines = PAGE[PAGE.index("## Speed") :].splitlines()
    first = next(number for number, line in enumerate(lines) if "exact / SDPA" in line)
    head = [cell.strip() for cell in lines[first].strip("|").split("|")]
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            return
        yield dict(zip(head, (cell.strip() for cell in line.strip("|").split("|")), strict=True))


def test_the_table_of_the_sparse_flow_is_that_of_the_kept_run():
    shown = list(speed_table())
    assert [int(row["N"]) for row in shown] == [64, 128, 256, 512]
    for row in shown:
        for header, (contender, against, key, factor) in COLUMNS.items():
            value = factor * ROWS[int(row["N"]), contender, against][key]
            assert rounds_to(row[header], value), (row["N"], header, value)


def test_the_table_without_kernels_is_that_of_the_kept_run():
    lines = PAGE[PAGE.index("| N | plain / softmax") :].splitlines()[2:6]
    for line, nodes in zip(lines, (64, 128, 256, 512), strict=True):
        size, plain, solver = (cell.strip() for cell in line.strip("|").split("|"))
        assert int(size) == nodes
        assert rounds_to(plain, ROWS[nodes, "plain flow", "softmax"]["ratio"])
        assert rounds_to(solver, ROWS[nodes, "sparse_flow", "softmax of scores"]["ratio"])


def test_the_first_page_rounds_the_same_run():
    readme = (ROOT / "docs" / "explanation" / "measured.md").read_text()
    times, slowest = re.search(
        r"\| ([\d, ]+) times as fast at 64, 128, 256, 512 nodes, .*?; ([\d. to]+) times as long as PyTorch's", readme
    ).groups()  # fmt: skip
    for said, nodes in zip(times.split(", "), (64, 128, 256, 512), strict=True):
        assert rounds_to(said, ROWS[nodes, "T=20", "fused flow"]["ratio"])
    ratios = sorted(ROWS[nodes, "fused flow", "SDPA"]["ratio"] for nodes in (64, 128, 256, 512))
    for said, value in zip(slowest.split(" to "), (ratios[0], ratios[-1]), strict=True):
        assert rounds_to(said, value)


def by_case(script, contender, against):
    found = (row for row in RESULTS["rows"] if row["script"] == script)
    return {row["case"]: row for row in found if (row["contender"], row["against"]) == (contender, against)}


def test_the_table_of_gps_is_that_of_the_kept_run():
    rows = by_case("gps_throughput", "ours", "PyG")
    shown = re.findall(r"^\| [^|]* \| (?:32|16), (?:random|by size) \| ([\d.]+) \|$", GPS_PAGE, re.MULTILINE)
    order = [f"{kind}, batches {way}" for kind in ("zinc", "peptides", "cluster") for way in ("random", "by size")]
    assert len(shown) == len(order)
    for said, case in zip(shown, order, strict=True):
        assert rounds_to(said, 1 / rows[case]["ratio"]), case


@pytest.mark.parametrize(
    ("heads", "samples"), [(16, 32), (16, 64), (16, 128), (16, 256), (16, 512), (8, 128), (8, 256)]
)
def test_the_table_of_sft_is_that_of_the_kept_run(heads, samples):
    table = SFT_PAGE[SFT_PAGE.index("Table 6") : SFT_PAGE.index("With 8 heads")]
    if heads == 8:
        table = SFT_PAGE[SFT_PAGE.index("With 8 heads") : SFT_PAGE.index("At a sampling rate")]
    line = re.search(rf"^\| k = {samples}(?: \(25 %\))? \|(.*)$", table, re.MULTILINE).group(1)
    cells = [cell.strip() for cell in line.split("|")]
    for way, seconds, share in (("inference", cells[0], cells[1]), ("training", cells[3], cells[4])):
        rows = by_case("sft_attention", f"SFT, edges, k = {samples}", "TransformerEncoderLayer")
        row = rows[f"layer, {heads} heads, {way}"]
        assert rounds_to(seconds, row["seconds"])
        assert float(share) == pytest.approx(row["seconds"] / row["other"], abs=0.0051)


@pytest.mark.parametrize(
    ("page", "sentence", "case"),
    [
        (SFT_PAGE, r"scores take ([\d.]+) times as long", "maxout scores, 1,024 x 256"),
    ],
)
def test_what_pages_say_of_kernels_is_in_the_kept_run(page, sentence, case):
    said = re.search(sentence, page).group(1)
    assert rounds_to(said, 1 / by_case("kernels", "Numba", "torch")[case]["ratio"])
