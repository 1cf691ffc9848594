"""Contract of an architecture: it maps a batch to node, edge and graph representations."""

from __future__ import annotations

import copy
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphbench.contracts.encoding import Encoding, check_encoded, declared_encodings, merge_encodings
from graphbench.contracts.pyg import to_graph_batch
from graphbench.contracts.spec import BenchmarkSpec
from graphbench.contracts.table import GraphBatch
from graphbench.errors import BadInput, check_range

#: Options that are integers of at least 1 in every model.
_COUNTS = ("dim", "hidden_dim", "num_layers", "num_heads", "ffn_dim")
#: States of nodes by name, `[n, ...]` each.
NodeState = dict[str, Tensor]
#: Maps a batch and the states of its nodes to the new states, see `Architecture.node_steps`.
NodeStep = Callable[[GraphBatch, NodeState], NodeState]


@dataclass
class Representation:
    """Output of an architecture.

    Args:
        node: `[num_nodes, dim]`.
        edge: `[num_edges, edge_dim]`, from architectures that update edges.
        graph: `[num_graphs, dim]`, from architectures with a graph token; else the head pools `node`.
        tokens: `[num_tokens, dim]` in addition to the nodes (substructures, virtual nodes), with `tokens_batch`.
        tokens_batch: graph of each extra token `[num_tokens]`.
        penalty: scalar that is added to the training loss, such as a regulariser of values that the model computes;
            a mean over graphs or nodes, so that it does not grow with the batch. It is averaged over processes.

    Examples:
        >>> import torch
        >>> Representation(node=torch.zeros(5, 8)).node.shape
        torch.Size([5, 8])
    """

    node: Tensor
    edge: Tensor | None = None
    graph: Tensor | None = None
    tokens: Tensor | None = None
    tokens_batch: Tensor | None = None
    penalty: Tensor | None = None

    def check(self, batch: GraphBatch, dim: int, edge_dim: int | None = None) -> None:
        """Raise `BadInput` unless all parts have the shapes above; edges may have any width if `edge_dim` is None.

        Only shapes are read, so there is no host-device sync.

        Examples:
            >>> Representation(node=torch.zeros(3, 8)).check(GraphBatch(num_nodes=3, num_graphs=1), dim=4)
            Traceback (most recent call last):
            graphbench.errors.BadInput: node must be [3, 4], a row for each node, but is [3, 8].
        """
        if self.tokens is not None and self.tokens_batch is None:
            raise BadInput("tokens need tokens_batch, the graph of each.")
        tokens = 0 if self.tokens_batch is None else len(self.tokens_batch)
        for name, rows, width in (
            ("node", int(batch.num_nodes), dim), ("edge", batch.num_edges, edge_dim),
            ("graph", batch.num_graphs, dim), ("tokens", tokens, None),
        ):  # fmt: skip
            part = getattr(self, name)
            if part is None and name != "node":
                continue
            if not isinstance(part, Tensor) or not part.is_floating_point():
                what = f"of {part.dtype}" if isinstance(part, Tensor) else f"{type(part).__name__}"
                raise BadInput(f"{name} must be a tensor of floating-point numbers, but is {what}.")
            if part.dim() != 2 or len(part) != rows or part.shape[1] != (width or part.shape[1]):
                row = {"tokens": "entry of tokens_batch"}.get(name, name)
                wanted = f"[{rows}, {width or 'dim'}], a row for each {row}"
                raise BadInput(f"{name} must be {wanted}, but is {list(part.shape)}.")


