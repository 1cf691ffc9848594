"""Faster versions of the operations in `ops`, which alone imports them, where they can run."""
