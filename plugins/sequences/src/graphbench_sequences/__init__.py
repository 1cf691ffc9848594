"""Models of the Long Range Arena; sequences of a batch stay independent."""

from graphbench_sequences.luna import Luna
from graphbench_sequences.mega import MEGA
from graphbench_sequences.s4d import S4D
from graphbench_sequences.sequoia import SequenceSequoia
from graphbench_sequences.transformer import SequenceTransformer

__all__ = ["MEGA", "S4D", "Luna", "SequenceSequoia", "SequenceTransformer"]
