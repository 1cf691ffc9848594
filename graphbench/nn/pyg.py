"""Plain graphs of PyG in front of these layers."""

from graphbench.contracts.encoding import add_encodings
from graphbench.contracts.pyg import graphs_of_nodes

__all__ = ["add_encodings", "graphs_of_nodes"]
