from .base import SuperpixelBenchmark as SuperpixelBenchmark
