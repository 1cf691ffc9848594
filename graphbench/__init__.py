"""graphbench."""
