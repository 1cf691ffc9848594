"""Test which of BREC's 400 pairs of graphs, indistinguishable by weak isomorphism tests, a model can distinguish.

Wang & Zhang, "An Empirical Study of Realized GNN Expressiveness", ICML 2024, https://github.com/GraphPKU/BREC. The
authors' file `brec_v3.npy` (MIT licence) contains graph6 strings: for each of 400 pairs (G, H) 32 relabellings of both,
G, H, G, H, ..., and then, again for each pair, 32 pairs of two relabellings of G only.

A model is trained for each pair so that the embeddings of G and H point in different directions (cosine loss, 20
epochs, Adam at 1e-4 with weight decay 1e-4, batches of 16 graphs, stopping at a loss of 0.2). Then, with differences
d_r of the embeddings of G and H in relabelling r, mean m and covariance S,

    T^2 = m^T S^+ m

distinguishes them if it is above 72.34 and differs from the value for G and itself. That bound is `31 F`, F being the
95 % quantile of the F distribution with 16 and 16 degrees of freedom: the bound of Hotelling's `32 m^T S^-1 m` for 32
differences of 16 numbers. The authors' code omits the factor 32 from T^2 on both sides, and so does this script, so its
numbers are comparable with theirs. A pair is reliable if the value for G and itself is below the bound. If all
differences are equal, the covariance is 1e-7.

    python experiments/brec.py brec_v3.npy --model GPS --options num_layers=4 hidden_dim=32 --output brec.csv
    python experiments/brec.py brec_v3.npy --model PPGT --pairs 0 60 --output brec.csv

Without `--pairs` all pairs are run, each in seconds to minutes on one core. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from graphbench import BenchmarkModule, BenchmarkSpec, Features, GraphTable, registry
from graphbench.errors import BadInput
from graphbench.experiments import write_csv
from graphbench.nn import HeadConfig
from graphbench.testing import encode

RELABELLINGS, DIM = 32, 16
THRESHOLD = 72.34
#: Variance of embeddings that are equal in all relabellings, as for some small graphs; advised by the authors.
EPSILON = 1e-7
#: Kind of graphs -> first pair and end (exclusive).
PARTS = {
    "Basic": (0, 60),
    "Regular": (60, 160),
    "Extension": (160, 260),
    "CFI": (260, 360),
    "4-Vertex_Condition": (360, 380),
    "Distance_Regular": (380, 400),
}
SPEC = BenchmarkSpec(
    "BREC", "graph-regression", Features(), Features(), "MAE", higher_is_better=False, loss="L1", num_targets=DIM
)


@dataclass(frozen=True)
class Verdict:
    """The results of a model for a pair.

    Args:
        statistic: T^2 of G and H.
        itself: T^2 of G and itself.
    """

    statistic: float
    itself: float

    @property
    def distinguished(self) -> bool:
        """Return whether G and H differ."""
        return self.statistic > THRESHOLD and not np.isclose(self.statistic, self.itself, atol=1e-6, rtol=1e-5)

    @property
    def reliable(self) -> bool:
        """Return whether G does not differ from itself."""
        return self.itself < THRESHOLD


def read(path: Path) -> np.ndarray:
    """Read the strings `[2, pairs, 2 * RELABELLINGS]`: pairs, and pairs of one graph.

    Raises:
        BadInput: the file does not contain graph6 strings, or not complete pairs.
    """
    try:
        found = np.load(path, allow_pickle=False)  # strings have a separate type; objects could run code
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} is not a NumPy file of graph6 strings: {error}") from error
    if found.ndim != 1 or found.dtype.kind != "S" or not len(found) or len(found) % (4 * RELABELLINGS):
        raise BadInput(
            f"{path} has {found.dtype}, shape {found.shape}; expected graph6 strings, {4 * RELABELLINGS} per pair."
        )
    return found.reshape(2, -1, 2 * RELABELLINGS)


def table_of(strings: Sequence[bytes]) -> GraphTable:
    """Create graphs without features, with both directions of each edge, from graph6 strings.

    Raises:
        BadInput: a string is not graph6.
    """
    graphs = []
    for text in strings:
        try:
            graph = nx.from_graph6_bytes(bytes(text).strip())
        except (nx.NetworkXError, ValueError, IndexError) as error:
            raise BadInput(f"{text!r} is not a graph in graph6: {error}") from error
        edges = torch.tensor(list(graph.to_directed().edges), dtype=torch.int64).reshape(-1, 2)
        graphs.append({"num_nodes": graph.number_of_nodes(), "edge_index": edges.T.contiguous()})
    return GraphTable.from_graphs(graphs)


def t_squared(first: Tensor, second: Tensor) -> float:
    """Compute T^2 of embeddings `[RELABELLINGS, DIM]` of both graphs, in float64.

    Examples:
        >>> t_squared(torch.tensor([[3.0], [1.0]]), torch.tensor([[0.0], [0.0]]))  # mean 2, variance 2
        2.0
    """
    difference = (first - second).double()
    mean, covariance = difference.mean(0), torch.cov(difference.T).reshape(2 * difference.shape[1:])
    if not covariance.any():
        covariance = EPSILON * torch.eye(len(mean), dtype=mean.dtype)
    return float(mean @ torch.linalg.pinv(covariance, hermitian=True) @ mean)


def judge(strings: np.ndarray, architecture: str, options: Mapping[str, Any], epochs: int = 20) -> Verdict:
    """Train a model on one pair, and test it.

    Args:
        strings: graph6 of the pair and of G against itself `[2, 2 * RELABELLINGS]`.
        architecture: registered name.
        options: options of the architecture.
        epochs: maximum number of epochs.
    """
    cls = registry.load("architectures", architecture)
    module = BenchmarkModule(
        SPEC, lambda spec: cls(spec, **options), head=HeadConfig(pooling="add"), standardize_targets=False
    )
    tables = [encode(table_of(part), module.required_encodings()) for part in strings]
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-4, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    module.train()
    for _ in range(epochs):
        total = 0.0
        for rows in range(0, 2 * RELABELLINGS, 16):
            embedded = module(tables[0].batch(range(rows, rows + 16)))
            loss = F.cosine_embedding_loss(embedded[0::2], embedded[1::2], -torch.ones(8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += 8 * float(loss.detach()) / RELABELLINGS
        if total < 0.2:
            break
        schedule.step(total)
    module.eval()
    with torch.no_grad():
        embedded = [module(table.batch(range(len(table)))) for table in tables]
    return Verdict(*(t_squared(values[0::2], values[1::2]) for values in embedded))


def main(arguments: Sequence[str] | None = None) -> int:
    """Test pairs, write a row for each, and print how many of each part are distinguished."""
    parser = argparse.ArgumentParser(description="Test which pairs of BREC a model distinguishes.", allow_abbrev=False)
    parser.add_argument("file", type=Path, help="brec_v3.npy")
    parser.add_argument("--model", required=True, help="registered architecture")
    parser.add_argument("--options", nargs="*", default=[], metavar="NAME=VALUE", help="options of the architecture")
    parser.add_argument("--pairs", nargs=2, type=int, metavar=("FIRST", "END"), help="only pairs FIRST to END - 1")
    parser.add_argument("--seed", type=int, default=2023)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--output", type=Path, required=True, help="CSV with a row for each pair")
    asked = parser.parse_args(arguments)
    strings = read(asked.file)
    options = {name: yaml.safe_load(value) for name, _, value in (one.partition("=") for one in asked.options)}
    rows: list[dict[str, Any]] = []
    for pair in range(*(asked.pairs or (0, strings.shape[1]))):
        torch.manual_seed(asked.seed)
        found = judge(strings[:, pair], asked.model, options, asked.epochs)
        part = next(name for name, (first, behind) in PARTS.items() if first <= pair < behind)
        rows.append(
            {
                "pair": pair,
                "part": part,
                "statistic": found.statistic,
                "itself": found.itself,
                "distinguished": int(found.distinguished),
                "reliable": int(found.reliable),
            }
        )
        write_csv(asked.output, rows)
    for part in dict.fromkeys(row["part"] for row in rows):
        those = [row for row in rows if row["part"] == part]
        told, unreliable = sum(row["distinguished"] for row in those), sum(1 - row["reliable"] for row in those)
        sys.stdout.write(f"{part:20} {told:4} of {len(those)} told apart, {unreliable} unreliable\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
