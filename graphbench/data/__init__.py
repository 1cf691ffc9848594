"""What all benchmarks share: the on-disk store, encoding many graphs, splits, bucketed sampling and loading."""
