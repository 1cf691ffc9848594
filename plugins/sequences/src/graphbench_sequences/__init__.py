"""Models of the Long Range Arena, each sequence on its own."""

from graphbench_sequences.luna import Luna as Luna
from graphbench_sequences.mega import MEGA as MEGA
from graphbench_sequences.s4d import S4D as S4D
from graphbench_sequences.sequoia import SequenceSequoia as SequenceSequoia
from graphbench_sequences.transformer import SequenceTransformer as SequenceTransformer

__all__ = ["MEGA", "S4D", "Luna", "SequenceSequoia", "SequenceTransformer"]
