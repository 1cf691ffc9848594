"""The encoding contract catches every fault that it checks for."""

from __future__ import annotations

import pytest
import torch

from graphbench.contracts import Column, Encoded, Encoding, PositionalEncoder
from graphbench.contracts.table import NODE, pointer
from graphbench.testing import EncodingContract, PositionalEncoderContract


class Flawed(Encoding):
    """In-degrees, and one row per graph on its own axis that points at a node; with a flaw by name."""

    def __init__(self, flaw: str = "") -> None:
        self.flaw = flaw

    def parameters(self):
        return {"flaw": (self.flaw,)} if self.flaw == "tuple in parameters" else {"flaw": self.flaw}

    @property
    def layout(self):
        return {"in_degree": Column(NODE), "last_node": Column("mark", index_of=NODE)}

    def compute(self, graphs):
        target = graphs.columns["edge_index"][:, 1] + torch.repeat_interleave(graphs.ptr[NODE][:-1], graphs.num_edges)
        degree = torch.bincount(target, minlength=int(graphs.ptr[NODE][-1])).float()
        last = graphs.num_nodes - 1
        match self.flaw:
            case "sees the whole table":
                degree = degree / degree.sum().clamp(min=1)
            case "one row too few":
                degree = degree[1:]
            case "points outside":
                last = last + 1
            case "is random":
                degree = degree + torch.rand(1)
            case "changes the graphs":
                graphs.columns["x"].add_(1)
            case "numbers nodes":
                degree = torch.arange(len(degree)) - torch.repeat_interleave(graphs.ptr[NODE][:-1], graphs.num_nodes)
        marks = pointer(torch.ones(len(graphs), dtype=torch.int64))
        return Encoded({"in_degree": degree, "last_node": last}, {"mark": marks})


def _contract(**attributes):
    return type("Contract", (EncodingContract,), {"encoding": Flawed, **attributes})()


class TestSound(EncodingContract):
    encoding = Flawed


@pytest.mark.parametrize(
    ("flaw", "check", "message"),
    [
        ("tuple in parameters", "parameters_are_json", "on the way to JSON"),
        ("one row too few", "rows_match_the_layout", "in_degree: .* rows for"),
        ("points outside", "smallest_graphs_are_encoded", "last_node must number the rows of 'node'"),
        ("sees the whole table", "chunks_do_not_matter", "in_degree in chunks"),
        ("is random", "computing_repeats_and_leaves_graphs_alone", "computing in_degree twice"),
        ("changes the graphs", "computing_repeats_and_leaves_graphs_alone", "compute changed x"),
        ("numbers nodes", "node_order_moves_rows", "in_degree under another node order"),
    ],
)
def test_flawed_encoding_is_caught(flaw, check, message):
    with pytest.raises(AssertionError, match=message):
        getattr(_contract(options={"flaw": flaw}, equivariant=True), f"test_{check}")()


class DegreePosition(PositionalEncoder):
    """Maps in-degrees to a width."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.encodings = (Flawed(),)
        self.map = torch.nn.Linear(1, dim)

    def forward(self, batch):
        return self.map(batch.in_degree[:, None].to(self.map.weight.dtype))


class TestPositions(PositionalEncoderContract):
    encoder = DegreePosition
    options = {"dim": 4}  # noqa: RUF012 - as plug-in authors write it
