"""Run many trainings with one command: models, variations, seeds and folds, here or as jobs of a cluster."""

from graphbench.experiments.sweeps.local import Failure, run_all
from graphbench.experiments.sweeps.plan import Sweep, Variant, parse_numbers, parse_variation

__all__ = ["Failure", "Sweep", "Variant", "parse_numbers", "parse_variation", "run_all"]
