"""DeepGraph: substructure tokens for deep graph transformers, for graphbench."""
