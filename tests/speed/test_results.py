"""What the pages say of speed is what `speed/results/` holds."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "speed" / "results" / "cpu-1-thread-sparse-flow.json").read_text())
ROWS = {
    (int(row["case"].split()[0]), row["contender"], row["against"]): row
    for row in RESULTS["rows"]
    if row["case"].endswith("logits of s.d. 1")
}
PAGE = (ROOT / "plugins" / "sfi-former" / "README.md").read_text()
#: Header of a column -> comparison, what is shown of it, and its factor.
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
    """Whether `said` (a word such as `1,135 ms`) is `value` rounded to as many places as it has."""
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


def test_the_first_page_rounds_the_same_run():
    readme = (ROOT / "README.md").read_text()
    times, slowest = re.search(
        r"\| ([\d, ]+) times as fast at 64, 128, 256, 512 nodes, .*?; ([\d. to]+) times as long as PyTorch's", readme
    ).groups()  # fmt: skip
    for said, nodes in zip(times.split(", "), (64, 128, 256, 512), strict=True):
        assert rounds_to(said, ROWS[nodes, "T=20", "fused flow"]["ratio"])
    ratios = sorted(ROWS[nodes, "fused flow", "SDPA"]["ratio"] for nodes in (64, 128, 256, 512))
    for said, value in zip(slowest.split(" to "), (ratios[0], ratios[-1]), strict=True):
        assert rounds_to(said, value)
