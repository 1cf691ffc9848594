"""Layouts of released checkpoints: map their tensors by name to those of the models here.

A function of this package maps the content of a file and the `state_dict` of a recipe's model to the new `state_dict`;
`expected.weights.layout` of a recipe names it. Any tensor left over on either side is an error.
"""