def check_common_options(options: Mapping[str, Any]) -> None:
    """Refuse out-of-range values of options that have the same meaning in every model.

    `dim`, `hidden_dim`, `num_layers`, `num_heads` and `ffn_dim` are integers of at least 1; `dropout` and names that
    end in `_dropout` or `_drop` are probabilities below 1. PyTorch accepts some other values and fails in the first
    step, or trains something else.

    Args:
        options: name -> value; values that are not numbers are left to the model.

    Raises:
        BadInput: names the option, the value and the range.

    Examples:
        >>> check_common_options({"num_heads": 4, "dropout": 0.1, "ffn_dim": None})
        >>> check_common_options({"dropout": 2})
        Traceback (most recent call last):
        graphbench.errors.BadInput: dropout must be at least 0 and below 1, but got 2.
    """
    for name, value in options.items():
        if not isinstance(value, (int, float)):
            continue
        if name in _COUNTS:
            check_range(name, value, at_least=1, whole=True)
        elif name == "dropout" or name.endswith(("_dropout", "_drop")):
            check_range(name, value, at_least=0, below=1)


def _checked(construct: Callable[..., None]) -> Callable[..., None]:
    """Wrap a constructor so that it first calls `check_common_options`."""
    signature = inspect.signature(construct)

    @functools.wraps(construct)
    def checked(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        try:
            given = signature.bind(self, *args, **kwargs).arguments
        except TypeError:  # raised again by the constructor, with the name of its class
            given = {}
        check_common_options(given)  # without defaults, which are up to the author
        construct(self, *args, **kwargs)

    return checked


class _ChecksOptions(nn.Module):
    """Module whose constructor first calls `check_common_options`."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the constructor of a subclass."""
        super().__init_subclass__(**options)
        # Before the first layer is built, whose error would name no option.
        if "__init__" in cls.__dict__:
            cls.__init__ = _checked(cls.__init__)  # type: ignore[method-assign]


class PositionalEncoder(_ChecksOptions):
    """Compute features `[num_nodes, dim]` from encodings in the batch, or from the graph itself.

    Subclasses set `dim` and `encodings` (those that the data must prepare) in `__init__` and implement `forward`.

    Examples:
        >>> import torch
        >>> class Ones(PositionalEncoder):
        ...     def __init__(self, dim=2):
        ...         super().__init__()
        ...         self.dim, self.encodings = dim, ()
        ...     def forward(self, batch):
        ...         return torch.ones(batch.num_nodes, self.dim)
        >>> from graphbench.testing import tiny_spec, tiny_table
        >>> Ones()(tiny_table(tiny_spec(), sizes=[3, 2]).batch([0, 1])).shape
        torch.Size([5, 2])
    """

    dim: int
    encodings: tuple[Encoding, ...] = ()
    #: Whether the features of a node depend only on its own encodings and the size of its graph.
    by_node: bool = False
    #: See `Architecture.waits_for_device`.
    waits_for_device: str = ""

    def __call__(self, batch: Data) -> Tensor:
        """Return the features of every node `[num_nodes, dim]`; the batch may also be PyG's `Batch` or `Data`.

        Raises:
            BadInput: `forward` returns something else.
        """
        batch = to_graph_batch(batch)
        features: Tensor = super().__call__(batch)
        if not torch.compiler.is_compiling():
            try:
                Representation(node=features).check(batch, self.dim)
            except BadInput as error:
                raise BadInput(f"{type(self).__name__}.forward: {error}") from error
        return features

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Compute fields for `forward`, which computes them itself if they are missing; see `Architecture.precompute`.

        Field names include the options that the fields depend on: a model may have several encoders of one class.
        """
        return {}

    def forward(self, batch: GraphBatch) -> Tensor:
        """Compute the features of every node `[num_nodes, dim]`."""
        raise BadInput(f"{type(self).__name__} must define forward(batch) -> [num_nodes, dim].")


class Architecture(_ChecksOptions):
    """Base class of all architectures.

    A subclass accepts the specification first and then keyword options, each typed, with the paper's default:

        class MyModel(Architecture):
            def __init__(self, spec: BenchmarkSpec, hidden_dim: int = 64, num_layers: int = 4) -> None:
                super().__init__(spec, hidden_dim)

    Options that `check_common_options` knows are checked before the constructor runs.

    One line of the docstring gives time and memory of a training step up to constants, with default options, without
    weights, gradients and encodings; `speed/growth.py` compares it with measurements. B is the number of graphs, each
    with N nodes and E edges, D the largest degree, L the layers, H the heads, d the width, m the samples, points,
    inducing tokens, packed tokens or states per graph or channel, and k the neighbours or hops:

        Time and memory: `B L (N d^2 + N^2 (d + H))`, `B L (N d + H N^2)`.

    Args:
        spec: the benchmark's description, all that a model knows about its data.
        dim: width of the representation that `forward` returns.

    Examples:
        >>> import torch
        >>> from graphbench.testing import tiny_batch, tiny_spec
        >>> class Embedding(Architecture):
        ...     def __init__(self, spec, dim: int = 8):
        ...         super().__init__(spec, dim)
        ...         self.embed = torch.nn.Embedding(spec.node.vocabularies[0], dim)
        ...     def forward(self, batch):
        ...         return Representation(node=self.embed(batch.x[:, 0]))
        >>> model = Embedding(tiny_spec())
        >>> model.required_encodings(), model(tiny_batch(model)).node.shape[1]
        ((), 8)
    """

    #: Encodings this architecture reads from the batch itself, in addition to those of its positional encoders.
    encodings: tuple[Encoding, ...] = ()
    #: Width of the edge representation that `forward` returns; 0 if it returns none.
    edge_dim: int = 0
    #: Why a training step forces a host-device sync, such as a draw that decides shapes; "" if it does not.
    waits_for_device: str = ""
    #: Counter of the models in this process; copies of a model and forked workers share its number.
    _numbers = itertools.count()

    def __init__(self, spec: BenchmarkSpec, dim: int) -> None:
        super().__init__()
        if not isinstance(spec, BenchmarkSpec):
            raise BadInput(
                f"{type(self).__name__} must pass the specification that it gets to super().__init__(spec, dim), but "
                f"passed {type(spec).__name__}."
            )
        check_range("dim", dim, at_least=1, whole=True)
        self.spec = spec
        self.dim = dim
        self._number = next(self._numbers)
        self._precomputing: tuple[Architecture | PositionalEncoder, ...] | None = None
        self._fields: tuple[str, ...] | None = None

    def __call__(self, batch: Data) -> Representation:
        """Run `forward` on a `GraphBatch`, or on PyG's `Batch` or `Data`.

        Raises:
            BadInput: features or encodings of the model are missing, or `forward` returns something else.
        """
        if not isinstance(batch, GraphBatch):
            batch = to_graph_batch(batch, self.spec)
            check_encoded(batch, self)
        elif not torch.compiler.is_compiling():
            self._check_fields(batch)
        if self.precomputes:  # does nothing if the loader's workers did it
            batch = self.precomputed(batch, torch.default_generator if self.training else None)
        if torch.compiler.is_compiling():  # a program has no copies, and would be recompiled for other sizes
            return super().__call__(batch)  # type: ignore[no-any-return]
        # A shallow copy: heads, losses and diagnostics read the caller's batch, whatever `forward` assigns to its copy.
        representation: Representation = super().__call__(copy.copy(batch))
        self._check(representation, batch)
        return representation

    def _check(self, representation: Any, batch: GraphBatch) -> None:
        forward = f"{type(self).__name__}.forward"
        if not isinstance(representation, Representation):
            made = "nothing" if representation is None else type(representation).__name__
            raise BadInput(
                f"{forward} must return a Representation(node=[num_nodes, {self.dim}]), but returned {made}."
            )
        try:
            representation.check(batch, self.dim, self.edge_dim or None)
            weights = list(self.parameters()) if representation.node.dtype == torch.float64 else []
            if weights and all(weight.dtype != torch.float64 for weight in weights):
                raise BadInput("node is float64, but no weight of the model is; a NumPy number can cause this.")
        except BadInput as error:
            raise BadInput(f"{forward}: {error}") from error

    def _check_fields(self, batch: GraphBatch) -> None:
        """Refuse a batch without the fields of encodings: its benchmark was not asked to prepare them."""
        if self._fields is None:  # once, not in every step
            self._fields = tuple(name for encoding in self.required_encodings() for name in encoding.layout)
        if any(name not in batch for name in self._fields):
            check_encoded(batch, self)

    def precompute(self, batch: GraphBatch, generator: torch.Generator | None = None) -> dict[str, Any]:
        """Compute further fields for `forward` that do not depend on weights: samples, lists of pairs.

        Use it for fields whose size depends on values, which would force a host-device sync in `forward`. The loader's
        workers call it on batches on the CPU, so it must not read parameters or buffers, which may be on another
        device. For any other batch it runs before `forward`, on the device of the batch.

        Args:
            batch: the graphs; read only their structure, since features may still change before `forward`.
            generator: on the CPU, for random choices in training; the loader seeds it from seed, epoch and graphs. None
                in evaluation, which is deterministic.

        Returns:
            Name -> tensor or plain value; floating-point tensors would be rounded in half precision.
        """
        return {}

    @property
    def precomputes(self) -> bool:
        """Tell whether the model or one of its encoders computes fields before `forward`."""
        return bool(self._precomputing_parts())

    def _precomputing_parts(self) -> tuple[Architecture | PositionalEncoder, ...]:
        # At first use: a subclass adds its parts after this constructor. Not a `cached_property`: before Python 3.12
        # it acquires a lock, a graph break for `torch.compile(model)`.
        if self._precomputing is None:
            parts = [part for part in self.modules() if isinstance(part, (Architecture, PositionalEncoder))]
            defaults = Architecture.precompute, PositionalEncoder.precompute
            self._precomputing = tuple(part for part in parts if type(part).precompute not in defaults)
        return self._precomputing

    def precomputed(self, batch: GraphBatch, generator: torch.Generator | None = None) -> GraphBatch:
        """Return a shallow copy of the batch with the fields of `precompute`; the batch itself if it has them.

        Examples:
            >>> from graphbench.testing import tiny_batch, tiny_spec
            >>> class Longest(Architecture):
            ...     def precompute(self, batch, generator=None):
            ...         return {"most_edges": int(batch.edge_index[0].bincount().max())}
            >>> model = Longest(tiny_spec(), dim=8)
            >>> model.precomputed(tiny_batch(model)).most_edges > 0
            True
        """
        # Per model, since another model of the class may have other options; per mode, since training is random.
        mark = f"model {self._number}, {'evaluation' if generator is None else 'training'}"
        if batch.get("precomputed_for", None) == mark:
            return batch
        prepared: GraphBatch = copy.copy(batch)
        for part in self._precomputing_parts():
            for name, value in part.precompute(batch, generator).items():
                prepared[name] = value
        prepared.precomputed_for = mark
        return prepared

    def forward(self, batch: GraphBatch) -> Representation:
        """Compute the representations of a batch; a graph's must not depend on the rest of the batch."""
        raise BadInput(f"{type(self).__name__} must define forward(batch) -> Representation.")

    def node_steps(self) -> Sequence[NodeStep]:
        """Split `forward` into steps from nodes to nodes, to evaluate a graph that does not fit into memory.

        Each step runs over all blocks of nodes before the next step begins. Its batch has the nodes of a block, all
        edges to them, the sources of these edges (possibly repeated), the mask `asked` of the block, and `ptr` of the
        whole graph. A step returns new states of the block's nodes (other rows are dropped), which may depend only on
        incoming edges and the states of their sources. The first step sees features of nodes, but no states or edges;
        the others see states, edges and their features. After the last step `x` is `Representation.node`.

        Returns:
            The steps; empty if `forward` cannot be split, as with attention among all nodes.
        """
        return ()

    def required_encodings(self) -> tuple[Encoding, ...]:
        """List the encodings that the data must prepare: those of this module and of all its parts."""
        return merge_encodings(declared_encodings(self))

    def parameter_groups(self) -> Sequence[dict[str, Any]]:
        """Return parameter groups with separate options (`lr_scale`, `weight_decay`, ...) for the optimizer.

        Other parameters train with the optimizer's defaults.
        """
        return ()
