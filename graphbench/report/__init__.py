"""Report finished runs on one page: tables, learning curves, diagnostics, and the settings behind them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphbench.data.files.writing import write_text, writing_together
from graphbench.errors import BadInput
from graphbench.report.formats import as_csv, as_latex, as_markdown
from graphbench.report.groups import Group, group_runs, on_same_data, table_names
from graphbench.report.loading import load_runs
from graphbench.report.page import render
from graphbench.report.scores import ResultTable, result_table
from graphbench.report.tuning import Tuning, tuning_section
from graphbench.runs import RunFolder

__all__ = ["result_tables", "write_comparison", "write_report", "write_tuning"]


def result_tables(runs: Sequence[RunFolder]) -> list[ResultTable]:
    """Compute the results of runs, one table per benchmark and data; runs that differ only in their seed share a row.

    A folder given twice counts once.

    Raises:
        BadInput: no run was given.
    """
    if not runs:
        raise BadInput("A report needs at least one run: name the folder of a fit.")
    by_benchmark: dict[str, list[Group]] = {}
    for group in group_runs(load_runs(runs)):
        by_benchmark.setdefault(group.benchmark, []).append(group)
    tables = []
    for benchmark, groups in by_benchmark.items():
        parts = on_same_data(groups)
        tables += [result_table(part, name) for part, name in zip(parts, table_names(benchmark, parts), strict=True)]
    return tables


def write_report(runs: Sequence[RunFolder], output: Path) -> None:
    """Write one self-contained HTML page that shows and compares runs, and lists what is missing or broken in them.

    Raises:
        BadInput: no run was given.
    """
    write_text(output, render(result_tables(runs)))


def write_tuning(tuning: Tuning, best: RunFolder, output: Path) -> None:
    """Write the page of a study: its trials, and the run of the best one."""
    write_text(output, render(result_tables([best]), [tuning_section(tuning)]))


def write_comparison(runs: Sequence[RunFolder], folder: Path) -> list[Path]:
    """Write the page as report.html, and its result tables as table.md, table.csv and table.tex; return the files.

    Raises:
        BadInput: no run was given.
    """
    tables = result_tables(runs)
    texts = {
        "report.html": render(tables),
        "table.md": as_markdown(tables),
        "table.csv": as_csv(tables),
        "table.tex": as_latex(tables),
    }
    with writing_together(folder) as staged:
        for name, text in texts.items():
            write_text(staged / name, text)
    return [folder / name for name in texts]
