"""GCN, GIN, GINE, GAT, GraphSAGE, GatedGCN, GT and GPS for graphbench."""
