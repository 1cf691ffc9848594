"""Split the nodes of graphs, with shared storage of the splits, batches of any size, and memory limits."""
