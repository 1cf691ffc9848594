"""Split graphs and their nodes, edges and links: by masks of the source, shares of classes, groups, and folds."""
