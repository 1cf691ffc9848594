"""Positional encoders: from stored encodings to features of nodes."""

from graphbench.nn.positional.degree import DegreeEncoder as DegreeEncoder
from graphbench.nn.positional.lap_pe import ESLapPEEncoder as ESLapPEEncoder
from graphbench.nn.positional.lap_pe import LapPEEncoder as LapPEEncoder
from graphbench.nn.positional.rwse import RWSEEncoder as RWSEEncoder
from graphbench.nn.positional.signnet import SignNetEncoder as SignNetEncoder

__all__ = ["DegreeEncoder", "ESLapPEEncoder", "LapPEEncoder", "RWSEEncoder", "SignNetEncoder"]
