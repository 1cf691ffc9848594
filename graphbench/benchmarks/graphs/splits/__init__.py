"""Who trains, validates and tests: masks that came with graphs, shares of classes and groups, links of one graph."""
