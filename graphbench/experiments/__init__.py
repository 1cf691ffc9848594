"""Run many trainings: scripts of experiments, and the commands sweep, study, tune and reproduce.

- `trainings`: a training that is skipped if finished and resumed if interrupted, and its table row;
- `commands`: graphbench commands in separate processes;
- `records`: small JSON files of runs for a repository;
- `sweeps/`: models, variations, seeds and folds, run here or as a SLURM array;
- `study`: control, depth, budget and cost of a model, from runs found by their configuration;
- `tuning/`: a search for better options by validation scores;
- `reproduce/`: published tables, their trainings, and pages of the results.
"""

from __future__ import annotations

from graphbench.experiments.commands import CommandFailed, graphbench, pass_on
from graphbench.experiments.records import Record, read_records, record_of, write_records, write_together
from graphbench.experiments.trainings import (
    TrainedElsewhere,
    Training,
    assign,
    finished_seeds,
    provenance,
    read_csv,
    results,
    train,
    write_csv,
)

__all__ = [
    "CommandFailed",
    "Record",
    "TrainedElsewhere",
    "Training",
    "assign",
    "finished_seeds",
    "graphbench",
    "pass_on",
    "provenance",
    "read_csv",
    "read_records",
    "record_of",
    "results",
    "train",
    "write_csv",
    "write_records",
    "write_together",
]
