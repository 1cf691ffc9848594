from . import benchmarks as benchmarks
from . import callbacks as callbacks
from . import contracts as contracts
from . import data as data
from . import diagnostics as diagnostics
from . import encodings as encodings
from . import errors as errors
from . import inference as inference
from . import nn as nn
from . import registry as registry
from . import testing as testing
from .contracts import Architecture as Architecture
from .contracts import Benchmark as Benchmark
from .contracts import BenchmarkSpec as BenchmarkSpec
from .contracts import Column as Column
from .contracts import Encoded as Encoded
from .contracts import Encoding as Encoding
from .contracts import Features as Features
from .contracts import GraphBatch as GraphBatch
from .contracts import GraphTable as GraphTable
from .contracts import LayerTrace as LayerTrace
from .contracts import PositionalEncoder as PositionalEncoder
from .contracts import Representation as Representation
from .contracts import Traced as Traced
from .contracts import kernels as kernels
from .inference import Predictor as Predictor
from .inference import load as load
from .training.build import build as build
from .training.module import BenchmarkModule as BenchmarkModule

__version__: str
__all__: list[str]
