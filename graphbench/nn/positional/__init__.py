"""Positional encoders, which map stored encodings to node features."""

from graphbench.nn.positional.degree import DegreeEncoder
from graphbench.nn.positional.lap_pe import ESLapPEEncoder, LapPEEncoder
from graphbench.nn.positional.rwse import RWSEEncoder
from graphbench.nn.positional.signnet import SignNetEncoder

__all__ = ["DegreeEncoder", "ESLapPEEncoder", "LapPEEncoder", "RWSEEncoder", "SignNetEncoder"]
