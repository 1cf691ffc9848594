"""RDKit part of the molecule benchmarks: SMILES, features, properties, splits, files, baselines."""
