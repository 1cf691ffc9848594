"""Heads of the tasks, under the path that they had before they stood with the other heads."""

from graphbench.nn.heads import GraphHead as GraphHead
from graphbench.nn.heads import NodeHead as NodeHead
