from .base import PointCloudBenchmark as PointCloudBenchmark
