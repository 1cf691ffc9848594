"""The linear graph transformer that computes electric flow, for graphbench."""
