from .base import PointCloudBenchmark as PointCloudBenchmark
from .modelnet import ModelNet40 as ModelNet40
from .shapenet import ShapeNetPart as ShapeNetPart
from .solids import Solids as Solids
