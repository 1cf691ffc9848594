"""Sequences of tokens: generators and readers of the Long Range Arena's tasks ("Long Range Arena", Tay et al., 2021).

Imports nothing of ours but contracts and errors. Nothing here needs a network.
"""
