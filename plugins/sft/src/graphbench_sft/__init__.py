"""The Sampling Foundational Transformer for graphbench."""
