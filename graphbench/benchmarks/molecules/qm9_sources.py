"""Where QM9 comes from: the raw files that PyG fetches, or the files that the package qm9pack ships."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from graphbench.benchmarks.molecules.qm9_structures import MolBlock, PackRecord, Record
from graphbench.benchmarks.molecules.qm9_targets import QM9_TARGETS, count_elements, csv_targets, pack_targets
from graphbench.data.download import fetch, fetch_members
from graphbench.data.package_files import file_sha256, package_file
from graphbench.errors import CorruptData

_SDF, _CSV, _SKIPPED = "gdb9.sdf", "gdb9.sdf.csv", "uncharacterized.txt"
#: The files of qm9pack 1.0.3 that hold the molecules, and their SHA-256.
PACK_FILES = {
    "qm9_part1.csv": "19f0a5d595462d52cd82eef3370f3e9eb55a1f52cb14985657200349568deff3",
    "qm9_part2.csv": "2bca113fdc0b28a13563c80ed9b240e934f3da6c64c64fe74ddb4f0f36036e61",
    "qm9_part3.csv": "9c5efb5733d2af149db8d95d36ff198b4ffed12d9f7b344220a1e5877d5c6a43",
}
_ADVICE = "Or use the same molecules without a network: pip install 'graphbench-lightning[qm9]' and source=qm9pack."


@dataclass(frozen=True)
class QM9Rows:
    """The molecules that are characterised consistently, in the published order.

    Args:
        records: one per molecule.
        names: "gdb_1" and so on, one per molecule.
        targets: physical targets that were asked for, float64 `[molecules, T]`.
    """

    records: Sequence[Record]
    names: list[str]
    targets: np.ndarray


def addresses() -> tuple[str, str]:
    """Where PyG fetches QM9: the archive with structures and targets, and the list of inconsistent molecules."""
    from torch_geometric.datasets import QM9

    return QM9.raw_url, QM9.raw_url2


def fetch_published(folder: Path) -> Path:
    """PyG's raw folder `folder/raw`, completed by download where files are missing.

    Raises:
        MissingData: a file could not be fetched; says which, from where, and where to put it.
        CorruptData: the archive is damaged or is another one.
    """
    raw = folder / "raw"
    archive, listed = addresses()
    others = {} if (raw / _SKIPPED).is_file() else {_SKIPPED: listed}
    fetch_members(archive, raw, {_SDF: _SDF, _CSV: _CSV}, what="QM9", others=others, advice=_ADVICE)
    fetch(listed, raw, _SKIPPED, what="the list of inconsistent molecules of QM9", advice=_ADVICE)
    return raw


def read_published(raw: Path, targets: Sequence[str]) -> QM9Rows:
    """PyG's raw files: `gdb9.sdf`, `gdb9.sdf.csv` and `uncharacterized.txt`.

    Args:
        raw: their folder.
        targets: names of physical targets, see `QM9_TARGETS`; may be none.

    Raises:
        CorruptData: a file is damaged, or they do not belong together.
    """
    table = _read_csv(raw / _CSV, ["mol_id", *{QM9_TARGETS[name].csv_column for name in targets}])
    skipped = _read_skipped(raw / _SKIPPED, len(table))
    kept = np.setdiff1d(np.arange(len(table)), skipped)
    blocks = list(_records(raw / _SDF))
    if len(blocks) != len(table):
        raise CorruptData(
            f"{raw / _SDF} holds {len(blocks):,} records, {_CSV} has {len(table):,} rows. Fetch both again."
        )
    columns = {str(name): table[name].to_numpy() for name in table.columns}
    values = csv_targets(columns, targets) if targets else np.empty((len(table), 0))
    names = columns["mol_id"][kept].tolist()
    return QM9Rows([MolBlock(blocks[row]) for row in kept], names, values[kept])


def _read_csv(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    try:
        return pd.read_csv(path, usecols=list(columns))
    except (ValueError, OSError) as error:
        raise CorruptData(
            f"{path} was not read ({type(error).__name__}: {error}). Delete it and fetch it again."
        ) from error


def _read_skipped(path: Path, num_rows: int) -> np.ndarray:
    """Rows, from 0, of the molecules that the list names: nine lines of heading, a line each, a closing line.

    Raises:
        CorruptData: a line does not begin with the number of another molecule.
    """
    lines = [line.split() for line in path.read_text("utf-8", errors="replace").splitlines()[9:-1]]
    numbers = {int(cells[0]) for cells in lines if cells and cells[0].isdecimal()}
    if not lines or len(numbers) != len(lines) or min(numbers) < 1 or max(numbers) > num_rows:
        raise CorruptData(
            f"{path} is not the list of inconsistent molecules, numbers from 1 to {num_rows:,}. Delete it and fetch "
            "it again."
        )
    return np.array(sorted(numbers)) - 1


def _records(path: Path) -> Iterator[str]:
    """The text of every record of an SDF file."""
    lines: list[str] = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("$$$$"):
                yield "".join(lines)
                lines.clear()
            else:
                lines.append(line)
    if any(line.strip() for line in lines):
        raise CorruptData(f"{path} ends inside a record. Delete it and fetch it again.")


def pack_paths() -> list[Path]:
    """The three files of qm9pack; the package itself is not imported.

    Raises:
        MissingExtra: qm9pack is not installed.
        CorruptData: its files are not those of version 1.0.3.
    """
    paths = [
        package_file("qm9pack", f"data/{name}", extra="qm9", purpose="QM9 with source=qm9pack") for name in PACK_FILES
    ]
    for path in paths:
        if file_sha256(path) != PACK_FILES[path.name]:
            raise CorruptData(f"{path} is not the file that qm9pack 1.0.3 ships (checksum differs).")
    return paths


def read_pack(paths: Sequence[Path], targets: Sequence[str], geometry: bool) -> QM9Rows:
    """The files of qm9pack, in the published order of molecules.

    Args:
        paths: the files.
        targets: names of physical targets, see `QM9_TARGETS`; may be none.
        geometry: take the coordinates too.

    Raises:
        CorruptData: a file is damaged.
    """
    physical = {QM9_TARGETS[name].pack_column for name in targets}
    wanted = ["Index", "SMILES", "Elements", *(["XYZ_Ang"] if geometry else []), *sorted(physical)]
    table = pd.concat([_read_csv(path, wanted) for path in paths], ignore_index=True)
    elements = [tuple(text.strip("[]").replace("'", "").split(",")) for text in table["Elements"]]
    if geometry:
        records = [PackRecord(*row) for row in zip(table["SMILES"], elements, table["XYZ_Ang"], strict=True)]
    else:
        records = [PackRecord(smiles) for smiles in table["SMILES"]]
    values = np.empty((len(table), 0))
    if targets:
        columns = {name: table[name].to_numpy() for name in physical}
        values = pack_targets(columns, np.array([count_elements(symbols) for symbols in elements]), targets)
    return QM9Rows(records, [f"gdb_{number}" for number in table["Index"]], values)
