"""Measure training steps of DeepGraph: time and peak memory by depth, and the share of sampling.

Three versions of the same model: ours (one bias for all layers, fused attention), ours with activation checkpointing,
and a naive dense version that rebuilds the bias in every layer from a `[pairs, hops, heads]` tensor and keeps the
logits. Molecules are those that RDKit ships (16 of 18 to 26 atoms, random features); CLUSTER's graphs are substitutes
from networkx (16 block models of six communities, about 117 nodes).

Versions alternate in each round; the table shows medians. On a CPU peaks are measured in a separate process relative to
its memory before the step (Linux); on CUDA they are those of the allocator.

    python speed/deepgraph.py --quick
    python speed/deepgraph.py --data cluster --device cuda --rounds 20
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import networkx as nx
import torch
from rdkit import Chem, RDConfig, RDLogger
from timing import in_turns, medians, note
from torch import Tensor

from graphbench import GraphBatch
from graphbench.benchmarks import CLUSTER, ZINC
from graphbench.contracts import GraphTable
from graphbench.encodings.substructures import Substructures
from graphbench.nn import PathEdgeTerm, attention_weights
from graphbench.testing import encode
from graphbench_deepgraph import CoverageSampler, DeepGraph
from graphbench_deepgraph.layer import MAX_HOPS, TokenAttention
from graphbench_deepgraph.tokens import TokenLayout

WAYS = ("ours", "checkpointing", "naive")
WALKS = Substructures(cycles=(), paths=(), stars=(), hops=(), walks=(10,))


# -- data --------------------------------------------------------------------------------------------------------


def molecules(count: int) -> Iterator[nx.Graph]:
    """Yield connected molecules of ZINC's usual size, as graphs without features."""
    RDLogger.DisableLog("rdApp.*")  # type: ignore[attr-defined]
    for line in (Path(RDConfig.RDDataDir) / "NCI" / "first_5K.smi").read_text().splitlines()[200:]:
        molecule = Chem.MolFromSmiles(line.split()[0])
        if molecule is None or not 18 <= molecule.GetNumAtoms() <= 26 or len(Chem.GetMolFrags(molecule)) > 1:
            continue
        yield nx.Graph([(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()])
        count -= 1
        if not count:
            return


def communities(count: int) -> Iterator[nx.Graph]:
    """Yield block models with the published probabilities of CLUSTER."""
    for seed in range(count):
        sizes = torch.randint(5, 36, (6,), generator=torch.Generator().manual_seed(seed)).tolist()
        inside_out = [[0.55 if a == b else 0.25 for a in range(6)] for b in range(6)]
        yield nx.stochastic_block_model(sizes, inside_out, seed=seed)


def make(data: str, num_layers: int, way: str, device: str) -> tuple[DeepGraph, GraphBatch]:
    """Return a model in training mode and one batch."""
    torch.manual_seed(0)
    molecular = data == "molecules"
    spec = ZINC.spec if molecular else CLUSTER.spec
    options = {} if molecular else {"hidden_dim": 48, "ffn_dim": 96, "max_degree": 160, "max_distance": 8}
    kind = NaiveDeepGraph if way == "naive" else DeepGraph
    model = kind(
        spec,
        num_layers=num_layers,
        substructures=None if molecular else WALKS,
        sampling=CoverageSampler(coverage=6 if molecular else 2),
        checkpointing=way == "checkpointing",
        **options,  # type: ignore[arg-type]
    )
    graphs = []
    for graph in molecules(16) if molecular else communities(16):
        half = torch.tensor(list(graph.edges())).t()
        edges = torch.cat([half, half.flip(0)], 1)
        record: dict[str, int | Tensor] = {"num_nodes": len(graph), "edge_index": edges}
        record["x"] = torch.randint(spec.node.vocabularies[0], (len(graph), 1))
        if spec.edge.vocabularies:
            record["edge_attr"] = torch.randint(spec.edge.vocabularies[0], (edges.shape[1], 1))
        graphs.append(record)
    table = encode(GraphTable.from_graphs(graphs), model.required_encodings())
    return model.train().to(device), table.batch(range(len(table))).to(device)


# -- the naive baseline ---------------------------------------------------------------------------------------------


class NaiveEdgeTerm(PathEdgeTerm):
    """The edge term, computed through a tensor of pairs, hops and heads."""

    def forward(self, batch: GraphBatch) -> Tensor:
        """Return the same term `[P, H]`."""
        (source, target), graph = batch.edge_index[:, batch.path_step_edge], batch.path_step_batch
        size, start = batch.ptr.diff()[graph], batch.ptr[graph]
        first = batch.pair_ptr[graph] + batch.path_step_goal - start
        pair, following = first + (source - start) * size, first + (target - start) * size
        weight = batch.path_step_weight[:, None]
        mean = self.edges(batch)[batch.path_step_edge] * weight
        none = torch.zeros(len(batch.shortest_path_distance), mean.shape[1], device=mean.device)
        hops = [none.index_add(0, pair, mean)]
        inside = [torch.bincount(pair, minlength=len(hops[0])) > 0]
        for _ in range(MAX_HOPS - 1):
            hops.append(none.index_add(0, pair, hops[-1][following] * weight))
            inside.append(torch.zeros_like(inside[0]).index_fill(0, pair[inside[-1][following]], True))
        total = torch.einsum("pkh,khg->pg", torch.stack(hops, 1), self.hops[:MAX_HOPS])
        return total / torch.stack(inside, 1).sum(1, keepdim=True).clamp(min=1)


class NaiveAttention(TokenAttention):
    """Attention that keeps its logits, over one padded block."""

    def forward(self, x: Tensor, tokens: TokenLayout, biases: object) -> Tensor:  # type: ignore[override]
        """Attend with the bias that `biases` computes."""
        q, k, v = tokens.dense.to_heads(self.in_proj(x), 3, self.num_heads)
        weights = attention_weights(q, k, biases())  # type: ignore[operator]
        mixed = torch.nn.functional.dropout(weights, self.dropout, self.training) @ v
        return self.out_proj(tokens.dense.from_heads(mixed))


class NaiveDeepGraph(DeepGraph):
    """The same model without this plug-in's optimisations."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        if self.bias.edge_term is not None:
            self.bias.edge_term.__class__ = NaiveEdgeTerm
        for layer in self.layers:
            layer.attention.__class__ = NaiveAttention

    def output(self, batch: GraphBatch) -> Tensor:
        """Return the nodes after the last layer."""
        prepared = self._prepare(
            self.precomputed(batch, torch.default_generator if self.training else None), 0, cut=False
        )
        x = self._embed(batch, prepared)
        for layer in self.layers:
            x = layer(x, prepared.tokens, lambda: self.bias(batch, prepared.tokens))
        return self.readout(x)[prepared.tokens.node]


def step(model: DeepGraph, batch: GraphBatch) -> None:
    """Run forward and backward."""
    model.zero_grad()
    node = model.output(batch) if isinstance(model, NaiveDeepGraph) else model(batch).node
    node.square().mean().backward()
    if node.is_cuda:
        torch.cuda.synchronize()


def check(data: str) -> None:
    """Stop unless the naive version gives the same result as ours.

    Raises:
        SystemExit: it does not.
    """
    naive, batch = make(data, 2, "naive", "cpu")
    ours, _ = make(data, 2, "ours", "cpu")
    ours.load_state_dict(naive.state_dict())
    with torch.no_grad():
        difference = float((ours.eval()(batch).node - naive.eval().output(batch)).abs().max())  # type: ignore[operator]
    if difference > 1e-4:
        raise SystemExit(f"The naive path differs from ours by {difference}.")


# -- measuring ---------------------------------------------------------------------------------------------------


def resident_megabytes(field: str) -> float:
    """Return the resident memory of this process, now (`VmRSS`) or at its peak (`VmHWM`); Linux only."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def peak_megabytes(data: str, num_layers: int, way: str, device: str) -> float:
    """Return the peak of a training step above the memory before it; runs in a separate process."""
    torch.set_num_threads(1)
    model, batch = make(data, num_layers, way, device)
    if device == "cuda":
        step(model, batch)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(model, batch)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    before_step = resident_megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    step(model, batch)
    return resident_megabytes("VmHWM") - before_step


def prepare(model: DeepGraph, batch: GraphBatch) -> None:
    """Run the preparation of a step: draw substructures, order them, lay out the tokens."""
    model._prepare(model.precomputed(batch, torch.default_generator), 0, cut=True)
    if batch.ptr.is_cuda:
        torch.cuda.synchronize()


def sample(model: DeepGraph, batch: GraphBatch) -> None:
    """Run only coverage sampling."""
    kind = model.substructures.kind_of_type.to(batch.ptr.device)[batch.substructure_type]
    seeds = model.seeds(batch, 0, torch.default_generator)
    ptr = batch.substructure_ptr
    model.sampling(batch.member_node, batch.member_substructure, kind, ptr, batch.ptr, seeds)
    if batch.ptr.is_cuda:
        torch.cuda.synchronize()


def table(data: str, depths: list[int], rounds: int, device: str) -> None:
    """Print time, peak and shares by depth."""
    check(data)
    print(f"\n{data}: training step; sampling and preparation (with it) as shares of our step")
    print(f"{'layers':>6}  {'way':<14}{'s':>8}{'/ ours':>8}{'peak MB':>10}{'sampling':>10}{'prepared':>10}")
    for depth in depths:
        pairs = {way: make(data, depth, way, device) for way in WAYS}
        calls: dict[str, Callable[[], object]] = {way: partial(step, *pair) for way, pair in pairs.items()}
        calls |= {"sampling": partial(sample, *pairs["ours"]), "prepared": partial(prepare, *pairs["ours"])}
        turns = in_turns(calls, rounds)
        seconds = medians(turns)
        for way in ("checkpointing", "naive"):
            note(f"{data}, {depth} layers", "ours", way, turns)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            for way in WAYS:
                peak = pool.apply(peak_megabytes, (data, depth, way, device))
                row = f"{depth:6d}  {way:<14}{seconds[way]:8.3f}{seconds[way] / seconds['ours']:8.2f}{peak:10.0f}"
                if way == "ours":
                    row += "".join(f"{seconds[name] / seconds['ours']:10.1%}" for name in ("sampling", "prepared"))
                print(row, flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Time and memory of DeepGraph's training steps.")
    parser.add_argument("--data", choices=("molecules", "cluster"), help="one of the two; both by default")
    parser.add_argument("--depths", type=int, nargs="+", default=[12, 24, 48])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="molecules, 12 layers, two rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if options.device == "cuda" else platform.machine()
    rounds = 2 if options.quick else options.rounds
    print(f"torch {torch.__version__}, {where}, 1 CPU thread, medians of {rounds}")
    names = ["molecules"] if options.quick else [options.data] if options.data else ["molecules", "cluster"]
    for name in names:
        table(name, [12] if options.quick else options.depths, rounds, options.device)


if __name__ == "__main__":
    main()
