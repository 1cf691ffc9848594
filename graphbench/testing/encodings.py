"""The contracts of encodings and of positional encoders, as test classes to inherit."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar
from unittest import SkipTest

import torch
from torch import Tensor

from graphbench.contracts import (
    Architecture,
    BenchmarkSpec,
    Encoded,
    Encoding,
    GraphBatch,
    GraphTable,
    PositionalEncoder,
    Representation,
)
from graphbench.testing.architectures import ArchitectureContract
from graphbench.testing.tiny import encode, permute_nodes, tiny_spec, tiny_table


class EncodingContract:
    """Tests that every encoding must pass; subclass it in a test module and set `encoding`."""

    #: The class under test.
    encoding: ClassVar[type[Encoding]]
    #: Options for its constructor.
    options: ClassVar[Mapping[str, Any]] = {}
    #: Whether renumbering nodes renumbers the result and changes nothing else (not so for eigenvectors).
    equivariant: ClassVar[bool] = False
    #: Relative and absolute tolerance between chunkings and node orders.
    tolerance: ClassVar[float] = 1e-5

    def make_encoding(self) -> Encoding:
        """Create an encoding; override it if keyword options are not enough."""
        return self.encoding(**self.options)

    def make_table(self, **options: Any) -> GraphTable:
        """Create graphs to encode; override it for encodings that need more than tiny ones."""
        return tiny_table(tiny_spec(), **options)

    def test_parameters_are_json(self) -> None:
        """`parameters()` and `version`, which are part of the key in the store, are plain values."""
        encoding = self.make_encoding()
        parameters = encoding.parameters()
        assert json.loads(json.dumps(parameters, allow_nan=False)) == parameters, "parameters change on the way to JSON"
        assert isinstance(encoding.version, int), "version must be an integer"

    def test_equal_options_make_equal_encodings(self) -> None:
        """Parts of a model that require the same encoding share it."""
        assert self.make_encoding() == self.make_encoding()
        assert hash(self.make_encoding()) == hash(self.make_encoding())

    def test_rows_match_the_layout(self) -> None:
        """Every promised field exists with the rows of its axis; indices stay within their graph."""
        table = self.make_table()
        encoding = self.make_encoding()
        _check_encoded(encoding, encoding.compute(table), table)

    def test_smallest_graphs_are_encoded(self) -> None:
        """Graphs of one node and graphs without edges can be encoded."""
        encoding = self.make_encoding()
        for table in (self.make_table(sizes=[1]), self.make_table(sizes=[3, 1, 4], edges=False)):
            _check_encoded(encoding, encoding.compute(table), table)

    def test_chunks_do_not_matter(self) -> None:
        """A graph, with edges or none, is encoded the same alone, in a part of the table and in the whole table."""
        table = self.make_table(sizes=[5, 3, 1, 12, 6], edges=[True, False, True, True, True])
        encoding = self.make_encoding()
        whole = encode(table, [encoding])
        for name in encoding.layout:
            for cuts in ([0, 2, 5], [0, 1, 2, 3, 4, 5]):
                pieces = [encode(table.slice(a, b), [encoding]) for a, b in pairwise(cuts)]
                chunked = torch.cat([piece.columns[name] for piece in pieces])
                self._assert_close(chunked, whole.columns[name], f"{name} in chunks {cuts}")

    def test_computing_repeats_and_leaves_graphs_alone(self) -> None:
        """Equal input gives equal tensors, whatever the global random state; the input is not changed."""
        table, encoding = self.make_table(), self.make_encoding()
        original = {name: tensor.clone() for name, tensor in table.columns.items()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            first = encoding.compute(table)
            torch.manual_seed(2)
            second = encoding.compute(table)
        for name, tensor in first.columns.items():
            assert torch.equal(tensor, second.columns[name]), f"computing {name} twice gives different values"
        for name, tensor in original.items():
            assert torch.equal(tensor, table.columns[name]), f"compute changed {name} of the graphs"

    def test_node_order_moves_rows(self) -> None:
        """Encoding renumbered graphs gives the same as renumbering encoded graphs."""
        if not self.equivariant:
            raise SkipTest("not equivariant by its definition")
        table, encoding = self.make_table(), self.make_encoding()
        expected, _ = permute_nodes(encode(table, [encoding]))
        actual = encode(permute_nodes(table)[0], [encoding])
        for name in encoding.layout:
            self._assert_close(actual.columns[name], expected.columns[name], f"{name} under another node order")

    def _assert_close(self, actual: Tensor, expected: Tensor, what: str) -> None:
        torch.testing.assert_close(
            actual, expected, rtol=self.tolerance, atol=self.tolerance, msg=lambda text: f"{what} differ.\n{text}"
        )


def _check_encoded(encoding: Encoding, encoded: Encoded, table: GraphTable) -> None:
    """Check that fields, rows, pointers and indices agree with the layout, and that floats are finite."""
    assert set(encoded.columns) == set(encoding.layout), (
        f"compute gives {sorted(encoded.columns)}, but the layout promises {sorted(encoding.layout)}"
    )
    for axis, ptr in encoded.ptr.items():
        assert len(ptr) == len(table) + 1, f"ptr of {axis!r} must have {len(table) + 1} entries, not {len(ptr)}"
        assert int(ptr[0]) == 0, f"ptr of {axis!r} must start at 0"
        assert bool((ptr.diff() >= 0).all()), f"ptr of {axis!r} must not descend"
    joined = table.with_columns(encoded.columns, encoding.layout, encoded.ptr)
    for name, column in encoding.layout.items():
        value, lengths = joined.columns[name], joined.lengths(column.axis)
        assert len(value) == int(lengths.sum()), f"{name}: {len(value)} rows for {int(lengths.sum())} of {column.axis}"
        if value.is_floating_point():
            assert value.isfinite().all(), f"{name} has values that are not finite"
        if column.index_of is not None and value.numel():
            limit = torch.repeat_interleave(joined.lengths(column.index_of), lengths)
            inside = (value >= 0).reshape(len(value), -1).all(1) & (value.reshape(len(value), -1).amax(1) < limit)
            assert inside.all(), f"{name} must number the rows of {column.index_of!r} within their graph"


class _Positions(Architecture):
    """A single positional encoder as an architecture."""

    weights: Tensor

    def __init__(self, spec: BenchmarkSpec, encoder: PositionalEncoder) -> None:
        super().__init__(spec, encoder.dim)
        self.encoder, self.waits_for_device = encoder, encoder.waits_for_device
        self.register_buffer("weights", torch.empty(0), persistent=False)  # has the dtype of the weights

    def forward(self, batch: GraphBatch) -> Representation:
        # `NodeEncoder` also converts positions to the dtype of the weights: an encoder may return stored values.
        return Representation(self.encoder(batch).to(self.weights.dtype))


class PositionalEncoderContract(ArchitectureContract):
    """Tests that every positional encoder must pass; subclass it in a test module and set `encoder`."""

    architecture = _Positions
    #: The class under test.
    encoder: ClassVar[type[PositionalEncoder]]

    def make_encoder(self) -> PositionalEncoder:
        """Create an encoder; override it if keyword options are not enough."""
        return self.encoder(**self.options)

    def make_model(self, spec: BenchmarkSpec) -> Architecture:
        """Wrap the encoder so that the checks of architectures apply."""
        return _Positions(spec, self.make_encoder())

    def test_options_are_typed_and_have_defaults(self) -> None:
        """The command line builds encoders from their signature; the width may be required."""
        for option in inspect.signature(self.encoder).parameters.values():
            assert option.annotation is not option.empty, f"option {option.name} has no type"
