"""Split graphs and their nodes, edges and links: by masks of the source, class shares, groups, and folds."""
