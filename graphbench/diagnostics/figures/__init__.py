"""Figures of graphs and attention, drawn from arrays; nothing here records or measures."""
