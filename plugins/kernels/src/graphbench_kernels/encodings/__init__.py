"""Encodings."""
