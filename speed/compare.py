"""Compare two tables of `speed/suite.py --json`, and list what got slower.

Ratios are compared instead of seconds, since two runs are rarely on the same machine. A comparison got slower if its
ratio increased by a larger share than its spread: the contender's interquartile range over its median, in the table
where this is larger.

    python speed/compare.py before.json now.json     # exit code 1 if something got slower
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

Key = tuple[str, str, str, str]


def read(path: Path) -> dict[Key, dict[str, Any]]:
    """Read the rows of a table, by script, case and both contenders."""
    rows = json.loads(path.read_text())["rows"]
    return {(row["script"], row["case"], row["contender"], row["against"]): row for row in rows}


def spread(row: dict[str, Any]) -> float:
    """Return the distance of the quartiles as a share of the median."""
    return float(row["high"] - row["low"]) / float(row["seconds"])


def slower(before: dict[Key, dict[str, Any]], now: dict[Key, dict[str, Any]]) -> list[str]:
    """List the comparisons that got slower by more than their spread, one per line.

    Examples:
        >>> row = {"seconds": 1.0, "low": 0.95, "high": 1.05, "ratio": 0.5}
        >>> key = ("gps_throughput", "zinc", "ours", "PyG")
        >>> slower({key: row}, {key: row | {"ratio": 0.54}})
        []
        >>> slower({key: row}, {key: row | {"ratio": 0.6}})
        ['gps_throughput, zinc: ours / PyG 0.50 -> 0.60 (+20 %, spread 10 %)']
    """
    lines = []
    for key in before.keys() & now.keys():
        change = now[key]["ratio"] / before[key]["ratio"] - 1
        allowed = max(spread(before[key]), spread(now[key]))
        if change > allowed:
            script, case, contender, against = key
            ratios = f"{before[key]['ratio']:.2f} -> {now[key]['ratio']:.2f}"
            lines.append(f"{script}, {case}: {contender} / {against} {ratios} (+{change:.0%}, spread {allowed:.0%})")
    return sorted(line.replace("%", " %") for line in lines)


def main() -> int:
    """Print what got slower; return 1 if anything did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("now", type=Path)
    options = parser.parse_args()
    before, now = read(options.before), read(options.now)
    lines = slower(before, now)
    print(f"{len(before.keys() & now.keys())} comparisons in both, {len(lines)} slower by more than their spread")
    for line in lines:
        print(line)
    for name, missing in (("only before", before.keys() - now.keys()), ("only now", now.keys() - before.keys())):
        if missing:
            print(f"{name}: {'; '.join(', '.join(key) for key in sorted(missing))}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
