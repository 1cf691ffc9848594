"""ElectricFlow: compute currents, heat or eigenvectors of networks that are sampled during training."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from graphbench.benchmarks.base import GraphBenchmark
from graphbench.benchmarks.electric_flow import specs
from graphbench.benchmarks.electric_flow.loader import FreshLoader
from graphbench.benchmarks.electric_flow.resistor_graphs import Family, TableWiring, Wiring, make_wiring
from graphbench.benchmarks.electric_flow.sampling import Problem, Target, laplacians, stream, symmetric_normalised
from graphbench.contracts import SPLITS, BenchmarkSpec, Features, GraphBatch, GraphTable
from graphbench.contracts.devices import is_apple
from graphbench.contracts.spec import with_sizes
from graphbench.data.encode import with_encoding
from graphbench.data.loader import GraphLoader
from graphbench.errors import BadInput, check_choice, check_range

Demands = Literal["gaussian", "sphere"]

_CHUNK = 1000  # graphs of a fixed split that are sampled together; another number would change the graphs
_FIXED = 1  # first word of the seeds of fixed splits; training batches have a different one
_DEMANDS = 10  # default for graphs of another benchmark
_EQUAL = 1e-10  # difference of eigenvalues that are equal up to rounding errors
_MAX_NODES = 2000  # which have two million pairs, and a dense system of equations for every graph


class ElectricFlow(GraphBenchmark):
    """Resistor networks and Gaussian demands: predict L† Ψ, √L† Ψ, e^(-sL) Ψ, or the eigenvectors of L.

    These are the synthetic data of "Graph Transformers Dream of Electric Flow" (Cheng, Carin, Sra, ICLR 2025, appendix
    13): n = 10 nodes, fully connected (FC) or on a cycle with links that skip 2, 4, 6 or 8 nodes (CSL); resistances e^u
    with u uniform in [-2, 2]; n Gaussian demands whose columns add up to 0; nodes and edges in random order. Other
    families, numbers of nodes and the graphs of any other benchmark are options. The authors' notebook for figure 1
    centres demands only for the heat kernel; `centred=False` is its setting for the other two maps, whose losses are
    then units higher.

    Training graphs are sampled on the training device, fresh ones in every batch (or every `fresh_every` steps): an
    epoch is `steps_per_epoch` steps. `graph_seed` determines the validation and test graphs, and the train split that
    diagnostics and `predict_split=train` read and `fresh=False` trains on.

    A batch has resistances `edge_dense [num_edges, 1]` (every edge in both directions), demands
    `x_dense [num_nodes, k]` and targets `y [num_nodes, k]`. Eigenvectors need no demands; their targets are v_1, v_2,
    ... in ascending order of eigenvalues, with the constant v_1, as in the paper's loss_1-5 and loss_1-10.

    Args:
        family: FC, CSL, ER (Erdős-Rényi), grid (the most square one) or regular; the last three are connected.
        target: electric (L†), resistive (√L†), heat (e^(-sL)) or eigenvectors.
        num_nodes: nodes of a graph, at most 2,000.
        min_nodes: sample sizes uniformly from `min_nodes` to `num_nodes`, except for those that the family lacks.
        num_demands: k; by default `num_nodes`, as in the paper, and 10 on another benchmark's graphs.
        num_eigenvectors: for target=eigenvectors, how many with the smallest eigenvalues; by default `num_nodes` (10 on
            another benchmark's graphs). Graphs with fewer nodes have columns of zeros instead.
        laplacian: Laplacian of the eigenvectors: unnormalised (L, as in the paper) or symmetric (D^(-1/2) L D^(-1/2)).
        skip_trivial: omit the first eigenvector, which is the constant one, or D^(1/2) 1 for the symmetric Laplacian.
        centred: make the columns of demands add up to 0, as in the paper's text.
        demands: distribution of a column: `gaussian`, as in the authors' code, or `sphere`, as in the paper's text:
            uniform on the unit sphere (of the vectors that add up to 0, if centred). The loss as printed in the paper
            is `--model.loss column_MSE`.
        heat_time: s of the heat kernel.
        log_resistance: resistances are e^u with u uniform between minus and plus this.
        edge_probability: edge probability of ER.
        degree: degree of regular; 3 or 4.
        graphs: another benchmark whose connected graphs replace the family, made simple and undirected, with
            resistances sampled here. Each split samples with replacement from that benchmark's split of the same name.
        fresh: sample training graphs during training; otherwise train on the fixed train split.
        fresh_every: times in a row that a batch is used before another is sampled; 10 in the paper.
        steps_per_epoch: training batches of an epoch: optimizer steps, unless gradients are accumulated.
        graph_seed: seed of the fixed splits; training graphs depend on `seed`.
        sizes: graphs in the fixed train, validation and test splits.
        options: see `GraphBenchmark`.

    Raises:
        BadInput: an option is out of range or not used by the target, or the task is degenerate: the same map for all
            graphs, arbitrary eigenvectors, or nothing to learn.
    """

    spec = specs.ELECTRIC_FLOW

    def __init__(
        self,
        family: Family = "FC",
        target: Target = "electric",
        num_nodes: int = 10,
        min_nodes: int | None = None,
        num_demands: int | None = None,
        num_eigenvectors: int | None = None,
        laplacian: Literal["unnormalised", "symmetric"] = "unnormalised",
        skip_trivial: bool = False,
        centred: bool = True,
        demands: Demands = "gaussian",
        heat_time: float = 0.5,
        log_resistance: float = 2.0,
        edge_probability: float = 0.5,
        degree: int = 3,
        graphs: GraphBenchmark | None = None,
        fresh: bool = True,
        fresh_every: int = 1,
        steps_per_epoch: int = 100,
        graph_seed: int = 0,
        sizes: tuple[int, int, int] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.family, self.target, self.num_nodes = family, target, num_nodes
        self.min_nodes = num_nodes if min_nodes is None else min_nodes
        self.num_demands, self.num_eigenvectors = num_demands, num_eigenvectors
        self.laplacian, self.skip_trivial = laplacian, skip_trivial
        self.centred, self.demands = centred, demands
        self.heat_time, self.log_resistance = heat_time, log_resistance
        self.edge_probability, self.degree, self.graphs = edge_probability, degree, graphs
        self.fresh, self.fresh_every, self.steps_per_epoch = fresh, fresh_every, steps_per_epoch
        self.graph_seed = graph_seed
        self._check()
        count = num_eigenvectors if target == "eigenvectors" else num_demands
        default = num_nodes - self.skip_trivial if graphs is None else _DEMANDS
        self.num_targets = default if count is None else count
        self._wirings: dict[str, Wiring] = {}
        self._fresh_loader: FreshLoader | None = None
        if graphs is None:
            family_wiring = make_wiring(family, range(self.min_nodes, num_nodes + 1), edge_probability, degree)
            self._wirings = dict.fromkeys(SPLITS, family_wiring)
        self.spec = with_sizes(self._build_spec(), sizes)

    def _check(self) -> None:
        check_choice("target", self.target, get_args(Target))
        check_choice("laplacian", self.laplacian, ("unnormalised", "symmetric"))
        check_choice("demands", self.demands, get_args(Demands))
        if self.target == "eigenvectors" and not (self.centred and self.demands == "gaussian"):
            raise BadInput(
                "centred and demands do not apply to target=eigenvectors, which has no demands: leave them out."
            )
        if self.target != "eigenvectors" and (self.laplacian == "symmetric" or self.skip_trivial):
            raise BadInput(f"laplacian and skip_trivial do not apply to target={self.target}: leave them out.")
        unused = "num_demands" if self.target == "eigenvectors" else "num_eigenvectors"
        if getattr(self, unused) is not None:
            raise BadInput(f"{unused} does not apply to target={self.target}: leave it out.")
        numbers = {"num_demands": self.num_demands, "num_eigenvectors": self.num_eigenvectors}
        numbers |= {"fresh_every": self.fresh_every, "steps_per_epoch": self.steps_per_epoch}
        for name, value in numbers.items():
            if value is not None:
                check_range(name, value, at_least=1, whole=True)
        if not 3 <= self.min_nodes <= self.num_nodes:
            raise BadInput(
                f"Expected 3 <= min_nodes <= num_nodes, got {self.min_nodes} and {self.num_nodes}. (On two nodes every "
                "map is a multiple of the demands.)"
            )
        check_range("num_nodes", self.num_nodes, at_most=_MAX_NODES)
        check_range("heat_time", self.heat_time, above=0, below=math.inf)
        check_range("log_resistance", self.log_resistance, at_least=0, below=math.inf)
        check_range("edge_probability", self.edge_probability, above=0, at_most=1)
        self._check_unused()
        if self.fresh and self.train_fraction < 1:
            raise BadInput("train_fraction selects a part of a fixed training split: set fresh=False with it.")
        wanted = (self.num_eigenvectors or 0) + self.skip_trivial
        if self.graphs is None and wanted > self.min_nodes:
            raise BadInput(f"Graphs of {self.min_nodes} nodes have no {wanted} eigenvectors.")
        if self.graphs is None:
            self._check_not_degenerate()

    def _check_unused(self) -> None:
        """Refuse options that have no effect together with the others, since the user expects other graphs."""
        own_graphs = self.graphs is None
        instead = f"family={self.family}" if own_graphs else f"graphs={type(self.graphs).__name__}"
        used = {
            "heat_time": (self.target == "heat", f"target={self.target}"),
            "edge_probability": (own_graphs and self.family == "ER", instead),
            "degree": (own_graphs and self.family == "regular", instead),
            "family": (own_graphs, instead),
            "num_nodes": (own_graphs, instead),
            "min_nodes": (own_graphs or self.min_nodes == self.num_nodes, instead),
        }
        defaults = inspect.signature(ElectricFlow).parameters
        for option, (is_used, choice) in used.items():
            if not is_used and getattr(self, option) != defaults[option].default:
                raise BadInput(f"{option}={getattr(self, option)} does not apply to {choice}: leave it out.")

    def _check_not_degenerate(self) -> None:
        """Refuse families whose targets are the same for all graphs, or arbitrary."""
        first_alone = self.target == "eigenvectors" and self.num_eigenvectors == 1 and not self.skip_trivial
        if first_alone and self.laplacian == "unnormalised":
            raise BadInput(
                "num_eigenvectors=1 is only the first eigenvector, which is constant on every graph: use more, or "
                "set skip_trivial."
            )
        if self.log_resistance > 0:
            return
        if self.family == "FC":
            raise BadInput(
                "family=FC with log_resistance=0 is one graph on which every map is a multiple of the demands and "
                "every eigenvalue but the first is the same: set log_resistance above 0, or another family."
            )
        if self.target == "eigenvectors" and self._has_equal_eigenvalues():
            raise BadInput(
                f"family={self.family} with log_resistance=0 has graphs with equal eigenvalues, whose eigenvectors "
                "are arbitrary: set log_resistance above 0."
            )

    def _has_equal_eigenvalues(self) -> bool:
        """Return whether all graphs of some size have equal eigenvalues if every resistance is 1."""
        sizes = range(self.min_nodes, self.num_nodes + 1)
        if self.family == "grid":
            wanted = self.num_nodes if self.num_eigenvectors is None else self.num_eigenvectors + self.skip_trivial
            return any(_has_equal_on_grid(size, wanted, self.laplacian == "symmetric") for size in sizes)
        complete = {"ER": self.edge_probability == 1, "regular": self.degree + 1 in sizes}
        return self.family == "CSL" or complete[self.family]

    def _build_spec(self) -> BenchmarkSpec:
        """Build the specification of these options."""
        spec = type(self).spec
        demands = 0 if self.target == "eigenvectors" else self.num_targets
        loss = "eigenvector" if self.target == "eigenvectors" else "normalised_MSE"
        spec = replace(spec, node=Features(dense=demands), num_targets=self.num_targets, loss=loss)
        if self.graphs is not None:
            shared = ("mean_nodes", "max_nodes", "mean_edges", "offline", "licence", "source")
            return replace(spec, disk_mb=None, extra={}, **{name: getattr(self.graphs.spec, name) for name in shared})
        if (self.family, self.min_nodes, self.num_nodes) == ("FC", 10, 10):
            return spec
        wiring = self._wirings["train"]
        fixed = self.min_nodes == self.num_nodes
        mean_edges = 2.0 * wiring.max_edges if fixed and self.family != "ER" else None
        return replace(
            spec,
            mean_nodes=float(self.num_nodes) if fixed else None,
            max_nodes=wiring.max_nodes,
            mean_edges=mean_edges,
            disk_mb=None,
            extra={"max_edges": str(wiring.max_edges)},
        )

    # -- the fixed splits ----------------------------------------------------------------------------------------

    def source_key(self) -> dict[str, Any]:
        """Return all options of the graphs of the fixed splits."""
        key: dict[str, Any] = {
            "target": self.target,
            "num_targets": self.num_targets,
            "log_resistance": self.log_resistance,
            "graph_seed": self.graph_seed,
            "sizes": list(self.spec.split_sizes or ()),
        }
        if self.target == "heat":
            key["heat_time"] = self.heat_time
        if not self.centred:
            key["centred"] = False
        if self.demands != "gaussian":
            key["demands"] = self.demands
        if self.laplacian != "unnormalised" or self.skip_trivial:
            key |= {"laplacian": self.laplacian, "skip_trivial": self.skip_trivial}
        if self.graphs is not None:
            name, version = type(self.graphs).__name__, self.graphs.data_version
            graphs: dict[str, Any] = {"name": name, "version": version, "source": self.graphs.source_key()}
            # The train split is sampled from this share of its graphs only.
            share = {"share": self.graphs.batch_options()} if self.graphs.train_fraction < 1 else {}
            return key | {"graphs": graphs | share}
        key |= {"family": self.family, "nodes": [self.min_nodes, self.num_nodes]}
        option = {"ER": "edge_probability", "regular": "degree"}.get(self.family)
        return key | ({option: getattr(self, option)} if option else {})

    def read(self) -> Mapping[str, Iterator[GraphTable]]:
        """Sample the fixed splits."""
        return self.sampled(self._sample)

    def _sample(self, number: int, size: int) -> Iterator[GraphTable]:
        problem = self.problem(SPLITS[number])
        for chunk in range(-(-size // _CHUNK)):
            generator = stream(torch.device("cpu"), _FIXED, self.graph_seed, number, chunk)
            networks = problem.draw(_CHUNK, generator)  # whole chunks, since a shorter one would have other graphs
            if chunk == 0:
                heat = f", heat_time={self.heat_time:g}" if self.target == "heat" else ""
                networks.check(f"target={self.target}, log_resistance={self.log_resistance:g}{heat}")
            table = networks.table()
            yield table.slice(0, min(_CHUNK, size - chunk * _CHUNK))

    def problem(self, split: str) -> Problem:
        """Return the distribution of the graphs of a split.

        Raises:
            BadInput: the other benchmark has no connected graph.
        """
        if split not in self._wirings:
            assert self.graphs is not None
            self.graphs.setup()
            self._wirings[split] = TableWiring(self.graphs.tables[split], f"{self.graphs.spec.name} {split}")
        wiring = self._wirings[split]
        return Problem(
            wiring, self.target, self.num_targets, self.log_resistance, self.heat_time,
            normalised=self.laplacian == "symmetric", skip=int(self.skip_trivial), centred=self.centred,
            unit=self.demands == "sphere",
        )  # fmt: skip

    def prepare_data(self) -> None:
        """Prepare the other benchmark, if given, and sample the fixed splits unless the store has them."""
        if self.graphs is not None:
            self.graphs.prepare_data()
        super().prepare_data()

    # -- fresh batches -------------------------------------------------------------------------------------------

    def train_dataloader(self) -> GraphLoader | FreshLoader:  # type: ignore[override]
        """Return fresh graphs, or the fixed split with `fresh=False` or if the trainer overfits a few batches.

        Until `teardown` each new loader continues after the batches of the previous one.
        """
        trainer = self.trainer
        if not self.fresh or getattr(trainer, "overfit_batches", 0) > 0:
            return super().train_dataloader()
        problem = self.problem("train")

        def draw(generator: torch.Generator, first_id: int) -> GraphBatch:
            networks = problem.draw(self.batch_size, generator)
            if not self.encodings:
                return networks.batch(first_id)
            raw = table = networks.table()
            raw.graph_ids = torch.arange(first_id, first_id + len(raw))
            for encoding in self.encodings:
                table = with_encoding(table, encoding, encoding.compute(raw))
            return table.batch(range(len(table)))

        device = torch.device("cpu") if trainer is None else trainer.strategy.root_device
        if self.encodings or is_apple(device):  # encodings need tables on the CPU; networks need float64
            device = torch.device("cpu")
        world_size, rank = (trainer.world_size, trainer.global_rank) if trainer else (1, 0)
        options = (self.steps_per_epoch, self.batch_size, self.fresh_every, self.sampling_seed(), device)
        loader = FreshLoader(draw, *options, world_size, rank)
        # Continue, since Lightning may reload, and a loop of one's own may create, a loader for every epoch.
        loader.done = 0 if self._fresh_loader is None else self._fresh_loader.done
        self._fresh_loader = loader
        return loader

    def teardown(self, stage: str) -> None:
        """Stop as `GraphBenchmark` does; the next training starts with the first batch."""
        super().teardown(stage)
        self._fresh_loader = None


def _has_equal_on_grid(num_nodes: int, wanted: int, normalised: bool) -> bool:
    """Return whether one of the first `wanted` eigenvalues of a grid with resistances of 1 occurs twice."""
    wires = make_wiring("grid", [num_nodes]).draw(1, torch.Generator())
    laplacian = laplacians(wires, torch.ones(wires.tail.shape))
    values = torch.linalg.eigvalsh(symmetric_normalised(laplacian) if normalised else laplacian)[0]
    return bool((values.diff()[:wanted] < _EQUAL).any())
