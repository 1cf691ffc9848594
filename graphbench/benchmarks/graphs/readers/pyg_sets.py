"""Load data sets of PyG by name, and restrict those that a run from someone else may name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from graphbench.benchmarks.graphs.readers.third_party import Named, made, raw_files, raw_key
from graphbench.contracts import SPLITS
from graphbench.errors import BadInput, UnknownName
from graphbench.registry.importing import check

#: Defaults of `split` in PyG classes for which it names a split; in others it is a method to split nodes.
_BY_SPLIT = (None, "train", "trainval")
#: Maps a class to the arguments that a run from someone else may give it. Each module was searched, in PyG 2.8.1, for
#: `eval`, for pickles that are read by other means than `pickle.load` (which `third_party.made` restricts, also in
#: NumPy), and for other network access; a test searches the installed PyG. Most classes for heterogeneous graphs,
#: meshes and language models are left out, and so are arguments that name files, addresses, functions, classes, numbers
#: of processes or further options.
ADMITTED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((
        "Actor", "AmazonProducts", "BA2MotifDataset", "BAMultiShapesDataset", "BrcaTcga", "CoraFull",
        "DeezerEurope", "EllipticBitcoinDataset", "EmailEUCore", "FacebookPagePage", "Flickr", "GitHub",
        "KarateClub", "LastFMAsia", "NELL", "PolBlogs", "QM7b", "QM9", "Reddit", "Reddit2", "Yelp",
    ), ()),
    **dict.fromkeys((
        "Airports", "Amazon", "AttributedGraphDataset", "Coauthor", "GemsecDeezer", "HeterophilousGraphDataset",
        "LINKXDataset", "MoleculeNet", "NeuroGraphDataset", "RelLinkPredDataset", "SNAPDataset", "Twitch", "WebKB",
    ), ("name",)),
    **dict.fromkeys((
        "AQSOL", "MalNetTiny", "PPI",
    ), ("split",)),
    "BAShapes": ("connection_distribution",),
    "BitcoinOTC": ("edge_window_size",),
    "CitationFull": ("name", "to_undirected"),
    "CityNetwork": ("name", "augmented"),
    "EllipticBitcoinTemporalDataset": ("t",),
    "FakeDataset": (
        "num_graphs", "avg_num_nodes", "avg_degree", "num_channels", "edge_dim", "num_classes", "task",
        "is_undirected",
    ),
    "GNNBenchmarkDataset": ("name", "split"),
    "GraphLandDataset": ("name", "split", "to_undirected"),
    "LRGBDataset": ("name", "split"),
    "MD17": ("name", "train"),
    "MNISTSuperpixels": ("train",),
    "MixHopSyntheticDataset": ("homophily",),
    "Planetoid": ("name", "split", "num_train_per_class", "num_val", "num_test"),
    "RandomPartitionGraphDataset": (
        "num_classes", "num_nodes_per_class", "node_homophily_ratio", "average_degree", "num_graphs",
        "num_channels", "is_undirected",
    ),
    "ShapeNet": ("categories", "include_normals", "split"),
    "StochasticBlockModelDataset": ("block_sizes", "edge_probs", "num_graphs", "num_channels", "is_undirected"),
    "SuiteSparseMatrixCollection": ("group", "name"),
    "TUDataset": ("name", "use_node_attr", "use_edge_attr", "cleaned"),
    "UPFD": ("name", "feature", "split"),
    "WikiCS": ("is_undirected",),
    "WikipediaNetwork": ("name", "geom_gcn_preprocess"),
    "ZINC": ("subset", "split"),
}  # fmt: skip
#: Valid text arguments, which become part of an address and of a folder name.
_PLAIN = re.compile(r"(?!.*\.\.)[\w .+-]*", re.ASCII)


def _check_admitted(name: str, arguments: Mapping[str, Any]) -> None:
    """Refuse classes and arguments that a run from someone else may not name; the user may name all of them."""
    admitted, path = ADMITTED.get(name), f"torch_geometric.datasets.{name}"
    if admitted is None:
        check(path, listed=False)
        return
    for key, value in arguments.items():
        if key not in admitted or not _is_plain(value):
            check(path, listed=False, shown=f"{path} with {key}={value!r}")


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, int | float) or (isinstance(value, str) and bool(_PLAIN.fullmatch(value)))


def from_pyg(source: str, name: str, arguments: dict[str, Any], root: Path) -> Named:
    """Find a class of `torch_geometric.datasets`, with its published splits if an option `split` names them.

    Arguments have names, or positions as text.

    Raises:
        UnknownName: PyG has no such class, or the class has no such argument.
        BadInput: there are too many arguments, or a run from someone else may not name them.
    """
    import torch_geometric.datasets

    if name not in torch_geometric.datasets.__all__:
        raise UnknownName("data set of PyG", name, torch_geometric.datasets.__all__)
    cls = getattr(torch_geometric.datasets, name)
    options = inspect.signature(cls.__init__).parameters
    positional = [option for option in options if option not in ("self", "root")]
    for number in [number for number in arguments if number.isdecimal()]:
        if int(number) >= len(positional):
            raise BadInput(f"--data.source {source}: {name} takes {', '.join(positional)}.")
        option = positional[int(number)]
        if option in arguments:
            raise BadInput(f"--data.source {source}: {option} is given by position and by name.")
        arguments[option] = arguments.pop(number)
    for option in arguments:
        if option not in positional and not any(p.kind is p.VAR_KEYWORD for p in options.values()):
            raise UnknownName(f"argument of {name}", option, positional)
    _check_admitted(name, arguments)
    folder = root / name
    fixed = {"root": str(folder)} if "root" in options else {}

    def make(**chosen: Any) -> list[Any]:
        return list(made(source, folder, lambda: cls(**fixed, **arguments, **chosen)))

    @cache
    def load() -> Any:
        if "split" not in options or "split" in arguments or options["split"].default not in _BY_SPLIT:
            return make()
        return {split: make(split=split) for split in SPLITS}

    def key() -> dict[str, Any]:
        if not fixed:
            return {}
        inner = next((folder / value for value in arguments.values() if isinstance(value, str) and value), folder)
        base = inner if inner.is_dir() else folder
        if not raw_files(base):
            load()  # fetches them
            base = inner if inner.is_dir() else folder
        described = {"class": name, "arguments": {k: str(v) for k, v in arguments.items()}}
        return described | {"version": torch_geometric.__version__, "raw": raw_key(base)}

    return Named(source, "pyg", load, key, local="root" not in options)
