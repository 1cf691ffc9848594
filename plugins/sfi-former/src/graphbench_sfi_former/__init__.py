"""SFi-Former and its exact sparse flow for graphbench."""
