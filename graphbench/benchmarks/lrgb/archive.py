"""Where LRGB's files come from: a folder that holds them, an archive put there by hand, or PyG's address."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from graphbench.contracts import SPLITS
from graphbench.data.download import fetch_members


def address(name: str) -> str:
    """Where PyG fetches one of LRGB's data sets."""
    from torch_geometric.datasets import LRGBDataset

    return LRGBDataset.urls[name]


def members(name: str) -> dict[str, str]:
    """Path inside the archive of each split's file."""
    from torch_geometric.datasets import LRGBDataset

    suffix = "pickle" if name.endswith("-sp") else "pt"
    return {split: f"{LRGBDataset.dwnld_file_name[name]}/{split}.{suffix}" for split in SPLITS}


def fetch(name: str, root: Path, advice: str = "") -> dict[str, Path]:
    """The file of each split, `root/NAME/raw/train.pickle` (or `.pt`) and so on, as PyG's `LRGBDataset` lays them out.

    Files that are there are taken as they are; else the archive out of `root/NAME/raw`, where somebody put it; else it
    is downloaded.

    Args:
        name: in PyG.
        root: of the five data sets.
        advice: what to do without a network, as whole sentences.

    Raises:
        MissingData: it could not be fetched; says what, from where, and where to put it.
        CorruptData: the archive is damaged or is not this data set's.
    """
    inside = {PurePosixPath(member).name: member for member in members(name).values()}
    paths = fetch_members(address(name), root / name / "raw", inside, what=name, advice=advice)
    return dict(zip(SPLITS, paths.values(), strict=True))
