"""What an encoding is: tensors that are computed once per graph and kept in the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from graphbench.contracts.table import PAIR, Column, GraphTable


@dataclass
class Encoded:
    """Result of `Encoding.compute`.

    Args:
        columns: field name -> tensor with the rows of its axis, graph after graph.
        ptr: `[G + 1]` first rows for every axis that the encoding itself adds.

    Examples:
        >>> import torch
        >>> Encoded({"degree": torch.tensor([1, 2, 1])}).columns["degree"].shape  # one row per node
        torch.Size([3])
    """

    columns: dict[str, Tensor]
    ptr: dict[str, Tensor] = field(default_factory=dict)


class Encoding(ABC):
    """A pre-computed enrichment of graphs.

    Subclasses are small objects with options in `__init__`; `parameters()` and `version` key the store, so two
    encodings with equal names, versions and parameters must compute equal tensors.

    Examples:
        >>> import torch
        >>> from graphbench.contracts import GraphTable
        >>> class OutDegree(Encoding):
        ...     layout = {"out_degree": Column("node")}
        ...     def parameters(self):
        ...         return {}
        ...     def compute(self, graphs):
        ...         tail = graphs.batch(range(len(graphs))).edge_index[0]
        ...         return Encoded({"out_degree": tail.bincount(minlength=int(graphs.num_nodes.sum()))})
        >>> path = {"num_nodes": 3, "edge_index": torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])}
        >>> OutDegree(), OutDegree().compute(GraphTable.from_graphs([path])).columns["out_degree"]
        (OutDegree(), tensor([1, 2, 1]))
    """

    #: Registered name; the class name unless set.
    name: ClassVar[str]
    #: Raise it when `compute` changes its result.
    version: ClassVar[int] = 1

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = cls.__name__

    @abstractmethod
    def parameters(self) -> dict[str, Any]:
        """Every option that changes the result, as JSON values."""

    @property
    @abstractmethod
    def layout(self) -> Mapping[str, Column]:
        """Field name on the batch -> how it batches."""

    @abstractmethod
    def compute(self, graphs: GraphTable) -> Encoded:
        """Encode many graphs at once. Reads only `graphs`; must not depend on how graphs are chunked."""

    def memory(self, num_nodes: int, num_edges: int) -> int:
        """Bytes that computing it for one graph takes, about; 0 where nobody needs to know.

        By default eight bytes for each column of pairs of nodes, which the store keeps and every batch gathers.

        Args:
            num_nodes: of the graph.
            num_edges: directed edges of it.
        """
        return 8 * num_nodes**2 * sum(column.axis == PAIR for column in self.layout.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoding) and (self.name, self.version, self.parameters()) == (
            other.name,
            other.version,
            other.parameters(),
        )

    def __hash__(self) -> int:
        return hash((self.name, self.version))

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in self.parameters().items())})"
