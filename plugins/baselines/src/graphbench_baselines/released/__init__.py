"""Layouts of checkpoints that authors released: their tensors by name to those of the models here.

A function of this package takes the content of a file and the `state_dict` of a recipe's model, and returns the new
`state_dict`; `expected.weights.layout` of a recipe names it. It fails on any tensor that is left over on either side.
"""
