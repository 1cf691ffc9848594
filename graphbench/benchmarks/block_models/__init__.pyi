from .csl import CSL as CSL
from .cycles import CYCLES as CYCLES
from .pattern_cluster import CLUSTER as CLUSTER
from .pattern_cluster import PATTERN as PATTERN
from .pattern_cluster import BlockModelBenchmark as BlockModelBenchmark
