"""Thirty molecules of six scaffolds."""

from __future__ import annotations

RINGS = [f"C1{'C' * size}C1" for size in range(1, 7)]
SMILES = [ring + chain for chain in ("", "C", "O", "CC", "N") for ring in RINGS]
