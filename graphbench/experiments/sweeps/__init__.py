"""Many trainings in one command: models, variations, seeds and folds, here or under SLURM."""

from graphbench.experiments.sweeps.local import Failure, run_all
from graphbench.experiments.sweeps.plan import Sweep, Variant, parse_numbers, parse_variation
from graphbench.experiments.sweeps.slurm import array_script

__all__ = ["Failure", "Sweep", "Variant", "array_script", "parse_numbers", "parse_variation", "run_all"]
