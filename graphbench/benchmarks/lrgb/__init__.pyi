from .superpixels import LRGBBenchmark as LRGBBenchmark
