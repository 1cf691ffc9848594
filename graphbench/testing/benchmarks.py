"""The contract of benchmarks, as a test class to inherit: the data must match the specification."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar
from unittest import SkipTest

import torch
from torch import Tensor

from graphbench import registry
from graphbench.contracts import Benchmark, BenchmarkSpec, Features, GraphBatch
from graphbench.contracts.spec import SPLITS
from graphbench.nn import HeadConfig
from graphbench.training.tasks import build_task


class BenchmarkContract:
    """Tests that every benchmark must pass; subclass it in a test module and define `make_benchmark`."""

    #: Whether the benchmark under test has all its data, so that split sizes must be those of the specification.
    complete: ClassVar[bool] = False
    #: Whether the test has replaced the specification of the class, for files smaller than the real ones.
    reduced: ClassVar[bool] = False

    @abstractmethod
    def make_benchmark(self) -> Benchmark:
        """Create the benchmark, small enough for a test, with its files in a temporary folder."""

    def test_specification_is_sound(self) -> None:
        """It has the name of the class, and its task supports its loss and metric."""
        benchmark = self.make_benchmark()
        spec = benchmark.spec
        assert spec.name == type(benchmark).__name__, f"spec.name is {spec.name!r}"
        build_task(spec, dim=8, head=HeadConfig())
        names = spec.num_targets if spec.num_classes is None else spec.num_classes
        assert len(spec.target_names) in (0, names), f"{len(spec.target_names)} target_names for {names}"
        assert len(spec.target_units) in (0, spec.num_targets), f"{len(spec.target_units)} target_units"

    def test_listed_specification_is_the_real_one(self) -> None:
        """The specification found by `graphbench list` is that of the class."""
        if self.reduced:
            raise SkipTest("the specification of the real files is not under test here")
        benchmark = self.make_benchmark()
        record = registry.benchmarks().get(type(benchmark).__name__)
        declared = getattr(type(benchmark), "spec", None)
        if record is not None and isinstance(declared, BenchmarkSpec):
            assert record.spec == declared, "the module specs has another specification"

    def test_batches_match_the_specification(self) -> None:
        """Every batch of every split, see `check_batch`."""
        benchmark = self._opened()
        for split in SPLITS:
            batches = list(_batches(benchmark, split))
            assert batches, f"the {split} split has no batch"
            for batch in batches:
                check_batch(benchmark.spec, batch)

    def test_splits_have_their_sizes(self) -> None:
        """Every graph of a split occurs once; there are as many as specified if the data are complete."""
        benchmark = self._opened()
        sizes = []
        for split in SPLITS:
            ids = torch.cat([batch.graph_id for batch in _batches(benchmark, split)])
            assert len(ids.unique()) == len(ids), f"a graph comes twice in one epoch of {split}"
            sizes.append(len(ids))
        if self.complete and benchmark.spec.split_sizes is not None:
            assert tuple(sizes) == benchmark.spec.split_sizes

    def test_evaluation_order_repeats(self) -> None:
        """Validation and test batches come in the same order every time."""
        benchmark = self._opened()
        for split in SPLITS[1:]:
            first, second = ([batch.graph_id.tolist() for batch in _batches(benchmark, split)] for _ in range(2))
            assert first == second, f"{split} batches come in another order"

    def _opened(self) -> Benchmark:
        benchmark = self.make_benchmark()
        benchmark.prepare_data()
        benchmark.setup()
        return benchmark


def _batches(benchmark: Benchmark, split: str) -> Iterator[GraphBatch]:
    loader: Any = getattr(benchmark, f"{split}_dataloader")()
    yield from loader


def check_batch(spec: BenchmarkSpec, batch: GraphBatch) -> None:
    """Check that a batch has what its specification promises, and nothing that it excludes.

    Raises:
        AssertionError: says what was expected and what was found.
    """
    num_nodes, num_edges = int(batch.num_nodes), batch.edge_index.shape[1]
    sizes = batch.ptr.diff()
    assert len(sizes) == batch.num_graphs, f"ptr has {len(sizes)} graphs, num_graphs is {batch.num_graphs}"
    assert int(sizes.max()) == batch.max_nodes, f"max_nodes is {batch.max_nodes}, the largest graph has {sizes.max()}"
    ends = batch.batch[batch.edge_index]
    assert torch.equal(ends[0], ends[1]), "an edge joins two graphs"
    _check_features(spec.node, batch, "x", "x_dense", num_nodes)
    _check_features(spec.edge, batch, "edge_attr", "edge_dense", num_edges)
    _check_dense(batch, "pos", num_nodes, spec.coordinates)
    _check_target(spec, batch)


def _check_features(features: Features, batch: GraphBatch, codes: str, dense: str, rows: int) -> None:
    sizes = features.vocabularies
    _check_dense(batch, dense, rows, features.dense)
    assert (codes in batch) == bool(sizes), f"{codes} must {'' if sizes else 'not '}be in the batch"
    if not sizes:
        return
    value = batch[codes]
    assert tuple(value.shape) == (rows, len(sizes)), f"{codes} must be [{rows}, {len(sizes)}]: {list(value.shape)}"
    assert value.dtype == torch.int64, f"{codes} must be int64, not {value.dtype}"
    if rows:
        low, high = value.amin(0).tolist(), value.amax(0).tolist()
        assert min(low) >= 0, f"{codes} has negative values"
        assert all(top < size for top, size in zip(high, sizes, strict=True)), f"{codes} reaches {high} of {sizes}"


def _check_dense(batch: GraphBatch, name: str, rows: int, width: int) -> None:
    assert (name in batch) == bool(width), f"{name} must {'' if width else 'not '}be in the batch"
    if width:
        value = batch[name]
        assert tuple(value.shape) == (rows, width), f"{name} must be [{rows}, {width}], but is {list(value.shape)}"
        assert value.dtype == torch.float32, f"{name} must be float32, not {value.dtype}"
        assert value.isfinite().all(), f"{name} has values that are not finite"


def _check_target(spec: BenchmarkSpec, batch: GraphBatch) -> None:
    """Check classes `[rows, 1]` (or `[rows]`), or targets `[rows, num_targets]` with NaN where unknown."""
    y: Tensor | None = batch.get("y")
    if spec.kind in ("ranking", "recovery"):  # their targets are not in `y`
        return
    assert y is not None, "the batch has no y"
    if spec.num_classes is not None:
        rows = _rows(spec, batch)
        assert y.numel() == rows == len(y), f"y must contain one class for each of {rows} rows, but is {list(y.shape)}"
        assert not y.is_floating_point(), f"classes must be integers, not {y.dtype}"
        low, high = (int(bound) for bound in y.aminmax())
        lowest = 0 if spec.level == "graph" else -1  # -1: a node or edge without a label
        assert low >= lowest, f"y has the class {low}"
        assert high < spec.num_classes, f"y has the class {high}, but there are {spec.num_classes}"
        return
    expected = (_rows(spec, batch), spec.num_targets)
    assert tuple(y.shape) == expected, f"y must be {list(expected)}, but is {list(y.shape)}"
    assert y.is_floating_point(), f"targets must be real numbers, not {y.dtype}"
    assert not y.isinf().any(), "y has infinite values"


def _rows(spec: BenchmarkSpec, batch: GraphBatch) -> int:
    """Count the rows of targets of a batch."""
    rows = {"node": int(batch.num_nodes), "edge": batch.edge_index.shape[1]}
    return rows.get(spec.level or "", batch.num_graphs)
