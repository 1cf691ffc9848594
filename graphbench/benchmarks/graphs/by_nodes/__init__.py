"""One graph, or several, whose nodes are split: the splits, batches of any size, and what they may take."""
