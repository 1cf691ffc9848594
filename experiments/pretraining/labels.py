"""Compute RDKit's descriptors of the 249,456 molecules of the extra `zinc`, as labels to pre-train on.

    python experiments/pretraining/labels.py runs/pretrain

writes `labels.parquet` (columns `smiles`, `split` and one column per label) and `labels.yaml` (the options of
`graphbench fit` for the file and its targets). Raw descriptors are stored in parts, in a random order of the molecules
with a fixed seed; a stopped run resumes with the next part. A core processes about 200 molecules per second.

Labels are standardised by mean and standard deviation of the training molecules and clipped to 6 standard deviations.
Descriptors that are undefined for a molecule are omitted, and those for which fewer than 1 of 1,000 training molecules
differ from the most frequent value.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from graphbench.benchmarks.molecules.chemistry.descriptors import compute_descriptors, descriptor_names
from graphbench.benchmarks.molecules.zinc_files import molga_file

SEED = 0
PART = 10_000
HELD_OUT = 2_500  # molecules for validation, and as many for testing
LIMIT = 6.0  # standard deviations
RARE = 1e-3  # share of molecules that must differ from the most frequent value


def compute_parts(folder: Path, smiles: np.ndarray, workers: int) -> np.ndarray:
    """Return raw descriptors float32 `[M, D]` of the molecules, computing parts missing from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = []
    for start in range(0, len(smiles), PART):
        path = folder / f"raw-{start:06d}.npy"
        if not path.is_file():
            values = compute_descriptors("rdkit2d", smiles[start : start + PART].tolist(), workers)
            partial = path.with_suffix(".partial")
            with partial.open("wb") as file:
                np.save(file, values)
            partial.rename(path)
            print(f"{path.name} written", flush=True)
        parts.append(np.load(path))
    return np.concatenate(parts)


def choose_columns(values: np.ndarray) -> np.ndarray:
    """Return the numbers of the columns that are defined everywhere and vary enough."""
    chosen = []
    for column in range(values.shape[1]):
        one = values[:, column]
        if not np.isfinite(one).all():
            continue
        frequent = np.unique(one, return_counts=True)[1].max()
        if 1 - frequent / len(one) >= RARE:
            chosen.append(column)
    return np.array(chosen)


def standardise(values: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Standardise columns using the training rows, and clip: float32 `[M, D]`."""
    exact = values.astype(np.float64)
    mean, std = exact[train].mean(0), exact[train].std(0)
    return np.clip((exact - mean) / std, -LIMIT, LIMIT).astype(np.float32)


def main() -> None:
    """Compute, choose, scale and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--molecules", type=int, default=249_456, help="number of molecules, in the random order")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    options = parser.parse_args()
    smiles = np.array([line.split()[0] for line in molga_file().read_text("utf-8").splitlines()], dtype=object)
    smiles = smiles[np.random.RandomState(SEED).permutation(len(smiles))]  # any first parts are a sample of all
    smiles = smiles[: options.molecules]
    raw = compute_parts(options.folder / "parts", smiles, options.workers)
    split = np.full(len(smiles), "train", dtype=object)
    split[:HELD_OUT], split[HELD_OUT : 2 * HELD_OUT] = "val", "test"
    train = split == "train"
    columns = choose_columns(raw[train])
    names = [descriptor_names("rdkit2d")[column] for column in columns]
    labels = standardise(raw[:, columns], train)
    frame = pd.DataFrame({"smiles": smiles, "split": split, **dict(zip(names, labels.T, strict=True))})
    path = options.folder / "labels.parquet"
    frame.to_parquet(path, index=False)
    data = {"file": str(path), "target": names, "split": "column", "split_column": "split"}
    (options.folder / "labels.yaml").write_text(yaml.safe_dump({"data": {"init_args": data}}))
    print(f"{path}: {len(smiles):,} molecules, {len(names)} of {raw.shape[1]} descriptors")


if __name__ == "__main__":
    main()
