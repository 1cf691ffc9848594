from .base import SequenceBenchmark as SequenceBenchmark
