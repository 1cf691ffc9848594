"""Point clouds: rotations, sampling of surfaces, parametric solids, and files of several formats.

Imports nothing of ours but contracts and errors. Nothing here needs a network.
"""
