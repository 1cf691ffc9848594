"""What the molecule benchmarks share: reading SMILES with RDKit, features, properties, splits, files, baseline models.

Imports nothing of ours but contracts and errors. Nothing here needs a network.
"""
