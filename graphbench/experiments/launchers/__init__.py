"""Run the units of a command here or as jobs of a cluster, through submitit or Ray."""

from graphbench.experiments.launchers.cluster import Cluster, add_options
from graphbench.experiments.launchers.launching import launch
from graphbench.experiments.launchers.units import Bundle, Unit

__all__ = ["Bundle", "Cluster", "Unit", "add_options", "launch"]
