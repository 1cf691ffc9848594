from .benchmark import Graphs as Graphs
