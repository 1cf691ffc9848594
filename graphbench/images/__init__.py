"""Images: files of several formats as arrays, and superpixel graphs made of them.

Imports nothing of ours but contracts and errors. Nothing here needs a network.
"""
