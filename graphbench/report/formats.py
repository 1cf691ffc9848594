"""The result tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from graphbench.data.files.cells import markdown_text, without_formulas
from graphbench.report.scores import ResultTable
from graphbench.report.significance import Comparison

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$", "–": "--", "…": r"\ldots{}",
}  # fmt: skip
_SINGLE = " p-values are of single comparisons."


def as_markdown(tables: Sequence[ResultTable]) -> str:
    """Pipe tables, one per benchmark."""
    parts = []
    for table in tables:
        header = [markdown_text(text) for text in table.header()]
        rule = ["---" if place == 0 else "---:" for place in range(len(header))]
        cells = [[markdown_text(text) for text in line] for line in table.lines()]
        lines = [f"| {' | '.join(row)} |" for row in (header, rule, *cells)]
        parts.append("\n".join([f"**{markdown_text(caption(table))}**", "", *lines]))
    return "\n\n".join(parts) + "\n"


def as_latex(tables: Sequence[ResultTable]) -> str:
    """Tables for the package booktabs, one per benchmark."""
    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        rows = [" & ".join(map(_latex, row)) + r" \\" for row in (table.header(), *table.lines())]
        parts.append(
            "\n".join(
                [
                    r"\begin{table}",
                    r"\centering",
                    rf"\caption{{{_latex(caption(table))}}}",
                    rf"\begin{{tabular}}{{l{'r' * (len(table.header()) - 1)}}}",
                    r"\toprule",
                    rows[0],
                    r"\midrule",
                    *rows[1:],
                    r"\bottomrule",
                    r"\end{tabular}",
                    r"\end{table}",
                ]
            )
        )
    return "\n\n".join(parts) + "\n"


def as_csv(tables: Sequence[ResultTable]) -> str:
    """One table of unrounded numbers: mean, standard deviation (n - 1) and number of runs of every quantity.

    Units are those of results.json (seconds, MB), whatever the other formats show; an empty cell is an unknown number.
    """
    rows = []
    for table in tables:
        for row in table.rows:
            line: dict[str, object] = {
                "benchmark": table.benchmark,
                "model": row.label,
                "kind": row.kind,
                "seeds": row.seeds,
                "best_epochs": row.best_epochs,
            }
            for quantity in table.quantities:
                score = row.scores.get(quantity.key)
                known = score is not None and score.values
                line[f"{quantity.key} mean"] = score.mean if score and known else math.nan
                line[f"{quantity.key} sd"] = score.sd if score and known else math.nan
                line[f"{quantity.key} n"] = len(score.values) if score and known else 0
            if any(other.comparisons for other in tables):
                line |= _comparison(row.comparison)
            rows.append(line)
    return without_formulas(pd.DataFrame(rows)).to_csv(index=False, lineterminator="\n")


def _comparison(found: Comparison | None) -> dict[str, object]:
    """The comparison of a model with the best one of its table; empty cells without one."""
    return {
        "compared by": found.key if found else "",
        "pairs": found.pairs if found else 0,
        "difference mean": found.difference if found else math.nan,
        "difference sd": found.sd if found else math.nan,
        "difference low": found.low if found else math.nan,
        "difference high": found.high if found else math.nan,
        "p of": found.test if found else "",
        "p": found.p if found else math.nan,
        "p after Holm": found.holm if found else math.nan,
        "p of Wilcoxon": found.wilcoxon if found else math.nan,
    }


def caption(table: ResultTable) -> str:
    """What the numbers are."""
    told = f": {table.metric}, {table.better}" if table.metric and table.better else ""
    return (
        f"{table.benchmark}{told}. Scores of the checkpoint with the best validation score; mean ± standard deviation "
        f"over {table.over} (n – 1)." + (_SINGLE if len(table.comparisons) > 1 else "")
    )


def _plain(text: str) -> str:
    """One line."""
    return " ".join(text.split())


def _latex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in _plain(text))
