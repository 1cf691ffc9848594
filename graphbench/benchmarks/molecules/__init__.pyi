from .base import MoleculeBenchmark as MoleculeBenchmark
