"""Search for options by validation scores: a space, a study in SQLite, and pruning of trials that fall behind."""

from graphbench.experiments.tuning.pruning import PruneTrial
from graphbench.experiments.tuning.space import Choice, Range, Space, read_space
from graphbench.experiments.tuning.study import Begun, Study

__all__ = ["Begun", "Choice", "PruneTrial", "Range", "Space", "Study", "read_space"]
