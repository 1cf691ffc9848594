"""Memory of large graphs: estimated, logged, and refused above the limit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from graphbench.benchmarks.graphs.by_nodes.memory import check_attention, check_encodings, memory_of
from graphbench.encodings import RWSE, EffectiveResistance, LapPE, ShortestPaths
from graphbench.errors import BadInput
from graphbench.nn import MultiHeadAttention, attention_weights

ARXIV = (170_000, 2_400_000)


def test_memory_of_this_machine():
    meminfo = Path("/proc/meminfo")
    if not meminfo.is_file():
        pytest.skip("only Linux has /proc/meminfo")
    total = int(meminfo.read_text().split()[1]) * 1024
    assert memory_of() == pytest.approx(total, rel=0.01)


def test_layers_say_what_their_weights_take():
    attention = MultiHeadAttention(8, num_heads=2)
    heads = torch.zeros(1, 2, 30, 4)
    assert attention.pair_bytes(30) == attention_weights(heads, heads).nbytes


def test_encodings_of_nodes_and_edges_are_affordable_and_those_of_pairs_are_not(caplog):
    with caplog.at_level("INFO"):
        check_encodings([LapPE(16), RWSE(20)], *ARXIV, 8, "arxiv")
    assert [record.message.split(" takes about ")[0] for record in caplog.records] == [
        f"arxiv: {encoding!r} of a graph of 170,000 nodes" for encoding in (LapPE(16), RWSE(20))
    ]
    with pytest.raises(BadInput, match=r"EffectiveResistance\(.*\) of a graph of 170,000 nodes takes up to 1,291"):
        check_encodings([EffectiveResistance()], *ARXIV, 64, "arxiv")
    check_encodings([EffectiveResistance()], 2000, 8000, 1, "small")
    # A pair took 44, 24 and 180 bytes in scale-free graphs of 3,000 nodes, most of them intermediate results.
    for encoding in (EffectiveResistance(), ShortestPaths(), ShortestPaths(with_edges=True)):
        with pytest.raises(BadInput, match="20,000 nodes takes up to"):
            check_encodings([encoding], 20_000, 120_000, 8, "medium")


def test_attention_counts_in_every_layer():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), MultiHeadAttention(8, num_heads=2)) for _ in range(3)])
    check_attention(model, 10_000, 2.3, "graph")
    with pytest.raises(BadInput, match=r"all pairs of 10,000 nodes, in 3 layers, takes up to 2.2 GiB"):
        check_attention(model, 10_000, 2.2, "graph")
    check_attention(nn.Linear(8, 8), 10**9, 0.001, "graph")
