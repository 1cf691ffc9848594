"""Split the nodes of graphs: shared storage of the splits, batches of any size, and limits of memory."""
