"""Run the units of a command here or as jobs of a cluster, through submitit."""

from graphbench.experiments.launchers.cluster import OPTIONS, Cluster, add_options
from graphbench.experiments.launchers.launching import ROOM, launch, read_jobs
from graphbench.experiments.launchers.units import Bundle, Unit, note_begin, note_end, read_notes, record_of

__all__ = [
    "OPTIONS",
    "ROOM",
    "Bundle",
    "Cluster",
    "Unit",
    "add_options",
    "launch",
    "note_begin",
    "note_end",
    "read_jobs",
    "read_notes",
    "record_of",
]
