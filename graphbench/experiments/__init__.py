"""Many trainings: what scripts share, and the commands sweep, tune and reproduce.

- `trainings`: a training that is skipped when finished and goes on when it was interrupted; its rows of tables;
- `records`: small JSON files of runs that a repository keeps;
- `sweeps/`: models, variations, seeds and folds, here or as a SLURM array;
- `tuning/`: a search for better options by validation scores;
- `reproduce/`: the tables of papers as data, and what is still missing of them.
"""

from __future__ import annotations

from graphbench.experiments.records import Record, read_records, record_of, write_records, write_together
from graphbench.experiments.trainings import (
    CommandFailed,
    Training,
    assign,
    finished_seeds,
    graphbench,
    pass_on,
    provenance,
    read_csv,
    results,
    train,
    write_csv,
)

__all__ = [
    "CommandFailed",
    "Record",
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
