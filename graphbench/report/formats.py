"""Write the result tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from graphbench.data.files.cells import markdown_text, without_formulas
from graphbench.report.scores import ResultTable
from graphbench.report.significance import Comparison

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$", "–": "--", "…": r"\ldots{}",
})  # fmt: skip

#: Column of table.csv -> attribute of a `Comparison`.
_COMPARED = {
    "compared by": "key", "pairs": "pairs", "difference mean": "difference", "difference sd": "sd",
    "difference low": "low", "difference high": "high", "p of": "test", "p": "p", "p after Holm": "holm",
    "p of Wilcoxon": "wilcoxon",
}  # fmt: skip
_NO_COMPARISON = Comparison("", 0, "", math.nan, math.nan, math.nan, math.nan, "", math.nan, math.nan)


def as_markdown(tables: Sequence[ResultTable]) -> str:
    """Write pipe tables, one per benchmark."""
    parts = []
    for table in tables:
        lines = pipe_table([table.header(), *table.lines()])
        parts.append("\n".join([f"**{markdown_text(_caption(table))}**", "", *lines]))
    return "\n\n".join(parts) + "\n"


def pipe_table(lines: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table from cells, header first; numbers are right-aligned."""
    header, *rows = [[markdown_text(text) for text in line] for line in lines]
    return [f"| {' | '.join(line)} |" for line in (header, ["---", *["---:"] * (len(header) - 1)], *rows)]


def as_latex(tables: Sequence[ResultTable]) -> str:
    """Write tables for the LaTeX package booktabs, one per benchmark."""
    parts = ["% needs \\usepackage{booktabs}"]
    for table in tables:
        header, *rows = [[_latex(text) for text in line] for line in (table.header(), *table.lines())]
        style = pd.DataFrame(rows, columns=header).style.hide(axis="index")
        parts.append(style.to_latex(
            hrules=True, column_format=f"l{'r' * (len(header) - 1)}", caption=_latex(_caption(table)),
            position_float="centering",
        ))  # fmt: skip
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _latex(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)


def _caption(table: ResultTable) -> str:
    metric = f": {table.metric}, {table.better}" if table.metric and table.better else ""
    single = " p-values are for single comparisons." if len(table.comparisons) > 1 else ""
    return (
        f"{table.benchmark}{metric}. Scores from the checkpoint with the best validation score; mean ± standard "
        f"deviation over {table.over} (n – 1).{single}"
    )


def as_csv(tables: Sequence[ResultTable]) -> str:
    """Write one table of unrounded numbers: mean, standard deviation (n - 1) and number of runs of every quantity.

    Units are those of results.json (seconds, MB), whatever the other formats show. An empty cell is an unknown number,
    or something a baseline lacks: seeds and epochs.
    """
    rows = []
    for table in tables:
        for row in table.rows:
            line: dict[str, object] = {"benchmark": table.benchmark, "model": row.label}
            line |= {"kind": row.kind, "seeds": "", "best_epochs": ""}
            if row.group is not None:
                line |= {"seeds": row.seeds, "best_epochs": row.best_epochs}
            for quantity in table.quantities:
                score = row.scores.get(quantity.key)
                line[f"{quantity.key} mean"] = score.mean if score else math.nan
                line[f"{quantity.key} sd"] = score.sd if score else math.nan
                line[f"{quantity.key} n"] = len(score.values) if score else 0
            if any(other.comparisons for other in tables):
                comparison = row.comparison or _NO_COMPARISON
                line |= {column: getattr(comparison, name) for column, name in _COMPARED.items()}
            rows.append(line)
    frame = pd.DataFrame(rows)
    counts = [name for name in frame.columns if name.endswith(" n") or name == "pairs"]
    frame = frame.astype(dict.fromkeys(counts, "Int64"))  # also beside benchmarks without the quantity
    return without_formulas(frame).to_csv(index=False, lineterminator="\n")
